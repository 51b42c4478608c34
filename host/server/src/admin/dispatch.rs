//! Carries out one command of an operator in the running host, from the socket or the admin API.

use serde_json::json;
use tokio::runtime::Handle;

use super::fault::AdminFault;
use crate::app::{Addresses, App};
use crate::command::{Command, CommandError, CommandOutcome, PluginCommand, Progress, carry_out, logged};
use crate::doctor;
use crate::failure::Failure;
use crate::install;
use crate::operators::CODE_SECONDS;

/// Carries out a command. Runs on a blocking thread: the store blocks until a change is durable.
///
/// # Errors
///
/// The command failed.
pub(super) fn dispatch(
    command: &Command,
    app: &App,
    progress: &mut Progress<'_>,
) -> Result<CommandOutcome, CommandError> {
    match command {
        Command::Plugin(command @ (PluginCommand::Grant(_) | PluginCommand::Manage(_))) => {
            install::carry_out(&app.grants, command).map_err(Failure::into_reply)
        }
        Command::Plugin(PluginCommand::Logs(wanted)) => {
            logged(wanted, app.plugin_lines(&wanted.name, wanted.lines))
        }
        Command::Doctor(arguments) => {
            let findings = Handle::current().block_on(doctor::serving(app, arguments));
            Ok(doctor::outcome(&findings))
        }
        Command::Console => console_link(app),
        command => {
            let facts = app.facts();
            Handle::current().block_on(carry_out(command, Some(&app.store), &facts, progress))
        }
    }
}

/// The address of the console with a login code. The code is in the fragment, which browsers send
/// to no server.
fn console_link(app: &App) -> Result<CommandOutcome, CommandError> {
    let at = app.addresses();
    if !at.has_console() {
        return Err(CommandError::new(AdminFault::NeedsTls.message()));
    }
    let code = app.operators.login_code().map_err(|error| CommandError::new(error.to_string()))?;
    let url = format!("{}://{}/#code={}", at.scheme(), Addresses::reachable(at.admin), code.as_str());
    let text =
        format!("{url}\n\nThe link works once, for {CODE_SECONDS} s. It opens the console of this host.\n");
    Ok(CommandOutcome { document: json!({"url": url, "expires_in_s": CODE_SECONDS}), text })
}
