//! The client's settings (`parameters` of the tool entry), which can only narrow the grant.

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::Fields;
use url::{Host, Url};

/// Every method that the host sends, in the order in which the model sees them.
pub(crate) const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
/// The largest number of entries in `allowed_hosts`.
const HOSTS_MAX: usize = 100;
/// The default and the limit of `max_response_chars`.
const RESPONSE_CHARS_DEFAULT: u32 = 50_000;
const RESPONSE_CHARS_MAX: u32 = 400_000;

/// Validated settings. None of them widens the operator's grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Upper case, in the order of [`METHODS`].
    pub(crate) methods: Vec<&'static str>,
    /// Exact host names; `None` when every granted host is allowed.
    pub(crate) hosts: Option<Vec<String>>,
    /// The longest response body that the model gets, in characters.
    pub(crate) response_chars_max: usize,
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    ///
    /// When a field is wrong; the message names it.
    pub(crate) fn read(fields: &Fields) -> Result<Self, ToolError> {
        Ok(Self {
            methods: methods(fields)?,
            hosts: hosts(fields)?,
            response_chars_max: fields
                .integer("max_response_chars", 1..=RESPONSE_CHARS_MAX)?
                .unwrap_or(RESPONSE_CHARS_DEFAULT) as usize,
        })
    }

    /// Whether the client allows this host.
    pub(crate) fn allows_host(&self, host: &str) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.iter().any(|allowed| allowed == host))
    }
}

fn methods(fields: &Fields) -> Result<Vec<&'static str>, ToolError> {
    const NAME: &str = "allowed_methods";
    let Some(texts) = fields.texts(NAME, METHODS.len())? else { return Ok(METHODS.to_vec()) };
    let known = |text: &&str| METHODS.iter().any(|method| method.eq_ignore_ascii_case(text));
    if texts.is_empty() || !texts.iter().all(known) {
        return Err(fields.wrong(NAME, &format!("takes at least one of {}", METHODS.join(", "))));
    }
    let chosen = |method: &&str| texts.iter().any(|text| method.eq_ignore_ascii_case(text));
    Ok(METHODS.into_iter().filter(chosen).collect())
}

fn hosts(fields: &Fields) -> Result<Option<Vec<String>>, ToolError> {
    const NAME: &str = "allowed_hosts";
    let Some(texts) = fields.texts(NAME, HOSTS_MAX)? else { return Ok(None) };
    let hosts: Option<Vec<_>> = texts.into_iter().map(host).collect();
    match hosts {
        Some(hosts) if !hosts.is_empty() => Ok(Some(hosts)),
        _ => Err(fields.wrong(NAME, "takes exact host names such as api.example.com, at least one")),
    }
}

/// The canonical form of a host name, parsed with the same library as URLs.
fn host(text: &str) -> Option<String> {
    if text.contains(['/', ':', '@', '?', '#', '\\', '*', '%']) {
        return None;
    }
    let url = Url::parse(&format!("https://{text}/")).ok()?;
    match url.host() {
        Some(Host::Domain(domain)) if !domain.is_empty() => Some(domain.to_owned()),
        _ => None,
    }
}
