//! Text tables with aligned columns.

use serde_json::Value;

use super::CommandOutcome;

/// A table with a header line; columns are separated by two spaces.
pub(super) fn table<const COLUMNS: usize>(header: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let mut widths = header.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = line(header.iter().copied(), &widths);
    for row in rows {
        text.push_str(&line(row.iter().map(String::as_str), &widths));
    }
    text
}

/// A table for people and a list of documents for programs.
pub(super) fn listing<T, const COLUMNS: usize>(
    header: [&str; COLUMNS],
    entries: &[T],
    row: impl Fn(&T) -> [String; COLUMNS],
    document: impl Fn(&T) -> Value,
) -> CommandOutcome {
    let rows: Vec<[String; COLUMNS]> = entries.iter().map(row).collect();
    CommandOutcome { document: entries.iter().map(document).collect(), text: table(header, &rows) }
}

/// `NAME  value` lines.
pub(super) fn pairs(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    rows.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

/// The cell of a table, `-` if it is empty.
pub(super) fn or_dash(cell: Option<impl ToString>) -> String {
    cell.map_or_else(|| "-".to_owned(), |cell| cell.to_string())
}

fn line<'c>(cells: impl Iterator<Item = &'c str>, widths: &[usize]) -> String {
    let padded: Vec<String> = cells.zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
    format!("{}\n", padded.join("  ").trim_end())
}

#[cfg(test)]
mod tests {
    use super::{pairs, table};

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a".to_owned(), "long cell".to_owned()], ["bb".to_owned(), "é".to_owned()]];
        assert_eq!(table(["N", "VALUE"], &rows), "N   VALUE\na   long cell\nbb  é\n");
    }

    #[test]
    fn names_of_pairs_are_aligned() {
        assert_eq!(pairs(&[("a", "1".to_owned()), ("long", "2".to_owned())]), "a     1\nlong  2\n");
    }
}
