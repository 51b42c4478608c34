//! Access control: which kind of key may call which route, which secrets a key reaches inside the
//! vault, and which keys a provisioning key manages.

use cofferdam_store::{ApiKey, Intern, KeyKind, Member, MemberRole, OwnedKey, Principal};

use crate::fault::Fault;
use crate::route::Label;

/// The name of the key that pays for requests which the operator sends from the console.
pub(crate) const CONSOLE_KEY: &str = "console";

/// Whether this is the key of the console, which belongs to the operator.
pub(crate) fn is_console_key(key: &ApiKey) -> bool {
    key.kind == KeyKind::Member && key.name.as_ref().is_some_and(|name| name.as_str() == CONSOLE_KEY)
}

/// Checks whether a kind of key may call a route.
///
/// # Errors
///
/// The fault that the client gets.
pub(crate) fn check(route: Label, kind: KeyKind) -> Result<(), Fault> {
    use KeyKind::{Intern, Member, Provisioning, Unscoped};
    match (route, kind) {
        (Label::Models | Label::Key, _) => Ok(()),
        (Label::Responses | Label::Embeddings | Label::Vault, Member | Intern) => Ok(()),
        (Label::Responses | Label::Embeddings, Provisioning | Unscoped) => Err(Fault::NoInference),
        (Label::Keys, Provisioning) => Ok(()),
        (Label::Keys, Member | Unscoped) => Err(Fault::ManagementOnly),
        (Label::Credits, Member) => Ok(()),
        // The vault treats a provisioning key as unknown.
        (Label::Vault, Provisioning) => Err(Fault::InvalidKey),
        (Label::Vault, Unscoped) => Err(Fault::NoScope),
        // To these keys the route does not exist.
        (Label::Keys, Intern) | (Label::Credits | Label::Playground | Label::None, _) => Err(Fault::NotFound),
        // This route is answered without a key.
        (Label::Description, _) => Ok(()),
    }
}

/// Whose secrets a vault request is about, relative to its key. A copy request is checked for two
/// of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Workspace,
    /// The intern that the key belongs to.
    OwnIntern,
    /// An intern that the key's member created.
    MadeIntern,
    /// Another intern of the workspace.
    OtherIntern,
    /// An intern of another workspace, or one that does not exist.
    Stranger,
}

/// Columns: an admin's key, another member's key, an intern's key.
const REACH: [(Whose, [bool; 3]); 5] = [
    (Whose::Workspace, [true, true, false]),
    (Whose::OwnIntern, [false, false, true]),
    (Whose::MadeIntern, [true, true, false]),
    (Whose::OtherIntern, [true, false, false]),
    (Whose::Stranger, [false, false, false]),
];

/// The relation of an intern to the key; `None` for an intern that does not exist.
pub(crate) fn intern(principal: &Principal, intern: Option<&Intern>) -> Whose {
    let key = principal.key();
    match intern {
        Some(intern) if Some(intern.workspace) != key.workspace => Whose::Stranger,
        None => Whose::Stranger,
        Some(intern) if key.intern == Some(intern.id) => Whose::OwnIntern,
        Some(intern) if key.member == Some(intern.created_by) => Whose::MadeIntern,
        Some(_) => Whose::OtherIntern,
    }
}

/// Whether the key reaches these secrets. Secrets out of reach are reported as not found.
pub(crate) fn reaches(principal: &Principal, whose: Whose) -> bool {
    reaches_as(principal.key().kind, principal.role(), whose)
}

/// Whether a provisioning key may see, change and delete another key. The other key must be an
/// inference key of the same workspace, not the operator's, and must reach no more than the provisioning key's member. A
/// provisioning key never manages another provisioning key or itself.
pub(crate) fn manages(principal: &Principal, other: &OwnedKey) -> bool {
    let key = other.key();
    if key.workspace.is_none() || key.workspace != principal.key().workspace || is_console_key(key) {
        return false;
    }
    match key.kind {
        KeyKind::Member => other.member.as_ref().is_some_and(|member| manages_member(principal, member)),
        KeyKind::Intern => other.intern.as_ref().is_some_and(|intern| manages_intern(principal, intern)),
        KeyKind::Provisioning | KeyKind::Unscoped => false,
    }
}

/// Whether a provisioning key may create and manage keys of a member: those of its own member, or
/// as an admin's key those of any member of its workspace.
pub(crate) fn manages_member(principal: &Principal, member: &Member) -> bool {
    let key = principal.key();
    Some(member.workspace) == key.workspace
        && (principal.role() == Some(MemberRole::Admin) || key.member == Some(member.id))
}

/// Whether a provisioning key may create and manage keys of an intern: of those that its member
/// reaches.
pub(crate) fn manages_intern(principal: &Principal, intern: &Intern) -> bool {
    reaches_as(KeyKind::Member, principal.role(), self::intern(principal, Some(intern)))
}

fn reaches_as(kind: KeyKind, role: Option<MemberRole>, whose: Whose) -> bool {
    let row = REACH.iter().find(|(known, _)| *known == whose);
    let [admin, member, intern] = row.map_or([false; 3], |(_, reach)| *reach);
    match (kind, role) {
        (KeyKind::Member, Some(MemberRole::Admin)) => admin,
        (KeyKind::Member, _) => member,
        (KeyKind::Intern, _) => intern,
        (KeyKind::Provisioning | KeyKind::Unscoped, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_store::{KeyKind, MemberRole};

    use super::{REACH, Whose, check, reaches_as};
    use crate::route::Label;

    /// The statuses of the API contract, column by column.
    #[test]
    fn access_of_each_kind_of_key_matches_the_contract() {
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
                let met = check(route, kind).map_or_else(|fault| fault.line().0, |()| 200);
                assert_eq!(met, status, "{route:?} {kind:?}");
            }
        }
    }

    #[test]
    fn only_an_interns_own_key_and_those_above_it_reach_its_secrets() {
        let reached = |kind, role| {
            let whose = REACH.iter().map(|(whose, _)| *whose);
            whose.filter(|whose| reaches_as(kind, role, *whose)).collect::<Vec<_>>()
        };
        use Whose::{MadeIntern, OtherIntern, OwnIntern, Workspace};
        assert_eq!(reached(KeyKind::Member, Some(MemberRole::Admin)), [Workspace, MadeIntern, OtherIntern]);
        assert_eq!(reached(KeyKind::Member, Some(MemberRole::Member)), [Workspace, MadeIntern]);
        assert_eq!(reached(KeyKind::Member, None), [Workspace, MadeIntern]);
        assert_eq!(reached(KeyKind::Intern, None), [OwnIntern]);
        assert_eq!(reached(KeyKind::Provisioning, Some(MemberRole::Admin)), []);
        assert_eq!(reached(KeyKind::Unscoped, None), []);
    }
}
