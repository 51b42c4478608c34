//! Access for fuzz targets to the arguments of the admin API.

use super::arguments::{command, member, of_body, of_query};
use crate::command::remote;

/// Reads the members of a query or a body as the arguments of each command that the admin API carries out. A member
/// that no command knows is refused by each.
pub(crate) fn arguments(data: &[u8]) {
    let query = std::str::from_utf8(data).ok().map(of_query);
    for read in [Some(of_body(data)), query].into_iter().flatten() {
        let Ok(members) = read else { continue };
        for remote in remote::all() {
            let known =
                |name: &String| remote.definition.get_arguments().any(|argument| member(argument) == *name);
            assert!(command(&remote, &members).is_err() || members.keys().all(known), "{:?}", remote.words);
        }
    }
}
