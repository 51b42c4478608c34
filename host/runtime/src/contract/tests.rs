use super::*;

/// What is said of a component that imports `member` of the interface `import`.
fn import(import: &str, member: &str) -> Result<Option<String>, String> {
    let text = format!("(component (import {import:?} (instance (export {member:?} (func)))))");
    let declared = Declared::read(&wat::parse_str(text).unwrap()).unwrap();
    inspect_import(&declared, import, ContractLine::newest()).map_err(|error| error.to_string())
}

#[test]
fn only_wasi_0_2_may_be_imported_besides_the_contract() {
    assert_eq!(import("wasi:cli/types@0.2.9", "f"), Ok(None));
    for foreign in ["wasi:http/types@0.2.0", "wasi:cli/types@0.3.0", "acme:disk/types"] {
        let message = import(foreign, "f").unwrap_err();
        let (package, _) = foreign.split_once('@').unwrap_or((foreign, ""));
        assert!(message.starts_with(&format!("imports {package}, which no plugin gets")), "{message}");
    }
}

#[test]
fn errors_name_imports_that_the_host_lacks() {
    let message = import("cofferdam:plugin/kv@0.1.0", "get").unwrap_err();
    assert!(message.ends_with("this host has no interface kv"), "{message}");
    let message = import("cofferdam:plugin/clock@0.1.0", "sleep").unwrap_err();
    assert!(message.ends_with("interface clock: this host has no function sleep"), "{message}");
    let message = import("greet", "f").unwrap_err();
    assert_eq!(message, "imports \"greet\", which no host interface has");
}

#[test]
fn findings_can_be_read_back() {
    let finding = Finding {
        version: "0.1.0".to_owned(),
        exports: [Export::Dialect, Export::Generation].into(),
        imports: ["http".to_owned()].into(),
    };
    let bytes = serde_json::to_vec(&finding).unwrap();
    assert_eq!(serde_json::from_slice::<Finding>(&bytes).unwrap(), finding);
    assert_eq!(finding.used(), [Import::Http].into());
}

#[test]
fn an_interface_belongs_to_the_import_that_includes_it() {
    let used = |interface: &str| {
        let (exports, imports) = ([Export::Tools].into(), [interface.to_owned()].into());
        Finding { version: "0.1.0".to_owned(), exports, imports }.used()
    };
    assert_eq!(used("model-panel"), [Import::Model].into());
    assert_eq!(used("model"), [Import::Model].into());
    assert!(used("telepathy").is_empty());
    for import in Import::ALL {
        assert_eq!(import.interfaces().first(), Some(&import.as_str()));
    }
}

proptest::proptest! {
    #[test]
    fn checking_arbitrary_bytes_never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
        assert!(check(&bytes, ContractLine::SERVED).is_err());
        let mut component = b"\0asm\x0d\0\x01\0".to_vec();
        component.extend(bytes);
        drop(check(&component, ContractLine::SERVED));
    }
}
