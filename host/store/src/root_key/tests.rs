use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn key_file(content: &[u8], mode: u32) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    (folder, path)
}

fn load(path: &Path) -> Result<RootKeyId, RootKeyError> {
    read(&RootKeySource::File(path.to_owned()), None).map(|key| key.id())
}

fn read(source: &RootKeySource, stretching: Option<&Stretching>) -> Result<RootKey, RootKeyError> {
    source.read()?.to_key(stretching)
}

fn load_text(content: &[u8]) -> Result<RootKeyId, RootKeyError> {
    let (_folder, path) = key_file(content, 0o600);
    load(&path)
}

#[test]
fn every_spelling_of_a_key_is_the_same_key() {
    let raw: Vec<u8> = (0..32).collect();
    let id = RootKey::from_bytes(&raw).unwrap().id();
    let spellings = [
        HEX,
        &format!("{HEX}\n"),
        &HEX.to_uppercase(),
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
    ];
    for spelling in spellings {
        assert_eq!(load_text(spelling.as_bytes()).unwrap(), id, "{spelling:?}");
    }
    assert_eq!(load_text(&raw).unwrap(), id);
}

#[test]
fn keys_that_do_not_look_random_are_refused() {
    assert!(matches!(load_text(&[b'0'; 64]), Err(RootKeyError::LowDiversity)));
    assert!(matches!(load_text(b"correct horse battery staple ok!"), Err(RootKeyError::LooksLikeText)));
    assert!(matches!(load_text(&HEX.as_bytes()[..62]), Err(RootKeyError::WrongLength { bytes: 31 })));
    assert!(matches!(load_text(format!("{HEX}00").as_bytes()), Err(RootKeyError::WrongLength { bytes: 33 })));
    assert!(matches!(load_text(b""), Err(RootKeyError::WrongLength { bytes: 0 })));
    assert!(matches!(
        load_text(b"not a key at all"),
        Err(RootKeyError::NotAKey | RootKeyError::WrongLength { .. })
    ));
    assert!(matches!(load_text(format!("{HEX} ").as_bytes()), Err(RootKeyError::NotAKey)));
}

#[test]
fn files_that_others_could_have_read_or_replaced_are_refused() {
    for mode in [0o640, 0o604, 0o660, 0o700, 0o4600] {
        let (_folder, path) = key_file(HEX.as_bytes(), mode);
        assert!(matches!(load(&path), Err(RootKeyError::TooOpen { .. })), "{mode:o}");
    }
    let (folder, path) = key_file(HEX.as_bytes(), 0o400);
    assert!(load(&path).is_ok());
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(matches!(load(&link), Err(RootKeyError::Symlink(_))));
    assert!(matches!(load(folder.path()), Err(RootKeyError::NotAFile(_))));
    assert!(matches!(load(&folder.path().join("none")), Err(RootKeyError::Missing(_))));
}

#[test]
fn a_missing_key_file_is_created_once_and_then_kept() {
    let folder = tempfile::tempdir().unwrap();
    let source = RootKeySource::File(folder.path().join("key"));
    let made = source.read_or_make().unwrap().id().unwrap();
    assert_eq!(source.read_or_make().unwrap().id().unwrap(), made);
    assert_eq!(read(&source, None).unwrap().id(), made);
    let metadata = std::fs::metadata(folder.path().join("key")).unwrap();
    assert_eq!((metadata.len(), metadata.permissions().mode() & 0o777), (65, 0o600));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the key");
}

#[test]
fn only_key_files_are_created() {
    let variable = RootKeySource::Env(Variable::named("COFFERDAM_STORE_TEST_UNSET"));
    assert!(matches!(variable.read_or_make(), Err(RootKeyError::NotSet(_))));
    assert!(matches!(RootKeySource::Fd(9_999).read_or_make(), Err(RootKeyError::Unreadable { .. })));
}

#[test]
fn a_key_is_read_from_an_inherited_descriptor() {
    use std::os::fd::AsRawFd;
    let (_folder, path) = key_file(HEX.as_bytes(), 0o600);
    let file = std::fs::File::open(path).unwrap();
    assert!(RootKeySource::Fd(file.as_raw_fd()).read().is_ok());
}

#[test]
fn a_passphrase_gives_the_same_key_with_the_same_salt_only() {
    let (_folder, path) = key_file(b"correct horse battery staple\n", 0o600);
    let source = RootKeySource::Passphrase { from: PassphraseSource::File(path) };
    let (key, stretching) = source.read_or_make().unwrap().to_new_key().unwrap();
    let stretching = stretching.unwrap();
    assert_eq!(read(&source, Some(&stretching)).unwrap().id(), key.id());
    let other = Stretching::random().unwrap();
    assert_ne!(read(&source, Some(&other)).unwrap().id(), key.id());
    let expected = RootKeyError::OtherKind { store_has_passphrase: false };
    assert_eq!(read(&source, None).err().unwrap().to_string(), expected.to_string());

    let (_folder, path) = key_file(b"too short", 0o600);
    let source = RootKeySource::Passphrase { from: PassphraseSource::File(path) };
    let short = source.read().unwrap().to_new_key();
    assert!(matches!(short, Err(RootKeyError::PassphraseTooShort { bytes: 9 })));
}

#[test]
fn material_converts_to_text_and_back_and_its_debug_shows_nothing() {
    for text in [HEX, "passphrase 636f727265637420686f727365e9"] {
        let material = RootKeyMaterial::parse(text).unwrap();
        assert_eq!(*material.expose(), text);
        assert_eq!(format!("{material:?}"), "RootKeyMaterial(..)");
    }
    assert!(RootKeyMaterial::parse("neither").is_err());
}

#[test]
fn sources_are_parsed_or_refused() {
    let cases = [
        ("file:/a:b", Ok(RootKeySource::File("/a:b".into()))),
        ("env:KEY", Ok(RootKeySource::Env(Variable::named("KEY")))),
        ("fd:3", Ok(RootKeySource::Fd(3))),
        (
            "passphrase:env:P",
            Ok(RootKeySource::Passphrase { from: PassphraseSource::Env(Variable::named("P")) }),
        ),
        ("fd:1", Err(SourceError::NotADescriptor)),
        ("fd:-1", Err(SourceError::NotADescriptor)),
        ("fd:x", Err(SourceError::NotADescriptor)),
        ("file:", Err(SourceError::Empty)),
        ("data/root.key", Err(SourceError::UnknownScheme)),
        ("keyring:x", Err(SourceError::UnknownScheme)),
        ("passphrase:", Err(SourceError::NoPassphraseSource)),
        ("passphrase:passphrase:env:P", Err(SourceError::NoPassphraseSource)),
    ];
    for (text, expected) in cases {
        assert_eq!(text.parse(), expected, "{text}");
        if let Ok(source) = text.parse::<RootKeySource>() {
            assert_eq!(source.to_string(), text);
        }
    }
}

proptest! {
    #[test]
    fn a_source_that_parses_prints_as_it_was_given(text in "(file|env|fd|passphrase|x)?:?(file|env|fd)?:?\\PC{0,12}") {
        if let Ok(source) = text.parse::<RootKeySource>() {
            let printed = source.to_string();
            prop_assert_eq!(printed.parse::<RootKeySource>(), Ok(source));
        }
    }
}

#[test]
fn a_removed_variable_is_read_from_memory() {
    let mut source: RootKeySource = "env:COFFERDAM_TEST_KEY_THAT_IS_NOT_SET".parse().unwrap();
    assert!(matches!(source.read(), Err(RootKeyError::NotSet(_))));
    let key = RootKey::random().unwrap();
    source.take_variable(|name| {
        assert_eq!(name, "COFFERDAM_TEST_KEY_THAT_IS_NOT_SET");
        Some(key.to_hex().to_string())
    });
    assert_eq!(source.clone().read().unwrap().id(), Some(key.id()));
    assert_eq!(source.to_string(), "env:COFFERDAM_TEST_KEY_THAT_IS_NOT_SET");
    assert!(!format!("{source:?}").contains(key.to_hex().as_str()));
    let mut file: RootKeySource = "file:k".parse().unwrap();
    file.take_variable(|_| panic!("a file is no variable"));
}
