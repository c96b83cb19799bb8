//! What the experiments with the runtime go through: policies, with one function or with several.

use super::lab::Step;
use squeezy_node::{FunctionImage, PolicyName};
use std::fmt;

/// One trial of one policy.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) policy: PolicyName,
    /// The functions that are on the node.
    pub(crate) functions: &'a [FunctionImage],
    pub(crate) trial: u32,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, functions, trial } = self;
        let names: Vec<_> = functions.iter().map(|image| image.function.name.as_str()).collect();
        write!(f, "{policy}, {}, trial {trial}", names.join(" and "))
    }
}

impl Step for Case<'_> {}

/// Policies take turns, and trials are far apart, so that what changes on the host meanwhile hits
/// all. For a case with each function by itself `groups` is `functions.chunks(1)`.
pub(crate) fn cases<'a>(
    trials: u32,
    groups: impl IntoIterator<Item = &'a [FunctionImage]> + Clone,
    policies: &[PolicyName],
) -> Vec<Case<'a>> {
    let mut cases = Vec::new();
    for trial in 0..trials {
        for functions in groups.clone() {
            cases.extend(policies.iter().map(|&policy| Case { policy, functions, trial }));
        }
    }
    cases
}
