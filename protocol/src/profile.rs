//! Where the guest kernel spends its time, by ftrace's function profiler.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which kernel functions to count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileRequest {
    /// At most 64 names of traceable functions; a name the kernel does not have is skipped.
    pub functions: Vec<String>,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// By function; one that was never called is absent.
    pub functions: BTreeMap<String, FunctionCalls>,
}

/// How often a function was called, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCalls {
    /// Calls over all processors.
    pub calls: u64,
    /// Nanoseconds in it, with what it called, over all processors.
    pub time_ns: u64,
}
