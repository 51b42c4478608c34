//! Finds out how large a document becomes when its streams are unpacked, without keeping the unpacked
//! bytes. The library that reads documents unpacks without a limit, and ten kilobytes can become ten
//! megabytes a thousand times.
//!
//! Pictures are not checked, because the library does not unpack them for text. Streams of encrypted
//! documents and filters other than Flate are not checked here either. For all of them, and for other
//! streams that call themselves pictures, the memory limit of the sandbox applies.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_PARSE_ZLIB_HEADER};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

/// The largest unpacked size of one stream, and of all streams together, in bytes.
const STREAM_BYTES_MAX: usize = 16 * 1024 * 1024;
const TOTAL_BYTES_MAX: usize = 48 * 1024 * 1024;
/// The window size of Deflate. Unpacked bytes are written into it as into a ring buffer.
const WINDOW_BYTES: usize = 32 * 1024;
/// How far before the keyword `stream` its dictionary is searched for, in bytes.
const DICTIONARY_BYTES_MAX: usize = 1024;

/// Checks all Flate streams of a document.
///
/// # Errors
///
/// When the document would become too large; the message is for the model.
pub(crate) fn check(document: &[u8]) -> Result<(), &'static str> {
    let mut window = vec![0; WINDOW_BYTES];
    let mut total = Unpacked::default();
    let mut rest = document;
    while let Some(start) = find(rest, b"stream") {
        let (before, tail) = rest.split_at(start);
        rest = tail.get(b"stream".len()..).unwrap_or_default();
        let data = rest.strip_prefix(b"\r\n").or_else(|| rest.strip_prefix(b"\n"));
        let Some(data) = data.filter(|_| !before.ends_with(b"end")) else { continue };
        let from = before.len().saturating_sub(DICTIONARY_BYTES_MAX);
        let near = before.get(from..).unwrap_or(before);
        let dictionary = last_dictionary(near);
        if is_picture(dictionary) {
            continue;
        }
        match flate_filters(dictionary) {
            0 => continue,
            1 => total.add(data, &mut window),
            _ => return Err("The PDF packs its content several times over and is not read."),
        }
        if total.written > TOTAL_BYTES_MAX {
            return Err("The PDF is too large to read once it is unpacked.");
        }
        // Streams normally do not overlap. Overlapping streams exist only to confuse readers.
        if total.read > document.len().saturating_mul(2) {
            return Err("The PDF is damaged and cannot be read.");
        }
    }
    Ok(())
}

/// The last dictionary before a stream, or its end if it is long.
fn last_dictionary(near: &[u8]) -> &[u8] {
    let start = near.windows(4).rposition(|window| window == b" obj").unwrap_or(0);
    near.get(start..).unwrap_or_default()
}

/// Whether a dictionary says that its stream is a picture.
fn is_picture(dictionary: &[u8]) -> bool {
    let key = b"/Subtype";
    dictionary.windows(key.len()).enumerate().filter(|(_, window)| window == key).any(|(at, _)| {
        let value = dictionary.get(at + key.len()..).unwrap_or_default().trim_ascii_start();
        let rest = value.strip_prefix(b"/Image");
        rest.and_then(<[u8]>::first)
            .is_some_and(|next| next.is_ascii_whitespace() || b"/>[(<%".contains(next))
    })
}

/// How often a dictionary names Flate.
fn flate_filters(dictionary: &[u8]) -> usize {
    let full = dictionary.windows(11).filter(|window| *window == b"FlateDecode").count();
    // The short name is meant for inline images, but readers accept it everywhere.
    let is_short = |window: &&[u8]| matches!(window, [b'/', b'F', b'l', end] if !end.is_ascii_alphanumeric());
    full + dictionary.windows(4).filter(is_short).count()
}

/// The number of bytes of all streams so far.
#[derive(Default)]
struct Unpacked {
    read: usize,
    written: usize,
}

impl Unpacked {
    /// Adds one stream. A stream larger than its limit is counted as larger than the total limit. A
    /// stream without the usual header is unpacked as raw Deflate.
    fn add(&mut self, data: &[u8], window: &mut [u8]) {
        let has_header = match data {
            [method, flags, ..] => method & 0x0f == 8 && u16::from_be_bytes([*method, *flags]) % 31 == 0,
            _ => false,
        };
        let mut decompressor = Box::<DecompressorOxide>::default();
        let flags = TINFL_FLAG_HAS_MORE_INPUT | if has_header { TINFL_FLAG_PARSE_ZLIB_HEADER } else { 0 };
        let (mut input, mut position, mut stream) = (data, 0, 0);
        loop {
            let (status, read, written) = decompress(&mut decompressor, input, window, position, flags);
            input = input.get(read..).unwrap_or_default();
            position = (position + written) % WINDOW_BYTES;
            stream += written;
            self.read += read;
            if stream > STREAM_BYTES_MAX {
                stream = TOTAL_BYTES_MAX + 1;
                break;
            }
            if status != TINFLStatus::HasMoreOutput || (read == 0 && written == 0) {
                break;
            }
        }
        self.written += stream;
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
