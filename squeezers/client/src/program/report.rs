//! What came of it, for people and for programs.

use serde::Serialize;
use squeezer::{Answer, Hello, Memory, libraries::Evicted};
use std::fmt::Write;

/// All that there is to say. What was not asked for is absent.
#[derive(Serialize)]
pub struct Report {
    pid: u32,
    pub hello: Option<Hello>,
    before: Memory,
    pub after: Memory,
    pub answer: Option<Answer>,
    pub libraries: Option<Evicted>,
}

impl Report {
    pub fn new(pid: u32, before: Memory) -> Self {
        Self { pid, hello: None, before, after: before, answer: None, libraries: None }
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        let json = serde_json::to_string(self).expect("plain data has a form in JSON");
        json + "\n"
    }

    /// A table, and under it what has no before and after.
    pub fn table(&self) -> String {
        let mut text = format!("process {}", self.pid);
        if let Some(hello) = &self.hello {
            let _ = write!(text, ": {} {}", hello.runtime, hello.runtime_version);
            if let Some(collector) = &hello.collector {
                let _ = write!(text, ", collector {collector}");
            }
        }
        let _ = writeln!(text, "\n\n{:13}{:>11}{:>11}{:>11}", "MiB", "before", "after", "less");
        let mut row = |name: &str, before: u64, after: u64| {
            let less = MEBIBYTE * before as f64 - MEBIBYTE * after as f64;
            let [before, after] = [before, after].map(|bytes| MEBIBYTE * bytes as f64);
            let _ = writeln!(text, "{name:13}{before:>11.1}{after:>11.1}{less:>11.1}");
        };
        row("USS", self.before.uss_bytes, self.after.uss_bytes);
        row("RSS", self.before.rss_bytes, self.after.rss_bytes);
        row("PSS", self.before.pss_bytes, self.after.pss_bytes);
        if let Some(answer) = &self.answer {
            row("heap resident", answer.before_bytes, answer.after_bytes);
        }
        text.push('\n');
        if let Some(answer) = &self.answer {
            let _ = writeln!(
                text,
                "live {}, advised {}, pause {}, CPU {}",
                mebibytes(answer.live_bytes),
                mebibytes(answer.advised_bytes),
                milliseconds(answer.pause_ns),
                milliseconds(answer.cpu_ns),
            );
        }
        if let Some(evicted) = &self.libraries {
            let _ = writeln!(
                text,
                "libraries: {} of {} mappings advised; {} kept, which other processes map too",
                mebibytes(evicted.advised_bytes),
                evicted.mappings,
                mebibytes(evicted.shared_bytes),
            );
        }
        text
    }
}

/// Mebibytes of a byte.
const MEBIBYTE: f64 = 1.0 / (1 << 20) as f64;

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", MEBIBYTE * bytes as f64)
}

fn milliseconds(nanoseconds: u64) -> String {
    format!("{:.2} ms", nanoseconds as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let memory = |mebibytes: u64| Memory { uss_bytes: mebibytes << 20, ..Memory::default() };
        let answer = r#"{"before_bytes":41943040,"after_bytes":20971520,"live_bytes":10485760,
            "advised_bytes":31457280,"pause_ns":1500000,"cpu_ns":2000000,"error":null}"#;
        let hello = r#"{"squeezer":1,"runtime":"hotspot","runtime_version":"17",
            "collector":"g1","pid":1}"#;
        Report {
            after: memory(30),
            hello: Some(serde_json::from_str(hello).unwrap()),
            answer: Some(serde_json::from_str(answer).unwrap()),
            libraries: Some(Evicted { advised_bytes: 5 << 20, mappings: 2, shared_bytes: 0 }),
            ..Report::new(4242, memory(50))
        }
    }

    #[test]
    fn a_table_for_people() {
        let table = report().table();
        assert!(table.starts_with("process 4242: hotspot 17, collector g1\n\n"), "{table}");
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_ascii_whitespace().collect()).collect();
        assert!(rows.contains(&vec!["USS", "50.0", "30.0", "20.0"]), "{table}");
        assert!(rows.contains(&vec!["heap", "resident", "40.0", "20.0", "20.0"]), "{table}");
        assert!(table.contains("\nlive 10.0 MiB, advised 30.0 MiB, pause 1.50 ms, CPU 2.00 ms\n"));
        assert!(table.contains("\nlibraries: 5.0 MiB of 2 mappings advised; "), "{table}");
    }

    #[test]
    fn a_line_for_programs() {
        let json = report().json();
        assert!(json.ends_with('\n') && json.lines().count() == 1);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["before"]["uss_bytes"], 50 << 20);
        assert_eq!(value["answer"]["live_bytes"], 10 << 20);
        assert_eq!(value["libraries"]["mappings"], 2);
    }

    #[test]
    fn what_was_not_asked_for_is_absent() {
        let report = Report::new(7, Memory::default());
        assert!(report.table().starts_with("process 7\n"));
        assert!(!report.table().contains("heap"));
        assert!(report.json().contains(r#""answer":null"#));
    }
}
