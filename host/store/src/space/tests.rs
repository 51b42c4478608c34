use super::*;

const MIN: u64 = 256 * 1024 * 1024;

fn state() -> DiskState {
    DiskState { free_bytes_min: MIN, is_short: false, has_reserve: false, is_told: false }
}

#[test]
fn the_reserve_is_made_deleted_when_needed_and_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reserve");
    let mut state = state();
    // Free bytes, whether that counts as short of space, and whether there is a reserve afterwards.
    for (free, is_short, has_reserve) in [
        (MIN + RESERVE_BYTES - 1, false, false),
        (MIN + RESERVE_BYTES, false, true),
        (MIN, false, true),
        (MIN - 1, true, true),
        (NEED_BYTES, true, true),
        (NEED_BYTES - 1, true, false),
        (NEED_BYTES - 1 + RESERVE_BYTES, true, false),
        (MIN, false, false),
        (MIN + RESERVE_BYTES, false, true),
        (0, true, false),
    ] {
        state.update(free, folder.path());
        assert_eq!((state.is_short, state.has_reserve), (is_short, has_reserve), "{free}");
        assert_eq!(is_reserve(&path), has_reserve, "{free}");
        assert_eq!(path.exists(), has_reserve, "{free}");
    }
}

#[test]
fn the_reserve_has_blocks_and_length_zero_and_an_empty_file_gets_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reserve");
    std::fs::write(&path, "").unwrap();
    assert!(!is_reserve(&path));
    make(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    assert!(is_reserve(&path) && DiskSpace::new(folder.path()).state.into_inner().unwrap().has_reserve);
}

#[test]
fn without_a_limit_nothing_is_short_and_there_is_no_reserve() {
    let folder = tempfile::tempdir().unwrap();
    let space = DiskSpace::new(folder.path());
    assert!(!space.look());
    space.set_free_bytes_min(u64::MAX);
    assert!(space.look());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    space.set_free_bytes_min(0);
    assert!(!space.look());
}
