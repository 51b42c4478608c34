//! How large a document becomes when its streams are unpacked, found out without
//! keeping any of it. The library that reads documents unpacks without a limit,
//! and ten kilobytes can become ten megabytes a thousand times.
//!
//! What this does not see (streams of encrypted documents, other filters than
//! Flate) ends at the sandbox's own limit of memory.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_PARSE_ZLIB_HEADER};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

/// Largest stream, and all of them together.
const STREAM_BYTES_MAX: usize = 16 * 1024 * 1024;
const TOTAL_BYTES_MAX: usize = 48 * 1024 * 1024;
/// A window of the format; unpacked bytes are written round and round in it.
const WINDOW_BYTES: usize = 32 * 1024;
/// How far before `stream` its dictionary is looked for.
const DICTIONARY_BYTES_MAX: usize = 1024;

/// Checks all Flate streams of a document.
///
/// # Errors
///
/// It would become too large; the model is told so.
pub(crate) fn check(document: &[u8]) -> Result<(), &'static str> {
    let mut window = vec![0; WINDOW_BYTES];
    let mut total = 0;
    let mut rest = document;
    let mut before: &[u8] = &[];
    while let Some(start) = find(rest, b"stream") {
        let (head, tail) = rest.split_at(start);
        rest = tail.get(b"stream".len()..).unwrap_or_default();
        let dictionary = if head.is_empty() { before } else { head };
        before = head;
        // `endstream` is found as well, and has no line break and data behind it.
        let Some(data) = rest.strip_prefix(b"\r\n").or_else(|| rest.strip_prefix(b"\n")) else { continue };
        if dictionary.ends_with(b"end") {
            continue;
        }
        let dictionary =
            dictionary.get(dictionary.len().saturating_sub(DICTIONARY_BYTES_MAX)..).unwrap_or(dictionary);
        if is_chained(dictionary) {
            return Err("The PDF packs its content several times over and is not read.");
        }
        total += unpacked_bytes(data, &mut window);
        if total > TOTAL_BYTES_MAX {
            return Err("The PDF is too large to read once it is unpacked.");
        }
    }
    Ok(())
}

/// Whether the last dictionary before a stream names Flate twice.
fn is_chained(before: &[u8]) -> bool {
    let start = before.windows(4).rposition(|window| window == b" obj").unwrap_or(0);
    let dictionary = before.get(start..).unwrap_or_default();
    let full = dictionary.windows(11).filter(|window| *window == b"FlateDecode").count();
    let short = dictionary
        .windows(4)
        .filter(|window| *window == b"/Fl " || *window == b"/Fl]" || *window == b"/Fl/")
        .count();
    full + short > 1
}

/// What a stream unpacks to, in bytes; beyond the largest allowed, more than all
/// together may have. Zero if it is not packed this way.
fn unpacked_bytes(data: &[u8], window: &mut [u8]) -> usize {
    let zlib = matches!(data, [method, flags, ..] if method & 0x0f == 8 && (usize::from(*method) << 8 | usize::from(*flags)) % 31 == 0);
    if !zlib {
        return 0;
    }
    let mut decompressor = Box::<DecompressorOxide>::default();
    let flags = TINFL_FLAG_PARSE_ZLIB_HEADER | TINFL_FLAG_HAS_MORE_INPUT;
    let (mut input, mut position, mut sum) = (data, 0, 0);
    loop {
        let (status, read, written) = decompress(&mut decompressor, input, window, position, flags);
        input = input.get(read..).unwrap_or_default();
        sum += written;
        position = (position + written) % WINDOW_BYTES;
        if sum > STREAM_BYTES_MAX {
            return TOTAL_BYTES_MAX + 1;
        }
        if status != TINFLStatus::HasMoreOutput || (read == 0 && written == 0) {
            return sum;
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
