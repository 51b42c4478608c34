//! Pages below `docs/` with a part that is made from the code. `just docs` writes these parts, a test of each
//! compares them. The library's own tests use this module too, for what only they can see.

use std::path::Path;

const BEGIN: &str = "<!-- generated -->\n";
const END: &str = "<!-- /generated -->";

/// Compares the generated part of `docs/PAGE` with the code, or writes it when `COFFERDAM_DOCS` is `write`.
pub(crate) fn check(page: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let parts = text.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let (head, tail) = parts.unwrap_or_else(|| panic!("docs/{page} has no markers: {BEGIN}{END}"));
    let current = format!("{head}{BEGIN}\n{}\n\n{END}{tail}", generated.trim());
    if std::env::var("COFFERDAM_DOCS").as_deref() == Ok("write") {
        std::fs::write(&path, current).unwrap();
    } else {
        assert!(text == current, "docs/{page} differs from the code: run `just docs`");
    }
}
