//! Trials of the experiments with plain processes.

use super::function::NativeFunction;
use crate::{
    harness::{Session, Step},
    record::{Header, NATIVE, Recorded},
    size,
};
use std::{fmt, sync::Arc};

/// A trial: an instance, measured after it has been called for a while.
pub(crate) struct Trial {
    pub(crate) function: Arc<NativeFunction>,
    pub(crate) memory_bytes: u64,
    /// Whether it collects garbage after each request.
    pub(crate) eager: bool,
    /// Number of the trial under the same conditions, from 0.
    pub(crate) number: u32,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, memory_bytes, eager, number } = self;
        let eager = if *eager { " with eager collection" } else { "" };
        let (language, size) = (function.language, size::show(*memory_bytes));
        write!(f, "{} in {language}, {size}{eager}, trial {number}", function.name)
    }
}

impl Step for Trial {}

impl Trial {
    /// The header of a line about it, without a guest.
    pub(crate) fn header<F: Recorded>(&self, session: &Session<F>, method: &str) -> Header {
        header(session, method, self.number)
    }
}

/// The header of a line about plain processes.
pub(crate) fn header<F: Recorded>(session: &Session<F>, method: &str, trial: u32) -> Header {
    let none = || NATIVE.to_owned();
    Header { accelerator: none(), memory_backend: none(), ..session.header(method, trial, None) }
}

/// Trials are far apart, and what is compared is measured in succession, so that changes on the
/// machine affect all of them.
pub(crate) fn trials(
    count: u32,
    functions: &[Arc<NativeFunction>],
    sizes: &[u64],
    eager: &[bool],
) -> Vec<Trial> {
    let mut trials = Vec::new();
    for number in 0..count {
        for function in functions {
            for &memory_bytes in sizes {
                trials.extend(eager.iter().map(|&eager| {
                    let function = function.clone();
                    Trial { function, memory_bytes, eager, number }
                }));
            }
        }
    }
    trials
}
