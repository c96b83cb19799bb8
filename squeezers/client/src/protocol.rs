//! What client and squeezer say to each other, version 1, and what of it is believed.

use crate::{Error, Result, error::printable};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest line of a squeezer, its newline included, in bytes.
pub(crate) const MOST_LINE_BYTES: usize = 64 << 10;

/// Longest request, in bytes.
#[cfg(test)]
const MOST_REQUEST_BYTES: usize = 4096;

/// Largest number: what every implementation of JSON can carry.
const MOST: u64 = (1 << 53) - 1;

/// The only version there is.
const VERSION: u32 = 1;

/// Whose heap a squeezer gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// Java.
    Hotspot,
    /// JavaScript, in Node.
    V8,
    /// Python.
    Cpython,
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hotspot => "hotspot",
            Self::V8 => "v8",
            Self::Cpython => "cpython",
        })
    }
}

/// What a squeezer begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    squeezer: u32,
    /// Its runtime.
    pub runtime: Runtime,
    /// The runtime's version, as that names it.
    pub runtime_version: String,
    /// The name of the collector, where there are several.
    #[serde(deserialize_with = "Option::deserialize")] // null must be said
    pub collector: Option<String>,
    /// The process, as it sees itself.
    pub pid: u32,
    /// Why it will do nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// How much to give back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Keep what makes the next request fast.
    #[default]
    Keep,
    /// Give back whatever can be made again.
    All,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    /// Collect garbage, and give back the free pages of the heap.
    pub heap: bool,
    /// Give back free pages of malloc, and what else the runtime keeps beside its heap.
    pub trim: bool,
    /// How much of it.
    pub level: Level,
}

impl Default for Request {
    fn default() -> Self {
        Self { heap: true, trim: true, level: Level::Keep }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Resident memory of the heap before it.
    pub before_bytes: u64,
    /// The same after it.
    pub after_bytes: u64,
    /// What the collector found to be in use.
    pub live_bytes: u64,
    /// Addresses that were given back, resident or not.
    pub advised_bytes: u64,
    /// How long the function could not run.
    pub pause_ns: u64,
    /// Processor time of the whole process meanwhile.
    pub cpu_ns: u64,
    #[serde(skip_serializing, deserialize_with = "Option::deserialize")] // null must be said
    error: Option<String>,
}

impl Hello {
    /// Checks a hello.
    pub(crate) fn parse(line: &[u8]) -> Result<Self> {
        // Another version may have other keys, so its number is read first.
        #[derive(Deserialize)]
        struct Version {
            squeezer: u32,
        }
        let Version { squeezer: version } = parse("hello", line)?;
        if version != VERSION {
            return Err(Error::Protocol(format!("it speaks version {version}")));
        }
        let hello: Self = parse("hello", line)?;
        if hello.pid == 0 {
            return Err(Error::Protocol("in its hello, \"pid\" is 0".to_owned()));
        }
        Ok(Self {
            runtime_version: printable(&hello.runtime_version),
            collector: hello.collector.as_deref().map(printable),
            refused: hello.refused.as_deref().map(printable),
            ..hello
        })
    }
}

impl Request {
    /// The line that asks for it.
    pub(crate) fn line(&self) -> String {
        format!("{}\n", serde_json::json!({ "squeeze": self }))
    }
}

impl Answer {
    /// Checks an answer; one with an error becomes [`Error::Squeezer`].
    pub(crate) fn parse(line: &[u8]) -> Result<Self> {
        let answer: Self = parse("answer", line)?;
        let numbers = [
            answer.before_bytes,
            answer.after_bytes,
            answer.live_bytes,
            answer.advised_bytes,
            answer.pause_ns,
            answer.cpu_ns,
        ];
        if let Some(number) = numbers.into_iter().find(|&number| number > MOST) {
            return Err(Error::Protocol(format!("in its answer, {number} is too large")));
        }
        match answer.error {
            Some(error) => Err(Error::Squeezer(printable(&error))),
            None => Ok(answer),
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(what: &str, line: &'a [u8]) -> Result<T> {
    serde_json::from_slice(line)
        .map_err(|error| Error::Protocol(format!("its {what}: {}", printable(&error.to_string()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HELLO: &str = r#"{"squeezer":1,"runtime":"hotspot","runtime_version":"17.0.15+6","collector":"g1","pid":42}"#;
    const ANSWER: &str = r#"{"before_bytes":5,"after_bytes":4,"live_bytes":3,"advised_bytes":2,"pause_ns":1,"cpu_ns":0,"error":null}"#;

    fn rejected(hello: &str) -> String {
        Hello::parse(hello.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn the_hello_of_the_description() {
        let hello = Hello::parse(HELLO.as_bytes()).unwrap();
        assert_eq!((hello.runtime, hello.pid), (Runtime::Hotspot, 42));
        assert_eq!(hello.collector.as_deref(), Some("g1"));
        assert_eq!(hello.refused, None);
        let refused = HELLO.replace("}", r#","refused":"ZGC is not known"}"#);
        let refused = Hello::parse(refused.as_bytes()).unwrap().refused;
        assert_eq!(refused.as_deref(), Some("ZGC is not known"));
    }

    #[test]
    fn a_hello_that_is_none() {
        assert!(rejected("SSH-2.0-OpenSSH_9.2").contains("its hello: "));
        assert!(rejected(&HELLO.replace(":1", ":2").replace("pid", "id")).contains("version 2"));
        assert!(rejected(&HELLO.replace("hotspot", "jython")).contains("unknown variant"));
        assert!(rejected(&HELLO.replace("pid", "id")).contains("unknown field"));
        assert!(rejected(&HELLO.replace(r#""collector":"g1","#, "")).contains("missing field"));
        assert!(rejected(&HELLO.replace("42", "0")).contains("\"pid\" is 0"));
        assert!(rejected(&HELLO.replace("42", "-1")).contains("its hello: "));
        assert!(rejected(&format!("{HELLO}{HELLO}")).contains("trailing characters"));
    }

    #[test]
    fn the_request_of_the_description() {
        let expected = r#"{"squeeze":{"heap":true,"trim":true,"level":"keep"}}"#;
        let said: serde_json::Value = serde_json::from_str(&Request::default().line()).unwrap();
        assert_eq!(said, serde_json::from_str::<serde_json::Value>(expected).unwrap());
        let longest = Request { heap: false, trim: false, level: Level::Keep }.line();
        assert!(longest.len() <= MOST_REQUEST_BYTES && longest.ends_with('\n'));
    }

    #[test]
    fn the_answer_of_the_description() {
        let answer = Answer::parse(ANSWER.as_bytes()).unwrap();
        assert_eq!((answer.before_bytes, answer.after_bytes, answer.live_bytes), (5, 4, 3));
        assert_eq!((answer.advised_bytes, answer.pause_ns, answer.cpu_ns), (2, 1, 0));
    }

    #[test]
    fn an_answer_that_is_none() {
        let rejected = |text: String| Answer::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(rejected(ANSWER.replace(":5", ":-5")).contains("its answer: "));
        assert!(rejected(ANSWER.replace(":5", ":5.5")).contains("its answer: "));
        assert!(rejected(ANSWER.replace(":5", ":9007199254740992")).contains("too large"));
        assert!(rejected(ANSWER.replace("{", r#"{"more":1,"#)).contains("unknown field"));
        assert!(rejected(ANSWER.replace(r#""live_bytes":3,"#, "")).contains("missing field"));
        assert!(rejected(ANSWER.replace(r#","error":null"#, "")).contains("missing field"));
        assert!(rejected(ANSWER.replace("null", r#""no\nheap""#)).ends_with("says: no heap"));
        assert_eq!(
            Answer::parse(ANSWER.replace(":5", ":9007199254740991").as_bytes())
                .unwrap()
                .before_bytes,
            MOST
        );
    }

    proptest! {
        #[test]
        fn whatever_a_squeezer_says_is_an_error_or_within_bounds(
            position in 0..HELLO.len(), byte: u8, line in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut near = HELLO.as_bytes().to_vec();
            near[position] = byte;
            for line in [&line, &near] {
                if let Ok(hello) = Hello::parse(line) {
                    prop_assert!(hello.pid > 0);
                    prop_assert!(!hello.runtime_version.chars().any(char::is_control));
                }
                let _ = Answer::parse(line);
            }
        }
    }
}
