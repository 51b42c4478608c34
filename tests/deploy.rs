//! The files of `deploy/`: their configurations are valid, and what they repeat of them agrees.

use crate::kit::host::program;
use std::path::{Path, PathBuf};

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(deploy(file)).unwrap()
}

/// A whole number of a configuration, such as `timeouts.drain_ms`.
fn number(config: &str, table: &str, key: &str) -> i64 {
    let read: toml::Table = toml::from_str(&read(config)).unwrap();
    read[table][key].as_integer().unwrap()
}

/// The port of a listener.
fn port(config: &str, key: &str) -> String {
    let read: toml::Table = toml::from_str(&read(config)).unwrap();
    read["server"][key].as_str().unwrap().rsplit(':').next().unwrap().to_owned()
}

/// The texts after `before` in the lines that have it.
fn after<'t>(text: &'t str, before: &str) -> Vec<&'t str> {
    text.lines()
        .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix(before))
        .map(str::trim)
        .collect()
}

#[test]
fn the_configurations_can_be_served() {
    for file in ["cofferdam.toml", "kubernetes/cofferdam.toml"] {
        let data = tempfile::tempdir().unwrap();
        let mut command = program();
        command.arg("--data").arg(data.path()).arg("--config").arg(deploy(file)).args(["serve", "--check"]);
        let key = "457f0deb7b1bc67a27e7a041dde9200f2eb25ce81a668333d9606dd717a51073";
        let output = command.env("COFFERDAM_ROOT_KEY", key).output().unwrap();
        assert!(output.status.success(), "{file}: {output:?}");
    }
}

#[test]
fn the_unit_gives_a_stop_ten_seconds_more_than_the_drain() {
    let unit = read("cofferdam.service");
    let drain_s = number("cofferdam.toml", "timeouts", "drain_ms") / 1000;
    assert_eq!(after(&unit, "TimeoutStopSec="), [format!("{}s", drain_s + 10)]);
    assert_eq!(number("cofferdam.toml", "timeouts", "unready_ms"), 5000);
    assert_eq!(after(&unit, "Type="), ["notify"]);
    assert!(unit.contains("RestartPreventExitStatus=78"));
    let credential = after(&unit, "LoadCredential=")[0].split(':').next().unwrap();
    assert!(unit.contains(&format!("3< \"$CREDENTIALS_DIRECTORY/{credential}\"")));
    assert!(read("cofferdam.toml").contains("root_key = \"fd:3\""));
}

#[test]
fn the_manifests_agree_with_the_configuration_of_the_pod() {
    const CONFIG: &str = "kubernetes/cofferdam.toml";
    let pod = read("kubernetes/statefulset.yaml");
    let drain_s = number(CONFIG, "timeouts", "drain_ms") / 1000;
    assert_eq!(after(&pod, "terminationGracePeriodSeconds:"), [(drain_s + 10).to_string()]);
    assert_eq!(number(CONFIG, "timeouts", "unready_ms"), 5000);
    assert_eq!(after(&pod, "containerPort:"), [port(CONFIG, "listen"), port(CONFIG, "admin")]);
    let services = read("kubernetes/service.yaml");
    assert_eq!(after(&services, "port:"), [port(CONFIG, "listen"), port(CONFIG, "admin")]);
    assert_eq!(after(&pod, "path:"), ["/readyz", "/readyz", "/healthz"]);
    // The root key comes from the Secret, under the name that the configuration has.
    let key: toml::Table = toml::from_str(&read(CONFIG)).unwrap();
    let variable = key["vault"]["root_key"].as_str().unwrap().strip_prefix("env:").unwrap();
    assert!(after(&pod, "name:").contains(&variable), "{variable}");
    assert!(read("kubernetes/secret.example.yaml").contains("name: cofferdam-root-key"));
    for needed in
        ["runAsNonRoot: true", "readOnlyRootFilesystem: true", "drop: [\"ALL\"]", "type: RuntimeDefault"]
    {
        assert!(pod.contains(needed), "{needed}");
    }
}

#[test]
fn the_image_and_the_pod_run_as_the_same_user() {
    let image = read("Dockerfile");
    let user = after(&image, "USER ")[0].split(':').next().unwrap();
    let pod = read("kubernetes/statefulset.yaml");
    for key in ["runAsUser:", "runAsGroup:", "fsGroup:"] {
        assert_eq!(after(&pod, key), [user]);
    }
    assert!(image.contains("CMD [\"/usr/local/bin/cofferdam\", \"health\"]"));
}

/// The program of these tests has debug assertions, and with them the search for secrets that ends the process. The
/// profiles that are shipped have none.
#[test]
fn a_program_for_tests_is_not_packed() {
    let directory = tempfile::tempdir().unwrap();
    let mut packing = std::process::Command::new("bash");
    packing.arg(deploy("release.sh")).arg(env!("CARGO_BIN_EXE_cofferdam")).arg(directory.path());
    let output = packing.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("is a build for tests"), "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let manifest: toml::Table = toml::from_str(&read("../Cargo.toml")).unwrap();
    for profile in ["release", "dist"] {
        let settings = manifest["profile"][profile].as_table().unwrap();
        assert!(!settings.contains_key("debug-assertions"), "{profile}");
    }
}
