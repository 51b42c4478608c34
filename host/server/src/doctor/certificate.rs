//! The certificate of `[server.tls]`: whether it can be served, until when, for which names, and who can read its key.

use super::{CheckFinding, Installation};
use crate::tls::{CertificateFacts, CertificatePair};

const ID: &str = "certificate";
const SUBJECT: &str = "server.tls";
/// A certificate that ends earlier is a warning.
const DAYS_LEFT_MIN: i64 = 14;
const DAY_S: i64 = 24 * 60 * 60;

pub(super) fn check(installation: &Installation<'_>) -> Vec<CheckFinding> {
    let Some(files) = &installation.config.server.tls else { return Vec::new() };
    let pair = match CertificatePair::read(files) {
        Ok(pair) => pair,
        Err(error) => {
            let still = installation.tls.map_or_else(String::new, |tls| {
                format!(
                    "; the running host goes on with the one that expires at {}",
                    tls.current().facts().expires()
                )
            });
            let remedy =
                "put a certificate and its key there, as PEM; a running host takes them within seconds";
            return vec![CheckFinding::bad(ID, SUBJECT, format!("{error}{still}"), remedy)];
        }
    };
    let facts = pair.facts();
    let now_s = i64::try_from(installation.now_ms / 1000).unwrap_or(i64::MAX);
    let mut findings = vec![validity(facts, now_s), names(facts), chain(facts)];
    let key = files.key.path.display();
    findings.push(match pair.open_mode() {
        Some(mode) => CheckFinding::warn(
            ID,
            SUBJECT,
            format!("{key} has mode {mode:04o}: too many users can read or change the key"),
            format!("chmod 600 {key}"),
        ),
        None => CheckFinding::ok(ID, SUBJECT, format!("only its owner and group can read {key}")),
    });
    findings
}

fn validity(facts: &CertificateFacts, now_s: i64) -> CheckFinding {
    const REMEDY: &str = "renew the certificate; a running host takes the new files within seconds";
    if let Some(trouble) = facts.not_valid_at(now_s) {
        return CheckFinding::bad(ID, SUBJECT, format!("clients refuse the certificate: {trouble}"), REMEDY);
    }
    let days = facts.earliest_end_s.saturating_sub(now_s) / DAY_S;
    let found = match facts.earliest_end_s < facts.not_after_s {
        false => format!("the certificate expires at {}, in {days} days", facts.expires()),
        true => format!("a certificate of the chain expires in {days} days, before the first one"),
    };
    if days < DAYS_LEFT_MIN {
        return CheckFinding::warn(ID, SUBJECT, found, REMEDY);
    }
    CheckFinding::ok(ID, SUBJECT, found)
}

fn names(facts: &CertificateFacts) -> CheckFinding {
    if facts.names.is_empty() {
        let remedy =
            "issue it with subjectAltName: DNS names or IP addresses under which clients reach the host";
        let found = "the certificate names no host (subjectAltName), so clients refuse it";
        return CheckFinding::bad(ID, SUBJECT, found, remedy);
    }
    CheckFinding::ok(ID, SUBJECT, format!("the certificate is for {}", facts.shown_names()))
}

fn chain(facts: &CertificateFacts) -> CheckFinding {
    if let Some(number) = facts.broken_after {
        return CheckFinding::warn(
            ID,
            SUBJECT,
            format!("certificate {} of the file has not issued certificate {number}", number + 1),
            "put the server's certificate first, then its issuer's, then that one's issuer's",
        );
    }
    let found = match facts.count {
        1 if facts.ends_in_root => {
            "the certificate is its own issuer: clients have to trust this file".to_owned()
        }
        1 => {
            format!("the file has one certificate; clients have to trust its issuer {} itself", facts.issuer)
        }
        count => format!("the file has {count} certificates in order"),
    };
    CheckFinding::ok(ID, SUBJECT, found)
}
