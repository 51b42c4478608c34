use proptest::prelude::*;

use super::*;
use crate::ids::StoreId;

fn keys() -> StoreKeys {
    StoreKeys::random(StoreId::random().unwrap()).unwrap()
}

fn slot(seq: u64) -> AnchorSlot {
    AnchorSlot { seq, head: [seq as u8 + 1; 32] }
}

fn bytes_of(keys: &StoreKeys, seq: u64) -> [u8; SLOT_BYTES] {
    encode(keys, slot(seq)).try_into().unwrap()
}

#[test]
fn the_newer_of_two_slots_is_read() {
    let keys = keys();
    let slots = [bytes_of(&keys, 8), bytes_of(&keys, 7)];
    assert_eq!(newest(&keys, &slots), AnchorContent::Slot(slot(8)));
    let slots = [bytes_of(&keys, 8), bytes_of(&keys, 9)];
    assert_eq!(newest(&keys, &slots), AnchorContent::Slot(slot(9)));
}

#[test]
fn a_slot_torn_at_any_byte_leaves_the_other_one() {
    let keys = keys();
    for (torn, older, newer) in [(0, 8, 10), (1, 7, 9)] {
        let before = bytes_of(&keys, older);
        let after = bytes_of(&keys, newer);
        for written in 0..=SLOT_BYTES {
            let mut slots = [bytes_of(&keys, newer - 1); 2];
            slots[torn] = before;
            slots[torn][..written].copy_from_slice(&after[..written]);
            let expected = match written {
                0 => newer - 1,
                _ if slots[torn] == after => newer,
                _ => newer - 1,
            };
            assert_eq!(
                newest(&keys, &slots),
                AnchorContent::Slot(slot(expected)),
                "slot {torn}, {written} bytes"
            );
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_loses_only_its_own_slot() {
    let keys = keys();
    for at in 0..SLOT_BYTES {
        let mut slots = [bytes_of(&keys, 8), bytes_of(&keys, 9)];
        slots[1][at] ^= 0x10;
        assert_eq!(newest(&keys, &slots), AnchorContent::Slot(slot(8)), "byte {at}");
    }
}

#[test]
fn slots_of_another_store_are_distinguished_from_no_slots() {
    let (ours, other) = (keys(), keys());
    assert_eq!(newest(&ours, &[bytes_of(&other, 8), bytes_of(&other, 9)]), AnchorContent::OtherStore);
    assert_eq!(newest(&ours, &[[0; SLOT_BYTES]; 2]), AnchorContent::Nothing);
}

#[test]
fn writes_alternate_and_read_back() {
    let keys = keys();
    let folder = tempfile::tempdir().unwrap();
    let anchor = Anchor::create(&folder.path().join("anchor")).unwrap();
    for seq in 1..6 {
        anchor.write(&keys, slot(seq)).unwrap();
        assert_eq!(anchor.read(&keys).unwrap(), AnchorContent::Slot(slot(seq)));
    }
    assert_eq!(std::fs::metadata(folder.path().join("anchor")).unwrap().len(), 8192);
}

#[test]
fn a_file_cut_short_keeps_the_slot_that_is_left() {
    let keys = keys();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("anchor");
    let anchor = Anchor::create(&path).unwrap();
    anchor.write(&keys, slot(4)).unwrap();
    anchor.write(&keys, slot(5)).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap();
    assert_eq!(anchor.read(&keys).unwrap(), AnchorContent::Slot(slot(5)));
    OpenOptions::new().write(true).open(&path).unwrap().set_len(4100).unwrap();
    assert_eq!(anchor.read(&keys).unwrap(), AnchorContent::Slot(slot(4)));
}

proptest! {
    #[test]
    fn foreign_bytes_are_not_read_as_a_slot(bytes in proptest::collection::vec(any::<u8>(), SLOT_BYTES)) {
        let keys = keys();
        prop_assert!(!matches!(decode(&keys, &bytes.try_into().unwrap()), AnchorContent::Slot(_)));
    }
}
