//! What `doctor` finds about the certificate of `[server.tls]`.

use super::{FREE_PORTS, allow, doctor, doctor_of};
use crate::kit::host::{Setup, write_certificate};
use crate::kit::site::{Authority, Issued, begins_in, ends_in};

fn doctor_with(issued: &Issued) -> super::Found {
    doctor(&Setup::new().config(FREE_PORTS).tls(issued), &["--offline"])
}

#[test]
fn a_good_certificate_is_shown_with_its_names_and_its_end() {
    let found = doctor_with(&Authority::new().issue(&["api.example.com", "::1"]));
    found.assert("certificate", "ok", &["expires at 4096-01-01"]);
    found.assert("certificate", "ok", &["is for api.example.com, ::1"]);
    found.assert("certificate", "ok", &["has one certificate; clients have to trust its issuer"]);
    found.assert("certificate", "ok", &["only its owner and group"]);
}

#[test]
fn a_certificate_that_has_expired_or_soon_will_is_found() {
    let authority = Authority::new();
    let expired = doctor_with(&authority.issue_with(&["localhost"], |params| {
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    }));
    expired.assert("certificate", "bad", &["it expired at 2002-01-01", "renew"]);
    let soon = doctor_with(&authority.issue_with(&["localhost"], ends_in(13)));
    soon.assert("certificate", "warn", &["in 12 days", "renew"]);
    doctor_with(&authority.issue_with(&["localhost"], begins_in(2))).assert(
        "certificate",
        "bad",
        &["it is valid from"],
    );
}

#[test]
fn a_certificate_without_names_and_a_chain_in_disorder_are_found() {
    let authority = Authority::new();
    doctor_with(&authority.issue(&[])).assert("certificate", "bad", &["names no host", "subjectAltName"]);
    let issued = authority.issue(&["localhost"]);
    let stranger = Authority::new().issue_with(&["other"], |params| {
        params.distinguished_name.push(rcgen::DnType::CommonName, "stranger");
    });
    let mixed = Issued { certificate: format!("{}{}", issued.certificate, stranger.certificate), ..issued };
    doctor_with(&mixed).assert(
        "certificate",
        "warn",
        &["certificate 2 of the file has not issued certificate 1"],
    );
}

#[test]
fn files_that_cannot_be_served_and_a_key_open_to_others_are_found() {
    let authority = Authority::new();
    let (good, other) = (authority.issue(&["127.0.0.1"]), authority.issue(&["127.0.0.1"]));
    let setup = Setup::new().config(FREE_PORTS).tls(&good);
    allow(&setup.directory().join("tls.key"), 0o644);
    doctor(&setup, &["--offline"]).assert("certificate", "warn", &["has mode 0644", "chmod 600"]);
    let host = setup.start();
    write_certificate(host.directory(), &Issued { key: other.key, ..good });
    let found = doctor_of(&host, &["--offline"]);
    found.assert(
        "certificate",
        "bad",
        &["is not the key", "goes on with the one that expires at 4096", "PEM"],
    );
}
