//! Lines of an action's process, which may write anything.

use std::io;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// What is kept of a line that is too long, in bytes.
const BEGINNING: usize = 32;

/// A line that was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// All of it, without its end.
    Whole(Vec<u8>),
    /// It was longer than allowed, and is gone but for how it begins.
    TooLong(Vec<u8>),
    /// There was no further one.
    End,
}

/// Reads a line of at most `most` bytes. What is longer is read to its end and not kept. A last line need
/// not end.
pub async fn read(from: &mut (impl AsyncBufRead + Unpin), most: usize) -> io::Result<Line> {
    let (mut line, mut length) = (Vec::new(), 0);
    loop {
        let part = from.fill_buf().await?;
        if part.is_empty() {
            return Ok(match length {
                0 => Line::End,
                length if length > most => Line::TooLong(line),
                _ => Line::Whole(line),
            });
        }
        let end = part.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(part.len());
        length += taken;
        if length <= most {
            line.extend_from_slice(&part[..taken]);
        } else {
            line.truncate(BEGINNING);
            let kept = BEGINNING.saturating_sub(line.len()).min(taken);
            line.extend_from_slice(&part[..kept]);
        }
        let used = taken + usize::from(end.is_some());
        from.consume(used);
        if end.is_some() {
            return Ok(if length > most { Line::TooLong(line) } else { Line::Whole(line) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::BufReader;

    #[tokio::test(flavor = "current_thread")]
    async fn a_line_is_whole_or_gone() {
        let mut from = BufReader::with_capacity(3, &b"first\n\nmuch too long\nlast"[..]);
        let mut lines = Vec::new();
        for _ in 0..5 {
            lines.push(read(&mut from, 5).await.unwrap());
        }
        let whole = |text: &str| Line::Whole(text.into());
        let too_long = Line::TooLong("much too long".into());
        let right = [whole("first"), whole(""), too_long, whole("last"), Line::End];
        assert_eq!(lines, right);
    }
}
