//! `plugin grant NAME --accept`: lets an update serve that asks for more, and grants what it newly
//! asks for by name.

use std::collections::BTreeSet;

use cofferdam_runtime::Manifest;

use super::report::{Change, ChangeKind};
use super::{Installer, refusal};
use crate::command::{Became, CommandError, CommandOutcome, FailureCause, GrantCommand};
use crate::config::edit::{self, Additions};
use crate::facts;
use crate::failure::Failure;
use crate::grants::replace;
use crate::installed::{InstalledAsks, InstalledVersion, LockedPlugin, VersionPart, beyond, granted};

impl Installer<'_> {
    pub(super) fn accept(&self, wanted: &GrantCommand) -> Result<CommandOutcome, Failure> {
        let name = &wanted.name;
        let installed = self.installed(name)?.clone();
        let old = self.files.current_asks(name, &installed);
        let Some(held) = installed.held else {
            return Err(refusal(format!("no update of {name} is held")));
        };
        check_digest(name, &held, wanted.digest.as_deref())?;
        self.files.read(name, &held).map_err(|error| error.in_part(VersionPart::Held))?;
        let new = self.files.manifest(name, &held)?;
        let (from, version) = (installed.current.version.clone(), held.version.clone());
        let mut plugin = LockedPlugin {
            kind: installed.kind,
            current: held,
            previous: Some(installed.current),
            held: None,
        };
        let candidate = self.candidate(name, Some(plugin.clone()));
        let (file, text) = self.grants.read_file()?;
        let edited = edit::add(&text, name, &additions(&new, &old))
            .map_err(|error| refusal(format!("{}: {error}", file.display())))?;
        let plugins = self.check_beside_refused(name, &candidate, &edited.text, &file)?;
        let kind = ChangeKind::Accepted { from, more: beyond(&new, &old), lines: edited.lines };
        let change = Change::new(name, &version, kind);
        if wanted.print {
            return Ok(change.outcome(Became::Printed));
        }
        if let Some(loaded) = plugins.get(name) {
            plugin.current.granted = granted(&facts::plugin_facts(loaded).granted);
        }
        // The configuration first: after a crash between the two, the update is still held, and the
        // grants that the old version does not ask for have no effect.
        if edited.text != text {
            replace(&file, &text, &edited.text).map_err(Failure::system(file.display().to_string()))?;
        }
        self.commit(&self.candidate(name, Some(plugin)))?;
        tracing::info!(plugin = %name, %version, "accepted");
        let granted = self.grant_of(name)?;
        Ok(change.with_asks(&new, &granted).outcome(self.grants.tell()))
    }
}

/// Refuses to accept another update than the one that the operator looked at.
fn check_digest(name: &str, held: &InstalledVersion, wanted: Option<&str>) -> Result<(), CommandError> {
    let digest = held.digest();
    let Some(wanted) = wanted.filter(|wanted| *wanted != digest) else { return Ok(()) };
    let message = format!(
        "another update of {name} is held: {} with the digest {digest}, not the one with {wanted}; `cofferdam plugin \
         grant {name}` shows what it asks for",
        held.version
    );
    Err(CommandError { cause: FailureCause::Conflict, ..CommandError::new(message) })
}

/// Grants for what the new version asks for by name and the old one did not.
fn additions(new: &Manifest, old: &InstalledAsks) -> Additions {
    let by_name = new.imports.iter().filter(|import| import.is_granted_by_name());
    Additions {
        hosts: texts(new.hosts.named().filter(|host| !old.covers(&format!("host {host}")))),
        secrets: texts(new.secrets.named().filter(|secret| !old.covers(&format!("secret {secret}")))),
        imports: texts(
            by_name.map(|import| import.as_str()).filter(|import| !old.covers(&format!("import {import}"))),
        ),
        placeholder_headers: texts(
            new.placeholder_headers
                .iter()
                .filter(|header| !old.covers(&format!("placeholder header {header}"))),
        ),
    }
}

fn texts<T: ToString>(names: impl Iterator<Item = T>) -> BTreeSet<String> {
    names.map(|name| name.to_string()).collect()
}
