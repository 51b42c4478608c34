//! Results of several servers side by side, as Markdown and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// How a server's figure is compared with the one of the plain proxy.
#[derive(Clone, Copy)]
pub(crate) enum Against {
    /// So many times the proxy's figure.
    Ratio,
    /// So much more than the proxy's.
    Beyond,
    /// Not at all.
    Nothing,
}

/// One figure of all servers.
pub(crate) struct TableRow {
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) against: Against,
    /// The most that the compared figure should be.
    pub(crate) target: Option<f64>,
    /// The figure in each round, for each server of the table; empty if it was not measured there.
    pub(crate) samples: Vec<Vec<f64>>,
}

/// The servers, of which the first one may be the plain proxy, and their figures.
pub(crate) struct Table {
    pub(crate) servers: Vec<String>,
    pub(crate) has_proxy: bool,
    pub(crate) rows: Vec<TableRow>,
}

impl Table {
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("| figure | {} | target |\n|---|", self.servers.join(" | "));
        text += &"--:|".repeat(self.servers.len() + 1);
        for row in &self.rows {
            let _written = write!(text, "\n| {}, {} |", row.title, row.unit);
            for server in 0..self.servers.len() {
                let _written = write!(text, " {} |", self.cell(row, server));
            }
            let target = row.target.map(|target| row.against.text(target)).unwrap_or_default();
            let _written = write!(text, " {target} |");
        }
        text
    }

    fn cell(&self, row: &TableRow, server: usize) -> String {
        let Some(median) = row.samples.get(server).and_then(|samples| median(samples)) else {
            return String::new();
        };
        match self.compared(row, server) {
            Some(compared) if !matches!(row.against, Against::Nothing) => {
                format!("{} ({})", rounded(median), row.against.text(compared))
            }
            _ => rounded(median),
        }
    }

    /// The median of the comparisons of each round. One round of all servers lies within seconds, so that a slow
    /// minute of the machine falls on both sides of a comparison.
    fn compared(&self, row: &TableRow, server: usize) -> Option<f64> {
        let own = row.samples.get(server)?;
        if matches!(row.against, Against::Nothing) {
            return median(own);
        }
        let proxy = row.samples.first().filter(|_| self.has_proxy && server > 0)?;
        let rounds = own.iter().zip(proxy).map(|(own, proxy)| match row.against {
            Against::Ratio => own / proxy,
            Against::Beyond => own - proxy,
            Against::Nothing => *own,
        });
        median(&rounds.collect::<Vec<f64>>())
    }

    pub(crate) fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let servers = self.servers.iter().enumerate().map(|(server, name)| {
                let samples = row.samples.get(server).map(Vec::as_slice).unwrap_or_default();
                let least = samples.iter().copied().min_by(f64::total_cmp);
                json!({"server": name, "median": median(samples), "least": least,
                    "compared": self.compared(row, server), "samples": samples})
            });
            json!({"figure": row.title, "unit": row.unit, "compared_by": row.against.name(), "target": row.target,
                "servers": servers.collect::<Vec<_>>()})
        });
        json!({"rows": rows.collect::<Vec<_>>()})
    }

    /// Prints the table and writes it to a file, if one is named.
    pub(crate) fn publish(&self, file: Option<&std::path::Path>) -> anyhow::Result<()> {
        println!("{}", self.markdown());
        if let Some(file) = file {
            std::fs::write(file, format!("{:#}\n", self.json()))?;
        }
        Ok(())
    }
}

/// The table, row by row.
pub(crate) struct Rows {
    servers: usize,
    pub(crate) rows: Vec<TableRow>,
}

impl Rows {
    /// An empty table of so many servers.
    pub(crate) fn of(servers: usize) -> Self {
        Self { servers, rows: Vec::new() }
    }

    /// Adds a sample of a server.
    pub(crate) fn add(&mut self, title: String, unit: &'static str, server: usize, value: f64) {
        let place = self.rows.iter().position(|row| row.title == title && row.unit == unit);
        let place = place.unwrap_or_else(|| {
            let samples = vec![Vec::new(); self.servers];
            self.rows.push(TableRow { title, unit, against: Against::Nothing, target: None, samples });
            self.rows.len() - 1
        });
        if let Some(samples) = self.rows.get_mut(place).and_then(|row| row.samples.get_mut(server)) {
            samples.push(value);
        }
    }
}

impl Against {
    fn text(self, figure: f64) -> String {
        match self {
            Self::Ratio => format!("{figure:.2} x"),
            Self::Beyond => format!("{}{}", if figure < 0.0 { "" } else { "+" }, rounded(figure)),
            Self::Nothing => rounded(figure),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ratio => "ratio to the proxy",
            Self::Beyond => "beyond the proxy",
            Self::Nothing => "nothing",
        }
    }
}

pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// Three digits, or the whole number.
fn rounded(figure: f64) -> String {
    let digits = match figure.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{figure:.digits$}")
}
