//! Who may call what: one table from routes and kinds of keys to a verdict. What
//! a key may do inside a route it may call is the route's own question.

use cofferdam_store::KeyKind;

use crate::reply::Fault;
use crate::route::Label;

/// What a kind of key meets at a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It may call the route.
    Allow,
    /// The key is good, but not for this.
    Forbid,
    /// The route manages keys, and the key does not.
    ManagementOnly,
    /// For this key the route does not exist.
    Hide,
    /// The vault treats the key as unknown.
    Unknown,
    /// The vault needs a workspace, and the key has none.
    NoScope,
}

use Verdict::{Allow, Forbid, Hide, ManagementOnly, NoScope, Unknown};

/// Columns: member, intern, provisioning, unscoped.
const TABLE: [(Label, [Verdict; 4]); 7] = [
    (Label::Responses, [Allow, Allow, Forbid, Forbid]),
    (Label::Embeddings, [Allow, Allow, Forbid, Forbid]),
    (Label::Models, [Allow, Allow, Allow, Allow]),
    (Label::Key, [Allow, Allow, Allow, Allow]),
    (Label::Keys, [ManagementOnly, Hide, Allow, ManagementOnly]),
    (Label::Credits, [Allow, Hide, Hide, Hide]),
    (Label::Vault, [Allow, Allow, Unknown, NoScope]),
];

/// Decides whether a kind of key may call a route.
///
/// # Errors
///
/// What the client is told instead.
pub(crate) fn check(route: Label, kind: KeyKind) -> Result<(), Fault> {
    let row = TABLE.iter().find(|(label, _)| *label == route);
    let [member, intern, provisioning, unscoped] = row.map_or([Hide; 4], |(_, verdicts)| *verdicts);
    let verdict = match kind {
        KeyKind::Member => member,
        KeyKind::Intern => intern,
        KeyKind::Provisioning => provisioning,
        KeyKind::Unscoped => unscoped,
    };
    match verdict {
        Allow => Ok(()),
        Forbid => Err(Fault::NoInference),
        ManagementOnly => Err(Fault::ManagementOnly),
        Hide => Err(Fault::NotFound),
        Unknown => Err(Fault::InvalidVaultKey),
        NoScope => Err(Fault::NoVaultScope),
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_store::KeyKind;

    use super::check;
    use crate::route::Label;

    /// The statuses of the contract, column by column.
    #[test]
    fn each_kind_of_key_meets_what_the_contract_says() {
        let contract: [(Label, [u16; 4]); 8] = [
            (Label::Responses, [200, 200, 403, 403]),
            (Label::Embeddings, [200, 200, 403, 403]),
            (Label::Models, [200, 200, 200, 200]),
            (Label::Key, [200, 200, 200, 200]),
            (Label::Keys, [403, 404, 200, 403]),
            (Label::Credits, [200, 404, 404, 404]),
            (Label::Vault, [200, 200, 401, 403]),
            (Label::None, [404, 404, 404, 404]),
        ];
        let kinds = [KeyKind::Member, KeyKind::Intern, KeyKind::Provisioning, KeyKind::Unscoped];
        for (route, statuses) in contract {
            for (kind, status) in kinds.into_iter().zip(statuses) {
                let met = check(route, kind).map_or_else(|fault| fault.status().as_u16(), |()| 200);
                assert_eq!(met, status, "{route:?} {kind:?}");
            }
        }
    }
}
