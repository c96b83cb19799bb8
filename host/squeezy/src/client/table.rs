//! Tables that clients print.

use super::show;
use crate::output::print;
use serde_json::Value;

/// A value as a table shows it.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A column: its heading, and how to get its cell from a row.
pub type Column<R> = (&'static str, fn(&R) -> String);

/// Prints a list as JSON, or as a table with a row for each of its entries.
pub fn print_list(list: &Value, json: bool, columns: &[Column<Value>]) {
    if json {
        return show(list);
    }
    let rows = list.as_array().map(Vec::as_slice).unwrap_or_default();
    lines(rows, columns).iter().for_each(print);
}

/// The lines of a table, with columns as wide as their widest cell.
pub fn lines<R>(rows: &[R], columns: &[Column<R>]) -> Vec<String> {
    let heading = columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
    let cells = rows.iter().map(|row| columns.iter().map(|(_, cell)| cell(row)).collect());
    let table: Vec<Vec<String>> = std::iter::once(heading).chain(cells).collect();
    let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..columns.len()).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    table.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them() {
        let columns: [Column<&str>; 2] = [("A", |row| row.to_string()), ("B", |_| "x".to_owned())];
        assert_eq!(lines(&["long", "ä"], &columns), ["A     B", "long  x", "ä     x"]);
    }
}
