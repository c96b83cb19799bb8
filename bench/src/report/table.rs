//! Plain-text tables.

use super::{number::number, spread::Spread};
use std::collections::BTreeMap;

/// Rows under a header; the first column is text, the others are numbers.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

/// A column: its header, and how to get its cell from a row's lines.
pub(crate) struct Column<'a, L> {
    head: &'static str,
    cell: Cell<'a, L>,
}

/// Computes a cell from a row's lines.
type Cell<'a, L> = Box<dyn Fn(&[&L]) -> String + 'a>;

impl<'a, L: 'a> Column<'a, L> {
    /// Any function of a row's lines, of which there is at least one.
    pub(crate) fn new(head: &'static str, cell: impl Fn(&[&L]) -> String + 'a) -> Self {
        Self { head, cell: Box::new(cell) }
    }

    /// A value that all lines of a row have in common.
    pub(crate) fn common(head: &'static str, value: impl Fn(&L) -> String + 'a) -> Self {
        Self::new(head, move |lines| lines.first().map_or(String::new(), |line| value(line)))
    }

    /// The number of lines.
    pub(crate) fn count(head: &'static str) -> Self {
        Self::new(head, |lines| lines.len().to_string())
    }

    /// The number of lines that satisfy a condition.
    pub(crate) fn count_of(head: &'static str, of: impl Fn(&L) -> bool + 'a) -> Self {
        Self::new(head, move |lines| lines.iter().filter(|line| of(line)).count().to_string())
    }

    /// The median of a figure.
    pub(crate) fn median(head: &'static str, value: impl Fn(&L) -> f64 + 'a) -> Self {
        Self::spread(head, value, |spread| number(spread.median))
    }

    /// The quartiles of a figure.
    pub(crate) fn quartiles(head: &'static str, value: impl Fn(&L) -> f64 + 'a) -> Self {
        Self::spread(head, value, |s| format!("{}-{}", number(s.low), number(s.high)))
    }

    /// Only for rows whose lines satisfy a condition; a dash in the others.
    pub(crate) fn only_if(self, has: impl Fn(&L) -> bool + 'a) -> Self {
        Self::new(self.head, move |lines| {
            if lines.iter().any(|line| has(line)) { (self.cell)(lines) } else { "-".to_owned() }
        })
    }

    fn spread(
        head: &'static str,
        value: impl Fn(&L) -> f64 + 'a,
        show: impl Fn(Spread) -> String + 'a,
    ) -> Self {
        Self::new(head, move |lines| {
            Spread::of(lines.iter().map(|line| value(line))).map_or(String::new(), &show)
        })
    }
}

impl Table {
    /// A row for the lines of each key, sorted by key.
    pub(crate) fn of<'l, L: 'l, K: Ord>(
        lines: impl IntoIterator<Item = &'l L>,
        key: impl Fn(&L) -> K,
        columns: &[Column<'_, L>],
    ) -> Self {
        let mut table = Self::under(columns);
        table.add(lines, key, columns);
        table
    }

    /// A header without rows.
    pub(crate) fn under<L>(columns: &[Column<'_, L>]) -> Self {
        Self { rows: vec![columns.iter().map(|column| column.head.to_owned()).collect()] }
    }

    /// Adds a row for the lines of each key.
    pub(crate) fn add<'l, L: 'l, K: Ord>(
        &mut self,
        lines: impl IntoIterator<Item = &'l L>,
        key: impl Fn(&L) -> K,
        columns: &[Column<'_, L>],
    ) {
        let mut groups: BTreeMap<K, Vec<&L>> = BTreeMap::new();
        for line in lines {
            groups.entry(key(line)).or_default().push(line);
        }
        for group in groups.values() {
            self.row(columns.iter().map(|column| (column.cell)(group)));
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &Vec<String>, column: usize| {
            row.get(column).map_or(0, |cell| cell.chars().count())
        };
        let widths: Vec<usize> = (0..columns)
            .map(|column| self.rows.iter().map(|row| cell(row, column)).max().unwrap_or(0))
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for (index, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                match index {
                    0 => line += &format!("{cell:<width$}"),
                    _ => line += &format!("  {cell:>width$}"),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let lines = [("squeezy", 3.0), ("floor", 1234.0), ("floor", 1234.0)];
        type Column<'a> = super::Column<'a, (&'static str, f64)>;
        let columns = [
            Column::common("method", |line| line.0.to_owned()),
            Column::count("n"),
            Column::median("ms", |line| line.1),
        ];
        let table = Table::of(&lines, |line| line.0, &columns);
        assert_eq!(table.to_string(), "method   n    ms\nfloor    2  1234\nsqueezy  1  3.00\n");
    }
}
