//! What the experiments with plain processes go through.

use super::function::NativeFunction;
use crate::common::{lab::Step, size};
use std::{fmt, sync::Arc};

/// One instance, looked at after it has been called for a while.
pub(crate) struct Case {
    pub(crate) function: Arc<NativeFunction>,
    pub(crate) memory_bytes: u64,
    /// Whether it collects garbage after each request.
    pub(crate) eager: bool,
    pub(crate) trial: u32,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, memory_bytes, eager, trial } = self;
        let eager = if *eager { " with eager collection" } else { "" };
        let (language, size) = (function.language, size::show(*memory_bytes));
        write!(f, "{} in {language}, {size}{eager}, trial {trial}", function.name)
    }
}

impl Step for Case {}

/// Trials are far apart, and what is compared comes one after the other, so that what changes on
/// the machine meanwhile hits all.
pub(crate) fn cases(
    trials: u32,
    functions: &[Arc<NativeFunction>],
    sizes: &[u64],
    eager: &[bool],
) -> Vec<Case> {
    let mut cases = Vec::new();
    for trial in 0..trials {
        for function in functions {
            for &memory_bytes in sizes {
                cases.extend(eager.iter().map(|&eager| {
                    let function = function.clone();
                    Case { function, memory_bytes, eager, trial }
                }));
            }
        }
    }
    cases
}
