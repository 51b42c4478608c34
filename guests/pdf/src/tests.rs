use std::fmt::Write;

use miniz_oxide::deflate::{compress_to_vec, compress_to_vec_zlib};
use proptest::prelude::*;

use super::interpret::Budget;
use super::{Document, read, read_within};

/// Builds documents object by object.
struct Builder {
    bytes: Vec<u8>,
    offsets: Vec<usize>,
    trailer: String,
}

impl Builder {
    fn new() -> Self {
        Self { bytes: b"%PDF-1.7\n".to_vec(), offsets: Vec::new(), trailer: String::new() }
    }

    /// Adds an object and returns its number, counted from 1.
    fn object(&mut self, content: &str) -> usize {
        self.begin();
        self.bytes.extend_from_slice(content.as_bytes());
        self.bytes.extend_from_slice(b"\nendobj\n");
        self.offsets.len()
    }

    fn stream(&mut self, entries: &str, data: &[u8]) -> usize {
        self.begin();
        let head = format!("<< {entries} /Length {} >>\nstream\n", data.len());
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(data);
        self.bytes.extend_from_slice(b"\nendstream\nendobj\n");
        self.offsets.len()
    }

    fn packed(&mut self, entries: &str, data: &[u8]) -> usize {
        self.stream(&format!("{entries} /Filter /FlateDecode"), &compress_to_vec_zlib(data, 1))
    }

    fn begin(&mut self) {
        self.offsets.push(self.bytes.len());
        let head = format!("{} 0 obj\n", self.offsets.len());
        self.bytes.extend_from_slice(head.as_bytes());
    }

    /// The document with pages of these contents, all with the font of object `font`.
    fn pages(mut self, contents: &[usize], resources: &str) -> Vec<u8> {
        let first = self.offsets.len() + 1;
        let parent = first + contents.len();
        for content in contents {
            self.object(&format!(
                "<< /Type /Page /Parent {parent} 0 R /MediaBox [0 0 600 800] /Contents {content} 0 R \
                 /Resources << {resources} >> >>"
            ));
        }
        let kids: String = (first..parent).map(|number| format!("{number} 0 R ")).collect();
        self.object(&format!("<< /Type /Pages /Kids [{kids}] /Count {} >>", contents.len()));
        let catalog = self.object(&format!("<< /Type /Catalog /Pages {parent} 0 R >>"));
        self.finish(catalog)
    }

    fn finish(mut self, catalog: usize) -> Vec<u8> {
        let start = self.bytes.len();
        let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", self.offsets.len() + 1);
        for offset in &self.offsets {
            writeln!(table, "{offset:010} 00000 n ").unwrap();
        }
        let size = self.offsets.len() + 1;
        let trailer = &self.trailer;
        write!(
            table,
            "trailer\n<< /Size {size} /Root {catalog} 0 R {trailer} >>\nstartxref\n{start}\n%%EOF\n"
        )
        .unwrap();
        self.bytes.extend_from_slice(table.as_bytes());
        self.bytes
    }
}

const HELVETICA: &str = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>";

/// A document with one page in Helvetica.
fn one_page(content: &str) -> Vec<u8> {
    let mut builder = Builder::new();
    let font = builder.object(HELVETICA);
    let content = builder.packed("", content.as_bytes());
    builder.pages(&[content], &format!("/Font << /F1 {font} 0 R >>"))
}

fn page(document: &[u8]) -> Document {
    read(document, 100_000).unwrap()
}

fn text(content: &str) -> String {
    page(&one_page(content)).text
}

#[test]
fn words_lines_and_paragraphs_follow_the_places() {
    assert_eq!(text("BT /F1 12 Tf 50 700 Td (Hello, w\\366rld.) Tj ET"), "Hello, wörld.");
    let lines =
        "BT /F1 12 Tf 14 TL 50 700 Td (First line) Tj T* (second line) Tj 0 -40 Td (New paragraph) Tj ET";
    assert_eq!(text(lines), "First line\nsecond line\n\nNew paragraph");
    assert_eq!(text("BT /F1 12 Tf 14 TL 50 700 Td (a) Tj (b) ' 1 2 (c) \" ET"), "a\nb\nc");
    assert_eq!(text("BT /F1 12 Tf 50 700 Td [(Ker) 30 (ned) -400 (words)] TJ ET"), "Kerned words");
    assert_eq!(text("BT /F1 12 Tf 50 700 Td (left) Tj 200 0 Td (right) Tj ET"), "left right");
    assert_eq!(text("q 2 0 0 2 0 0 cm BT /F1 6 Tf 1 0 0 1 25 350 Tm (scaled) Tj ET Q"), "scaled");
    assert_eq!(text("BT /F1 12 Tf 50 700 Td (up) Tj 5 Ts (2) Tj ET"), "up2");
}

/// Two lines, words without spaces between them, and a paragraph, shown through a text matrix or
/// another operator before them.
fn turned(before: &str, matrix: &str) -> String {
    text(&format!(
        "{before} BT /F1 12 Tf 14 TL {matrix} [(The)-333(quick)-333(brown)-333(fox)]TJ T* [(jum)20(ps)-333(over)]TJ \
         0 -40 Td (the) Tj 35 0 Td (dog) Tj ET"
    ))
}

#[test]
fn text_is_read_alike_in_every_direction() {
    let upright = "The quick brown fox\njumps over\n\nthe dog";
    assert_eq!(turned("", "1 0 0 1 50 700 Tm"), upright);
    for matrix in [
        "0 1 -1 0 100 100 Tm",
        "0 -1 1 0 100 700 Tm",
        "-1 0 0 -1 500 100 Tm",
        "0.7071 0.7071 -0.7071 0.7071 100 100 Tm",
        "0 2 -1 0 100 100 Tm",
        "1 0 0 -1 50 100 Tm",
        "1 0 0.3 1 50 700 Tm",
    ] {
        assert_eq!(turned("", matrix), upright, "{matrix}");
        assert_eq!(turned(&matrix.replace("Tm", "cm"), ""), upright, "{matrix}");
    }
    // Twice turned is upright again.
    assert_eq!(turned("0 -1 1 0 0 800 cm", "0 1 -1 0 100 100 Tm"), upright);
    assert_eq!(text("BT /F1 -12 Tf -1 0 0 -1 50 700 Tm [(two)-333(words)]TJ ET"), "two words");
    assert_eq!(text("BT /F1 12 Tf -100 Tz -1 0 0 1 50 700 Tm [(two)-333(words)]TJ ET"), "two words");
}

#[test]
fn text_that_changes_its_direction_is_parted_by_the_distance() {
    let label = "BT /F1 12 Tf 1 0 0 1 50 700 Tm (Axis) Tj 0 1 -1 0 300 100 Tm [(seen)-333(sideways)]TJ ET";
    assert_eq!(text(label), "Axis\n\nseen sideways");
    // The letters of one word along a curve: each a little more turned than the one before it.
    let mut curve = "BT /F1 10 Tf ".to_owned();
    let (mut x, mut y) = (100.0, 100.0);
    for (number, letter) in "mmmmmmmmmm".chars().enumerate() {
        let (sin, cos) = (f64::from(u32::try_from(number).unwrap()) * 0.2).sin_cos();
        write!(curve, "{cos:.4} {sin:.4} {:.4} {cos:.4} {x:.4} {y:.4} Tm ({letter}) Tj ", -sin).unwrap();
        (x, y) = (x + 8.33 * cos, y + 8.33 * sin);
    }
    assert_eq!(text(&(curve + "ET")), "mmmmmmmmmm");
}

#[test]
fn text_without_a_direction_or_a_size_is_still_read() {
    let huge = "9".repeat(300);
    for matrix in [
        "0 0 0 0 0 0 Tm".to_owned(),
        "0 0 0 1 50 700 Tm".to_owned(),
        "1 0 0 0 50 700 Tm".to_owned(),
        format!("{huge} {huge} {huge} {huge} 0 0 Tm"),
        format!("1 0 0 1 {huge} -{huge} Tm"),
        "0 Tz 1 0 0 1 50 700 Tm".to_owned(),
    ] {
        for size in ["12", "0", "-0", &huge] {
            let content = format!("BT /F1 {size} Tf {matrix} (some) Tj ( words) Tj T* (more) Tj ET");
            let letters: String = text(&content).split_whitespace().collect();
            assert_eq!(letters, "somewordsmore", "{size} {matrix}");
        }
    }
}

#[test]
fn many_pages_are_read_in_order_with_title() {
    let mut builder = Builder::new();
    let font = builder.object(HELVETICA);
    let contents: Vec<_> = (1..=30)
        .map(|number| builder.packed("", format!("BT /F1 12 Tf 50 700 Td (Page {number}) Tj ET").as_bytes()))
        .collect();
    let info = builder.object("<< /Title (\\376\\377\\000T\\000\\351\\000s\\000t) >>");
    builder.trailer = format!("/Info {info} 0 R");
    let page = page(&builder.pages(&contents, &format!("/Font << /F1 {font} 0 R >>")));
    let expected: Vec<_> = (1..=30).map(|number| format!("Page {number}")).collect();
    assert_eq!((page.text, page.title.as_deref(), page.cut), (expected.join("\n\n"), Some("Tést"), false));
}

#[test]
fn codes_of_two_bytes_are_read_by_their_map() {
    let mut builder = Builder::new();
    let map = b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def\n\
        1 begincodespacerange <0000> <FFFF> endcodespacerange\n\
        2 beginbfchar <0001> <65E5> <0002> <672C> endbfchar\n\
        1 beginbfrange <0010> <0012> <0041> endbfrange\n\
        endcmap end end";
    let map = builder.packed("", map);
    let descendant = builder.object(
        "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Some /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) \
         /Supplement 0 >> /DW 1000 /FontDescriptor << /Type /FontDescriptor /FontName /Some /Flags 4 >> >>",
    );
    let font = builder.object(&format!(
        "<< /Type /Font /Subtype /Type0 /BaseFont /Some /Encoding /Identity-H /DescendantFonts [{descendant} 0 R] \
         /ToUnicode {map} 0 R >>"
    ));
    let content = builder.packed("", b"BT /F1 12 Tf 50 700 Td <000100020010> Tj <0012> Tj ET");
    let document = builder.pages(&[content], &format!("/Font << /F1 {font} 0 R >>"));
    assert_eq!(page(&document).text, "日本AC");
}

#[test]
fn documents_with_packed_objects_are_read() {
    let page = page(include_bytes!("../fixtures/paper.pdf"));
    assert_eq!(page.text, "Hello from a page\nwith final words \u{2014} and\na third line.");
    assert_eq!(page.title.as_deref(), Some("A paper"));
}

#[test]
fn forms_are_read_where_they_are_drawn() {
    let mut builder = Builder::new();
    let font = builder.object(HELVETICA);
    let form = builder.packed(
        "/Type /XObject /Subtype /Form /BBox [0 0 100 100] /Matrix [1 0 0 1 0 100]",
        b"BT /F1 12 Tf 50 500 Td (inside) Tj ET",
    );
    let content = builder
        .packed("", b"BT /F1 12 Tf 50 700 Td (before) Tj ET /X Do BT /F1 12 Tf 50 100 Td (after) Tj ET");
    let document =
        builder.pages(&[content], &format!("/Font << /F1 {font} 0 R >> /XObject << /X {form} 0 R >>"));
    assert_eq!(page(&document).text, "before\n\ninside\n\nafter");
}

#[test]
fn forms_that_draw_each_other_come_to_an_end() {
    let drawn = |own_resources: bool| {
        let mut builder = Builder::new();
        let font = builder.object(HELVETICA);
        let own = builder.offsets.len() + 1;
        let resources = format!("/Font << /F1 {font} 0 R >> /XObject << /X {own} 0 R >>");
        let inside = if own_resources { format!("/Resources << {resources} >>") } else { String::new() };
        let form = builder.packed(
            &format!("/Type /XObject /Subtype /Form /BBox [0 0 1 1] {inside}"),
            "BT /F1 1 Tf (x) Tj ET /X Do ".repeat(10).as_bytes(),
        );
        assert_eq!(own, form);
        let content = builder.packed("", b"/X Do");
        page(&builder.pages(&[content], &resources))
    };
    // The parser does not follow a form's reference to itself.
    assert_eq!(drawn(true).text, "x".repeat(10));
    // A form with the resources of its page reaches itself, up to the limits.
    let page = drawn(false);
    assert!((100..100_000).contains(&page.text.len()) && page.cut);
}

#[test]
fn a_page_that_spends_the_budget_is_marked_as_cut() {
    let document = one_page("BT /F1 12 Tf 50 700 Td (first) Tj ( last) Tj ET");
    let within = |steps| read_within(&document, 1000, Budget::of_steps(steps)).unwrap();
    let page = within(14);
    assert_eq!((page.text.as_str(), page.cut), ("first la", true));
    let page = within(100);
    assert_eq!((page.text.as_str(), page.cut), ("first last", false));
}

#[test]
fn text_is_marked_as_cut_when_a_form_is_not_drawn() {
    // A form of each depth draws the next one, and the page draws the first one and shows a text.
    let nested = |depth: usize| {
        let mut builder = Builder::new();
        let font = builder.object(HELVETICA);
        let fonts = format!("/Font << /F1 {font} 0 R >>");
        let mut inner = builder.packed("/Subtype /Form", b"BT /F1 12 Tf 50 700 Td (deep) Tj ET");
        for _ in 1..depth {
            let resources = format!("/Resources << {fonts} /XObject << /X {inner} 0 R >> >>");
            inner = builder.packed(&format!("/Subtype /Form {resources}"), b"/X Do");
        }
        let content = builder.packed("", b"/X Do BT /F1 12 Tf 50 600 Td (after) Tj ET");
        let page = page(&builder.pages(&[content], &format!("{fonts} /XObject << /X {inner} 0 R >>")));
        (page.text, page.cut)
    };
    assert_eq!(nested(8), ("deep\n\nafter".to_owned(), false));
    assert_eq!(nested(9), ("after".to_owned(), true));

    let repeated = |times: usize| {
        let mut builder = Builder::new();
        let font = builder.object(HELVETICA);
        let form = builder.packed("/Subtype /Form", b"n");
        let content = format!("{} BT /F1 12 Tf 50 700 Td (after) Tj ET", "/X Do ".repeat(times));
        let content = builder.packed("", content.as_bytes());
        let resources = format!("/Font << /F1 {font} 0 R >> /XObject << /X {form} 0 R >>");
        let page = page(&builder.pages(&[content], &resources));
        (page.text, page.cut)
    };
    assert_eq!(repeated(2_000), ("after".to_owned(), false));
    assert_eq!(repeated(2_001), ("after".to_owned(), true));
}

#[test]
fn text_is_cut_where_it_was_asked_to_be() {
    let document = one_page(&format!("BT /F1 12 Tf 50 700 Td ({}) Tj ET", "a".repeat(1000)));
    let page = read(&document, 100).unwrap();
    assert_eq!((page.text.len(), page.cut), (100, true));
}

#[test]
fn documents_that_cannot_be_read_say_why() {
    assert!(read(b"%PDF-1.7\n", 100).unwrap_err().contains("damaged"));
    assert!(read(b"", 100).unwrap_err().contains("damaged"));
    assert!(read(&one_page("0 0 100 100 re f"), 100).unwrap_err().contains("no text"));
    let mut builder = Builder::new();
    let key = "00".repeat(32);
    let lock = builder
        .object(&format!("<< /Filter /Standard /V 2 /R 3 /Length 128 /P -44 /O <{key}> /U <{key}> >>"));
    builder.trailer = format!("/Encrypt {lock} 0 R /ID [<00> <00>]");
    let content = builder.packed("", b"BT ET");
    assert!(read(&builder.pages(&[content], ""), 100).unwrap_err().contains("encrypted"));
}

#[test]
fn streams_that_unpack_to_too_much_are_not_read() {
    let mut builder = Builder::new();
    let bomb = builder.packed("", &vec![b' '; 17 << 20]);
    assert!(read(&builder.pages(&[bomb], ""), 100).unwrap_err().contains("too large"));

    let mut builder = Builder::new();
    let bombs: Vec<_> = (0..5).map(|_| builder.packed("", &vec![b' '; 10 << 20])).collect();
    assert!(read(&builder.pages(&bombs, ""), 100).unwrap_err().contains("too large"));

    let mut builder = Builder::new();
    let bare = builder.stream("/Filter [ /Fl ]", &compress_to_vec(&vec![b' '; 17 << 20], 1));
    assert!(read(&builder.pages(&[bare], ""), 100).unwrap_err().contains("too large"));

    let twice = compress_to_vec_zlib(&compress_to_vec_zlib(&vec![b' '; 1 << 20], 1), 6);
    let mut builder = Builder::new();
    let chained = builder.stream("/Filter [/FlateDecode /FlateDecode]", &twice);
    assert!(read(&builder.pages(&[chained], ""), 100).unwrap_err().contains("several times"));
}

#[test]
fn pictures_are_not_unpacked() {
    let pixels = compress_to_vec_zlib(&vec![7; 17 << 20], 1);
    let picture = |entries: &str, filter: &str| {
        let mut builder = Builder::new();
        let font = builder.object(HELVETICA);
        let mut pictures = String::new();
        for number in 0..4 {
            let entries = format!("{entries} /Width 4096 /Height 1360 /Filter {filter}");
            write!(pictures, "/P{number} {} 0 R ", builder.stream(&entries, &pixels)).unwrap();
        }
        let content = builder.packed("", b"/P0 Do BT /F1 12 Tf 50 700 Td (Scan) Tj ET /P1 Do");
        let resources = format!("/Font << /F1 {font} 0 R >> /XObject << {pictures} >>");
        read(&builder.pages(&[content], &resources), 100).map(|page| page.text)
    };
    for subtype in ["/Subtype /Image", "/Type/XObject/Subtype/Image", "/Subtype\r\n/Image"] {
        assert_eq!(picture(subtype, "/FlateDecode").as_deref(), Ok("Scan"), "{subtype}");
        assert_eq!(picture(subtype, "[/FlateDecode /FlateDecode]").as_deref(), Ok("Scan"), "{subtype}");
    }
    for subtype in ["/Subtype /ImageMask", "/Subtype /Form", "/Subtype (/Image)", "/Other /Image", ""] {
        assert!(picture(subtype, "/FlateDecode").unwrap_err().contains("too large"), "{subtype}");
    }
}

#[test]
fn damaged_documents_are_read_as_far_as_they_go() {
    let document = one_page("BT /F1 12 Tf 50 700 Td (Still here) Tj ET");
    let text = |bytes: &[u8]| read(bytes, 1000).map(|page| page.text);
    let table = document.windows(4).position(|window| window == b"xref").unwrap();
    assert_eq!(text(&document[..table]).as_deref(), Ok("Still here"));
    let mut shifted = b"junk before\n".to_vec();
    shifted.extend_from_slice(&document);
    assert_eq!(text(&shifted).as_deref(), Ok("Still here"));
    for cut in (0..document.len()).step_by(7) {
        drop(text(&document[..cut]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        drop(read(&bytes, 50));
    }

    #[test]
    fn no_changed_bytes_break_the_reader(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut document = one_page("BT /F1 12 Tf 14 TL 50 700 Td (Some words) Tj T* [(and) -300 (more)] TJ ET");
        for (place, byte) in changes {
            let place = place.index(document.len());
            document[place] = byte;
        }
        if let Ok(page) = read(&document, 50) {
            prop_assert!(page.text.chars().count() <= 50);
        }
    }

    #[test]
    fn no_content_breaks_the_reader(content in "[-0-9. ()<>\\[\\]/A-Za-z'\"*\\\\]{0,200}") {
        drop(read(&one_page(&format!("BT /F1 12 Tf {content} (x) Tj ET")), 50));
    }
}
