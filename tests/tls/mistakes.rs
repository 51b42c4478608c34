//! Files of `[server.tls]` that cannot be served: each error names the line of the configuration, the file and what
//! mends it. All forms of keys are taken.

use super::certificate;
use crate::kit::client::Client;
use crate::kit::host::Setup;
use crate::kit::site::Issued;
use std::path::Path;

/// A key or certificate that was made with openssl, for forms that the kit does not write.
fn made(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tls/keys");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn issued(certificate: &str, key: &str) -> Issued {
    let certificate = made(certificate);
    Issued { root: certificate.clone(), certificate, key: made(key) }
}

/// The error of a start with these files, which is exit status 78.
fn error_with(issued: &Issued) -> String {
    let setup = Setup::new().tls(issued);
    let output = setup.argument("--check").fail();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn files_that_cannot_be_served_are_named_with_what_mends_them() {
    let (good, other) = (certificate(), certificate());
    let with_key = |key: String| Issued { key, ..good.clone() };
    let with_certificate = |certificate: String| Issued { certificate, ..good.clone() };
    for (pair, key, words) in [
        (with_key(other.key), "key", "is not the key of the first certificate"),
        (
            with_key(made("encrypted-pkcs8.key")),
            "key",
            "is encrypted; write it without a passphrase: `openssl pkey",
        ),
        (with_key(made("encrypted-pkcs1.key")), "key", "is encrypted"),
        (with_key(String::new()), "key", "has no private key in PEM form"),
        (with_key(good.key.replace("\nM", "\n!")), "key", "is not valid PEM"),
        (issued("small.crt", "small.key"), "key", "RSA of 2048 to 8192 bits"),
        (with_certificate("hello".to_owned()), "certificate", "has no certificate in PEM form"),
        (with_certificate(good.certificate.repeat(17)), "certificate", "at most 16 are served"),
        (with_certificate(good.certificate.replace("\nMII", "\nMIJ")), "certificate", "certificate 1 of"),
        (with_certificate("x".repeat(300_000)), "certificate", "more than 256 KiB"),
    ] {
        let error = error_with(&pair);
        let line = if key == "key" { 3 } else { 2 };
        assert!(error.contains(words), "{words}: {error}");
        assert!(
            error.contains(&format!("cofferdam.toml:{line}:"))
                && error.contains(&format!("server.tls.{key}: "))
        );
        assert!(error.contains(if key == "key" { "tls.key" } else { "tls.crt" }), "{error}");
    }
}

#[test]
fn a_missing_file_and_a_missing_key_of_the_configuration_are_named() {
    let check = |config: &str| {
        let output = Setup::new().config(config).argument("--check").fail();
        assert_eq!(output.status.code(), Some(78), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = check("[server.tls]\ncertificate = \"none.crt\"\nkey = \"none.key\"");
    assert!(error.contains(":2:") && error.contains("cannot read") && error.contains("none.crt"), "{error}");
    let error = check("[server.tls]\ncertificate = \"none.crt\"");
    assert!(error.contains("`key` is missing"), "{error}");
    let error = check("[server]\ntls = true");
    assert!(error.contains("server.tls: expected a table"), "{error}");
    let error = check("[server.tls]\ncertificate = \"/dev/zero\"\nkey = \"none.key\"");
    assert!(error.contains("it is not a file"), "{error}");
}

#[tokio::test]
async fn keys_of_all_forms_are_taken() {
    for pair in [certificate(), issued("rsa.crt", "rsa-pkcs1.key"), issued("ec.crt", "ec-sec1.key")] {
        let host = Setup::new().tls(&pair).start();
        assert_eq!(Client::new(&host).get("/models").await.status, 200);
    }
}

#[test]
fn a_key_that_other_users_can_read_is_warned_of() {
    let setup = Setup::new().tls(&certificate());
    let key = setup.directory().join("tls.key");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let output = setup.argument("--check").fail();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("other users can read or change the key"));
}
