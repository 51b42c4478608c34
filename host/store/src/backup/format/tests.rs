use proptest::prelude::*;

use super::*;
use crate::root_key::RootKey;

type Rows = Vec<(usize, Vec<u8>, Vec<u8>)>;

fn preamble() -> Preamble {
    let root_key = RootKey::random().unwrap().id();
    Preamble { store: StoreId::random().unwrap(), made_at_ms: 7, root_key, seq: 9, head: [3; 32] }
}

fn seal(rows: u64, digest: &Digest) -> Digest {
    let mut mac = *digest;
    mac[0] ^= rows as u8;
    mac
}

fn written(preamble: &Preamble, rows: &Rows) -> Vec<u8> {
    let mut writer = BackupWriter::begin(Vec::new(), preamble).unwrap();
    for (keyspace, key, value) in rows {
        writer.row(*keyspace, key, value).unwrap();
    }
    writer.end(seal).unwrap()
}

/// Preamble and rows of a backup, if its seal is valid.
fn parsed(bytes: &[u8]) -> Result<(Preamble, Rows), FormatError> {
    let (mut preamble, mut rows, mut sealed) = (None, Vec::new(), false);
    read(bytes, |part| {
        match part {
            BackupPart::Preamble(found) => preamble = Some(found),
            BackupPart::Row { keyspace, key, value } => rows.push((keyspace, key, value)),
            BackupPart::End(end) => sealed = end.mac == seal(end.rows, &end.digest),
        }
        Ok::<_, FormatError>(())
    })?;
    if sealed { Ok((preamble.unwrap(), rows)) } else { Err(FormatError::End) }
}

fn sample() -> (Preamble, Rows) {
    let rows = vec![
        (0, b"a".to_vec(), b"1".to_vec()),
        (0, b"b".to_vec(), Vec::new()),
        (2, b"a".to_vec(), vec![7; 300]),
        (3, b"L".to_vec(), b"x".to_vec()),
    ];
    (preamble(), rows)
}

#[test]
fn every_flipped_bit_and_every_truncation_is_detected() {
    let (preamble, rows) = sample();
    let whole = written(&preamble, &rows);
    assert_eq!(parsed(&whole).unwrap(), (preamble, rows));
    for at in 0..whole.len() {
        for bit in [0x01, 0x80] {
            let mut flipped = whole.clone();
            flipped[at] ^= bit;
            assert!(parsed(&flipped).is_err(), "byte {at}");
        }
        assert!(parsed(&whole[..at]).is_err(), "cut at {at}");
    }
    let longer = [whole.as_slice(), b"x"].concat();
    assert!(matches!(parsed(&longer), Err(FormatError::Trailing)));
}

#[test]
fn rows_out_of_order_or_twice_are_refused() {
    let (preamble, rows) = sample();
    for order in [[1, 0], [0, 0], [2, 1], [3, 2]] {
        let moved: Rows = order.iter().map(|index| rows[*index].clone()).collect();
        assert!(matches!(parsed(&written(&preamble, &moved)), Err(FormatError::Order)), "{order:?}");
    }
}

#[test]
fn an_excessive_length_is_refused_before_its_bytes_are_read() {
    let huge = |key: u32, value: u32| {
        [MAGIC.as_slice(), &[PREAMBLE], &key.to_be_bytes(), &value.to_be_bytes()].concat()
    };
    assert!(matches!(parsed(&huge(u32::MAX, 0)), Err(FormatError::Length)));
    assert!(matches!(parsed(&huge(0, u32::MAX)), Err(FormatError::Length)));
    assert!(matches!(parsed(&huge(0, VALUE_BYTES_MAX)), Err(FormatError::Truncated)));
}

fn rows() -> impl Strategy<Value = Rows> {
    let row =
        (0..4_usize, prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..200));
    prop::collection::btree_map((row.0, row.1), row.2, 0..20)
        .prop_map(|rows| rows.into_iter().map(|((keyspace, key), value)| (keyspace, key, value)).collect())
}

proptest! {
    #[test]
    fn what_is_written_reads_back(rows in rows()) {
        let preamble = preamble();
        prop_assert_eq!(parsed(&written(&preamble, &rows)).unwrap(), (preamble, rows));
    }

    #[test]
    fn foreign_bytes_are_refused_as_a_backup(bytes: Vec<u8>) {
        prop_assert!(parsed(&bytes).is_err());
        let begun = [MAGIC.as_slice(), &bytes].concat();
        prop_assert!(parsed(&begun).is_err());
    }

    #[test]
    fn a_spliced_backup_is_refused(rows in rows(), other in rows(), at in 0..1_usize << 16, from in 0..1_usize << 16) {
        let preamble = preamble();
        let (left, right) = (written(&preamble, &rows), written(&preamble, &other));
        let spliced = [&left[..at % left.len()], &right[from % right.len()..]].concat();
        if let Ok((_, found)) = parsed(&spliced) {
            prop_assert!(spliced == left || spliced == right, "{found:?}");
        }
    }
}
