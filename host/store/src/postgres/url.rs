//! The URL of the store: `postgres://USER[:PASSWORD]@HOST[:PORT][,HOST[:PORT]...]/DATABASE[?sslmode=MODE]`.

use std::fmt;
use std::net::IpAddr;

use zeroize::Zeroizing;

const PORT: u16 = 5432;
const HOSTS_MAX: usize = 16;

/// Where the database is, and as whom to connect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DatabaseUrl {
    /// The hosts, in the order in which they are tried.
    pub(crate) hosts: Vec<DatabaseHost>,
    pub(crate) user: String,
    /// The password, if the URL has one.
    pub(crate) password: Option<Password>,
    pub(crate) database: String,
    pub(crate) tls: TlsUse,
}

/// Whether connections are encrypted. With TLS, certificates are always verified.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TlsUse {
    /// Everywhere but on connections that do not leave the machine.
    Remote,
    /// On every TCP connection.
    Always,
    /// Nowhere: every host is local.
    Never,
}

/// One host of the database.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DatabaseHost {
    /// A name, an IP address, or the directory of a Unix socket, which begins with `/`.
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl fmt::Display for DatabaseHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DatabaseHost { name, port } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

impl DatabaseHost {
    pub(crate) fn is_socket(&self) -> bool {
        self.name.starts_with('/')
    }

    /// The address on this machine that the name stands for.
    pub(crate) fn loopback(&self) -> Option<IpAddr> {
        if self.name == "localhost" {
            return Some(IpAddr::from([127, 0, 0, 1]));
        }
        self.name.parse().ok().filter(IpAddr::is_loopback)
    }

    fn is_local(&self) -> bool {
        self.is_socket() || self.loopback().is_some()
    }

    /// Whether a connection to this host uses TLS.
    pub(crate) fn uses_tls(&self, tls: TlsUse) -> bool {
        match tls {
            TlsUse::Never => false,
            TlsUse::Always => !self.is_socket(),
            TlsUse::Remote => !self.is_local(),
        }
    }
}

/// The password of the database's user. Wiped when dropped, and never shown.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Password(Zeroizing<String>);

impl Password {
    pub(crate) fn new(text: String) -> Password {
        Password(Zeroizing::new(text))
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// What is wrong with the URL of a store. The text repeats nothing of it, because a
/// password can stand in every part of a malformed one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum UrlError {
    #[error("the URL of the store begins with `postgres://` or `postgresql://`")]
    Scheme,
    #[error("the URL of the store names no user: `postgres://USER@HOST/DATABASE`")]
    NoUser,
    #[error("the URL of the store names no database: `postgres://USER@HOST/DATABASE`")]
    NoDatabase,
    #[error("the URL of the store names {0} hosts; it may name 1 to {HOSTS_MAX}")]
    Hosts(usize),
    #[error("host {0} in the URL of the store is empty or malformed")]
    Host(usize),
    #[error("the port of host {0} in the URL of the store is not a number from 1 to 65535")]
    Port(usize),
    #[error("the {0} in the URL of the store is not percent-encoded UTF-8")]
    Encoding(&'static str),
    #[error("the URL of the store has a parameter that is not `sslmode`")]
    Parameter,
    #[error("`sslmode` in the URL of the store is `verify-full`, or `disable` on one machine")]
    Mode,
    #[error("host {0} in the URL of the store is on another machine, where `sslmode=disable` is refused")]
    PlainRemote(usize),
}

impl DatabaseUrl {
    /// Reads a URL.
    pub(crate) fn parse(text: &str) -> Result<DatabaseUrl, UrlError> {
        let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
        let rest = rest.ok_or(UrlError::Scheme)?;
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').ok_or(UrlError::NoDatabase)?;
        let (user, hosts) = authority.rsplit_once('@').ok_or(UrlError::NoUser)?;
        // A password with such a character, not encoded, would in part be taken for a host or a database.
        if user.contains('@') {
            return Err(UrlError::Encoding("user or password"));
        }
        let (user, password) = match user.split_once(':') {
            Some((user, password)) => (user, Some(decoded(password, "password")?)),
            None => (user, None),
        };
        if database.contains(['@', ':', '/']) {
            return Err(UrlError::Encoding("database"));
        }
        let (user, database) = (decoded(user, "user")?, decoded(database, "database")?);
        if user.is_empty() {
            return Err(UrlError::NoUser);
        }
        if database.is_empty() {
            return Err(UrlError::NoDatabase);
        }
        let hosts: Vec<DatabaseHost> = (1..).zip(hosts.split(',')).map(host).collect::<Result<_, _>>()?;
        if hosts.len() > HOSTS_MAX {
            return Err(UrlError::Hosts(hosts.len()));
        }
        let tls = tls_use(parameters)?;
        let remote = hosts.iter().position(|host| !host.is_local());
        match remote {
            Some(at) if tls == TlsUse::Never => Err(UrlError::PlainRemote(at + 1)),
            _ => {
                let password = password.map(Password::new);
                Ok(DatabaseUrl { hosts, user, password, database, tls })
            }
        }
    }
}

fn host((number, text): (usize, &str)) -> Result<DatabaseHost, UrlError> {
    let malformed = || UrlError::Host(number);
    let (name, port) = match text.strip_prefix('[') {
        Some(literal) => {
            let (address, rest) = literal.split_once(']').ok_or_else(malformed)?;
            address.parse::<std::net::Ipv6Addr>().map_err(|_| malformed())?;
            let port =
                if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or_else(malformed)?) };
            (address, port)
        }
        None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    let name = decoded(name, "host")?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:/".contains(letter);
    if name.is_empty() || !name.chars().all(is_plain) || (name.contains('/') && !name.starts_with('/')) {
        return Err(malformed());
    }
    let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| UrlError::Port(number)))?;
    if port == 0 { Err(UrlError::Port(number)) } else { Ok(DatabaseHost { name, port }) }
}

fn tls_use(parameters: &str) -> Result<TlsUse, UrlError> {
    let mut tls = TlsUse::Remote;
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        tls = match (name, value) {
            ("sslmode", "verify-full") => TlsUse::Always,
            ("sslmode", "disable") => TlsUse::Never,
            ("sslmode", _) => return Err(UrlError::Mode),
            _ => return Err(UrlError::Parameter),
        };
    }
    Ok(tls)
}

/// Decodes `%XX`.
fn decoded(text: &str, what: &'static str) -> Result<String, UrlError> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<2>().ok_or(UrlError::Encoding(what))?;
        let digit = |digit: u8| char::from(digit).to_digit(16).ok_or(UrlError::Encoding(what));
        let [high, low] = *digits;
        bytes.push((digit(high)? * 16 + digit(low)?) as u8);
        rest = after;
    }
    let decoded = std::str::from_utf8(&bytes).map_err(|_| UrlError::Encoding(what))?;
    // No part may have a NUL: the protocol ends texts with it.
    if decoded.contains('\0') { Err(UrlError::Encoding(what)) } else { Ok(decoded.to_owned()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(name: &str, port: u16) -> DatabaseHost {
        DatabaseHost { name: name.to_owned(), port }
    }

    #[test]
    fn hosts_ports_user_and_database_are_read() {
        let url =
            DatabaseUrl::parse("postgres://cofferdam@db1,db2:5433,[::1]:7,%2Frun%2Fpg/the%20store").unwrap();
        assert_eq!(url.hosts, [host("db1", 5432), host("db2", 5433), host("::1", 7), host("/run/pg", 5432)]);
        assert_eq!((url.user.as_str(), url.database.as_str()), ("cofferdam", "the store"));
        assert_eq!((url.password, url.tls), (None, TlsUse::Remote));
    }

    #[test]
    fn connections_that_leave_the_machine_use_tls() {
        let uses = |text: &str| {
            let url = DatabaseUrl::parse(text).unwrap();
            url.hosts.iter().map(|host| host.uses_tls(url.tls)).collect::<Vec<_>>()
        };
        assert_eq!(
            uses("postgres://u@db,127.0.0.1,localhost,[::1],%2Frun,10.0.0.1/d"),
            [true, false, false, false, false, true]
        );
        assert_eq!(uses("postgres://u@db,127.0.0.1,%2Frun/d?sslmode=verify-full"), [true, true, false]);
        assert_eq!(uses("postgres://u@127.8.9.1,%2Frun/d?sslmode=disable"), [false, false]);
        let refused = DatabaseUrl::parse("postgres://u@localhost,db/d?sslmode=disable");
        assert_eq!(refused, Err(UrlError::PlainRemote(2)));
    }

    #[test]
    fn malformed_urls_are_refused_with_the_part_that_is_wrong() {
        for (text, error) in [
            ("mysql://u@h/d", UrlError::Scheme),
            ("postgres://h/d", UrlError::NoUser),
            ("postgres://@h/d", UrlError::NoUser),
            ("postgres://u@h", UrlError::NoDatabase),
            ("postgres://u@h/", UrlError::NoDatabase),
            ("postgres://u@/d", UrlError::Host(1)),
            ("postgres://u@a,/d", UrlError::Host(2)),
            ("postgres://u@a b/d", UrlError::Host(1)),
            ("postgres://u@[::1/d", UrlError::Host(1)),
            ("postgres://u@[::1]5/d", UrlError::Host(1)),
            ("postgres://u@a:0/d", UrlError::Port(1)),
            ("postgres://u@a,b:65536/d", UrlError::Port(2)),
            ("postgres://u:%4@a/d", UrlError::Encoding("password")),
            ("postgres://u%00@a/d", UrlError::Encoding("user")),
            ("postgres://u@a/%ff", UrlError::Encoding("database")),
            ("postgres://u@a/d?sslmode=prefer", UrlError::Mode),
            ("postgres://u@a/d?password=x", UrlError::Parameter),
        ] {
            assert_eq!(DatabaseUrl::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_password_is_in_no_text() {
        let url = DatabaseUrl::parse("postgres://u:s%40cret@db/d").unwrap();
        assert_eq!(url.password.as_ref().unwrap().expose(), "s@cret");
        assert!(!format!("{url:?}").contains("cret"), "{url:?}");
        // Characters that should have been encoded move the password into other parts.
        for text in [
            "postgres://u:top/secret@db/d",
            "postgres://u:top?secret@db/d",
            "postgres://u:to@p/se?secret=1@db/d",
            "postgres://u:a@b:secret/d",
            "postgres://u:a@b,secret,,/d",
            "postgres://u:pa@x/secret@db/d",
            "postgres://u:pa@secret@db/d",
            "postgres://u:pa@x/secret:5432",
        ] {
            let error = DatabaseUrl::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(postgres://)?[a-z:@,/?%\\[\\]=0-9]{0,40}") {
            drop(DatabaseUrl::parse(&text));
        }
    }
}
