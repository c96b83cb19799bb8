//! IDs of traces and spans.

use squeezy_node::{SpanId, TraceId};
use std::sync::atomic::{AtomicU64, Ordering};

/// Generates IDs: a counter that begins anywhere, mixed as in SplitMix64, so that none repeats in this process. They
/// need not be secret.
#[derive(Debug)]
pub struct Ids(AtomicU64);

impl Ids {
    /// IDs for this seed.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A new trace.
    pub fn trace(&self) -> TraceId {
        TraceId(u128::from(self.next()) << 64 | u128::from(self.next()))
    }

    /// A new span.
    pub fn span(&self) -> SpanId {
        SpanId(self.next())
    }

    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        loop {
            let mut id = self.0.fetch_add(STEP, Ordering::Relaxed);
            id = (id ^ id >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            id = (id ^ id >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            id ^= id >> 31;
            // Zero means that there is none.
            if id != 0 {
                return id;
            }
        }
    }
}

/// Whether a trace is among this part of all.
pub fn is_sampled(trace: TraceId, part: f64) -> bool {
    const RANDOM_BITS: u32 = 56;
    let random = trace.0 as u64 & ((1 << RANDOM_BITS) - 1);
    (random as f64) < part * (1_u64 << RANDOM_BITS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_differ_and_are_not_zero() {
        let ids = Ids::new(0);
        let all: HashSet<u64> = (0..10_000).map(|_| ids.span().0).collect();
        assert!(all.len() == 10_000 && !all.contains(&0));
    }

    #[test]
    fn a_part_of_all_traces_is_sampled() {
        let ids = Ids::new(7);
        let sampled = |part| (0..10_000).filter(|_| is_sampled(ids.trace(), part)).count();
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 10_000));
        assert!((900..1100).contains(&sampled(0.1)));
    }
}
