//! Where a call belongs in a trace: W3C's trace context, <https://www.w3.org/TR/trace-context/>.

use std::{
    fmt::{self, Display},
    sync::Arc,
};

/// The longest `tracestate` that is passed on, in bytes; the standard asks for as many.
const MAX_STATE_BYTES: usize = 512;

/// A trace's ID, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub u128);

/// A span's ID, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(pub u64);

/// A span of a trace, as it is named in the header `traceparent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span in it.
    pub span: SpanId,
    /// Whether the trace is recorded.
    pub sampled: bool,
    /// What tracing systems say of it to themselves: the header `tracestate`.
    pub state: Option<Arc<str>>,
}

/// How a call is traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTrace {
    /// What its function is told: the span of its run.
    pub context: TraceContext,
    /// The span of the call, which the run is a part of; `None` if nobody records it.
    pub call: Option<SpanId>,
}

impl TraceContext {
    /// From the headers of a request; `None` if `traceparent` is not as the standard wants it. A `tracestate` that is
    /// not is left out.
    pub fn parse(traceparent: &str, tracestate: &str) -> Option<Self> {
        let mut parts = traceparent.split('-');
        let version = hexadecimal(parts.next()?, 2)?;
        let trace = hexadecimal(parts.next()?, 32).filter(|id| *id != 0)?;
        let span = hexadecimal(parts.next()?, 16).filter(|id| *id != 0)?;
        let flags = hexadecimal(parts.next()?, 2)?;
        // Later versions may have more parts.
        if version == 0xff || version == 0 && parts.next().is_some() {
            return None;
        }
        let is_state = (1..=MAX_STATE_BYTES).contains(&tracestate.len())
            && tracestate.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        Some(Self {
            trace: TraceId(trace),
            span: SpanId(span as u64),
            sampled: flags & 1 == 1,
            state: is_state.then(|| tracestate.into()),
        })
    }
}

/// The value of lower-case hexadecimal digits, at most 32.
fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != digits || !text.bytes().all(is_digit) {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

/// As in `traceparent`.
impl Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, sampled, .. } = self;
        write!(f, "00-{:032x}-{:016x}-{:02x}", trace.0, span.0, u8::from(*sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_was_read_is_written() {
        let context = TraceContext::parse(PARENT, "a=1,b=2").unwrap();
        assert_eq!(context.to_string(), PARENT);
        assert_eq!((context.sampled, context.state.as_deref()), (true, Some("a=1,b=2")));
        let later = format!("01{}-more", &PARENT[2..]).replace("-01-", "-fe-");
        let context = TraceContext::parse(&later, "").unwrap();
        assert_eq!(context.to_string(), PARENT.replace("7-01", "7-00"));
        assert_eq!(context.state, None);
    }

    #[test]
    fn what_the_standard_does_not_know_is_no_context() {
        for wrong in [
            "",
            "00",
            "-",
            "00-0-0-0",
            &PARENT.to_uppercase(),
            &PARENT.replace("4bf9", "+bf9"),
            &PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &PARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &format!("ff{}", &PARENT[2..]),
            &format!("{PARENT}-more"),
            &format!("{PARENT} "),
            &PARENT.replace("00f0", "é0"),
        ] {
            assert_eq!(TraceContext::parse(wrong, ""), None, "{wrong}");
        }
        for wrong in ["a=\n", "é", &"a".repeat(MAX_STATE_BYTES + 1)] {
            assert_eq!(TraceContext::parse(PARENT, wrong).unwrap().state, None, "{wrong}");
        }
    }
}
