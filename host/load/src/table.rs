//! Reads CSV without quoting, the format of both Azure data sets, with bounds on sizes and values.

use std::io::{BufRead, Read};

/// Maximum length of a line, in bytes. A line in the 2019 format has 1,440 columns after its hashes.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// What is wrong with a trace, and where.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be read.
    #[error("line {line}: {error}")]
    Read {
        /// The line, counted from 1.
        line: u64,
        /// The reader's error.
        error: std::io::Error,
    },
    /// A line does not follow the format.
    #[error("line {line}: {problem}")]
    Line {
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
}

/// A table, read line by line.
pub(super) struct Table<R> {
    reader: R,
    line: u64,
    text: String,
    columns: Vec<String>,
}

impl<R: BufRead> Table<R> {
    /// Reads the header.
    pub fn open(reader: R) -> Result<Self, TraceError> {
        let mut table = Self { reader, line: 0, text: String::new(), columns: Vec::new() };
        if !table.advance()? {
            return Err(table.error("the file is empty, expected a header"));
        }
        table.columns = table.text.split(',').map(|name| name.trim().to_owned()).collect();
        Ok(table)
    }

    /// The names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The index of the column with this name.
    pub fn column(&self, name: &str) -> Result<usize, TraceError> {
        self.columns.iter().position(|column| column == name).ok_or_else(|| {
            self.error(format!(
                "the header has no column {name:?}; is this file in another format?"
            ))
        })
    }

    /// The next line, which has as many fields as the header; `None` at the end.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, TraceError> {
        if !self.advance()? {
            return Ok(None);
        }
        let fields: Vec<_> = self.text.split(',').map(str::trim).collect();
        if fields.len() != self.columns.len() {
            let (found, expected) = (fields.len(), self.columns.len());
            return Err(self.error(format!("{found} fields, but the header has {expected}")));
        }
        Ok(Some(Row { line: self.line, fields, columns: &self.columns }))
    }

    /// An error about the current line.
    pub fn error(&self, problem: impl Into<String>) -> TraceError {
        TraceError::Line { line: self.line.max(1), problem: problem.into() }
    }

    fn advance(&mut self) -> Result<bool, TraceError> {
        self.line += 1;
        self.text.clear();
        let mut limited = (&mut self.reader).take(MAX_LINE_BYTES);
        let read = limited
            .read_line(&mut self.text)
            .map_err(|error| TraceError::Read { line: self.line, error })?;
        if read as u64 == MAX_LINE_BYTES && !self.text.ends_with('\n') {
            return Err(self.error(format!("longer than {} KiB", MAX_LINE_BYTES >> 10)));
        }
        let end = self.text.trim_end_matches(['\r', '\n']).len();
        self.text.truncate(end);
        Ok(read > 0)
    }
}

/// One line of a table.
pub(super) struct Row<'a> {
    line: u64,
    fields: Vec<&'a str>,
    columns: &'a [String],
}

impl<'a> Row<'a> {
    /// A field that must be a hash or another name: 1 to 128 letters, digits, `-` and `_`.
    pub fn name(&self, column: usize) -> Result<&'a str, TraceError> {
        let field = self.fields[column];
        let valid = (1..=128).contains(&field.len())
            && field.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if valid { Ok(field) } else { Err(self.error(column, "a hash")) }
    }

    /// A field that must be a whole number up to `max`.
    pub fn count(&self, column: usize, max: u64) -> Result<u64, TraceError> {
        self.fields[column]
            .parse()
            .ok()
            .filter(|count| *count <= max)
            .ok_or_else(|| self.error(column, format_args!("a whole number from 0 to {max}")))
    }

    /// A field that must be a number between `min` and `max`.
    pub fn number(&self, column: usize, min: f64, max: f64) -> Result<f64, TraceError> {
        self.fields[column]
            .parse()
            .ok()
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| self.error(column, format_args!("a number from {min} to {max}")))
    }

    /// An error about this line as a whole.
    pub fn line_error(&self, problem: impl Into<String>) -> TraceError {
        TraceError::Line { line: self.line, problem: problem.into() }
    }

    fn error(&self, column: usize, expected: impl std::fmt::Display) -> TraceError {
        let (name, field) = (&self.columns[column], self.fields[column]);
        // A field may be as long as the line.
        let problem = format!("column {name:.40}: {field:.40?} is not {expected}");
        TraceError::Line { line: self.line, problem }
    }
}
