//! Numbers in a row.

use std::ops::Range;

/// The runs of numbers below `end` that a set contains, each as long as it can be, from the lowest up.
pub(crate) fn runs(end: u32, contains: impl Fn(u32) -> bool) -> impl Iterator<Item = Range<u32>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let start = (next..end).find(|&number| contains(number))?;
        next = (start..end).find(|&number| !contains(number)).unwrap_or(end);
        Some(start..next)
    })
}
