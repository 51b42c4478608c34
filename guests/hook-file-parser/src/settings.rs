//! The settings in the request's plugin entry and in the operator's configuration.

use serde::Deserialize;

/// The default and the limit for the text of all files of one request, in characters (Unicode scalar
/// values).
const CHARS: usize = 1_000_000;
const CHARS_MAX: usize = 4_000_000;

/// The engine that reads PDF files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// This guest extracts the text.
    Text,
    /// The endpoint reads the file itself.
    Native,
}

impl Engine {
    /// The engine of a plugin entry; this guest when the entry names none.
    ///
    /// # Errors
    ///
    /// When there is no such engine. The message starts with the plugin's id, which the host
    /// replaces by the path of the entry.
    pub(crate) fn of(entry: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Entry {
            pdf: Option<Pdf>,
        }
        #[derive(Deserialize)]
        struct Pdf {
            engine: Option<String>,
        }
        let entry: Entry = serde_json::from_slice(entry)
            .map_err(|_| "file-parser must be an object as the interface has it".to_owned())?;
        match entry.pdf.and_then(|pdf| pdf.engine).as_deref() {
            // `pdf-text` is an older name of the same engine.
            None | Some("cloudflare-ai" | "pdf-text") => Ok(Self::Text),
            Some("native") => Ok(Self::Native),
            Some("mistral-ocr") => {
                Err("file-parser.pdf.engine \"mistral-ocr\" is not available on this host: \
                take cloudflare-ai, which reads the text of a PDF, or native, which leaves it to the model"
                    .to_owned())
            }
            Some(_) => {
                Err("file-parser.pdf.engine must be one of cloudflare-ai, pdf-text, native".to_owned())
            }
        }
    }
}

/// `[plugins.hook-file-parser.config]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operator {
    pub(crate) chars_max: usize,
}

impl Operator {
    /// # Errors
    ///
    /// What is wrong, for the operator.
    pub(crate) fn read(json: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Written {
            max_characters: Option<usize>,
        }
        let written: Written = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let chars_max = written.max_characters.unwrap_or(CHARS);
        if !(1..=CHARS_MAX).contains(&chars_max) {
            return Err(format!("max_characters takes 1 to {CHARS_MAX}"));
        }
        Ok(Self { chars_max })
    }
}

#[cfg(test)]
mod tests {
    use super::{Engine, Operator};

    #[test]
    fn engines_are_known_by_name() {
        let cases = [
            ("{}", Ok(Engine::Text)),
            (r#"{"id":"file-parser","pdf":{}}"#, Ok(Engine::Text)),
            (r#"{"pdf":{"engine":null}}"#, Ok(Engine::Text)),
            (r#"{"pdf":{"engine":"cloudflare-ai"}}"#, Ok(Engine::Text)),
            (r#"{"pdf":{"engine":"pdf-text"}}"#, Ok(Engine::Text)),
            (r#"{"pdf":{"engine":"native"}}"#, Ok(Engine::Native)),
            (
                r#"{"pdf":{"engine":"mistral-ocr"}}"#,
                Err("file-parser.pdf.engine \"mistral-ocr\" is not available"),
            ),
            (r#"{"pdf":{"engine":"x"}}"#, Err("file-parser.pdf.engine must be one of")),
            ("7", Err("file-parser must be an object")),
        ];
        for (entry, expected) in cases {
            match (Engine::of(entry.as_bytes()), expected) {
                (Err(message), Err(expected)) => assert!(message.starts_with(expected), "{message}"),
                (engine, expected) => assert_eq!(engine, expected.map_err(str::to_owned), "{entry}"),
            }
        }
    }

    #[test]
    fn the_operator_sets_how_much_text_there_is() {
        assert_eq!(Operator::read(b"{}"), Ok(Operator { chars_max: 1_000_000 }));
        assert_eq!(Operator::read(b"{\"max_characters\":5}"), Ok(Operator { chars_max: 5 }));
        assert_eq!(
            Operator::read(b"{\"max_characters\":0}"),
            Err("max_characters takes 1 to 4000000".to_owned())
        );
        assert!(Operator::read(b"{\"max_chars\":5}").unwrap_err().starts_with("unknown field `max_chars`"));
    }
}
