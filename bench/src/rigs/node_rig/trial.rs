//! Trials of the experiments with a node: policies, with one function or several.

use crate::{
    harness::{Session, Step},
    record::{Guest, Header, Recorded},
};
use squeezy_node::{FunctionImage, MachineDetails, PolicyName};
use squeezy_vmm::Kernel;
use std::fmt;

/// A trial of one policy.
#[derive(Clone, Copy)]
pub(crate) struct Trial<'a> {
    pub(crate) policy: PolicyName,
    /// The functions on the node.
    pub(crate) functions: &'a [FunctionImage],
    /// Number of the trial of a policy with these functions, from 0.
    pub(crate) number: u32,
}

impl fmt::Display for Trial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, functions, number } = self;
        let names: Vec<_> = functions.iter().map(|image| image.function.name.as_str()).collect();
        write!(f, "{policy}, {}, trial {number}", names.join(" and "))
    }
}

impl Step for Trial<'_> {}

impl Trial<'_> {
    /// The header of a line about it, with what ran the guests.
    pub(crate) fn header<F: Recorded>(
        &self,
        session: &Session<F>,
        details: Option<&MachineDetails>,
    ) -> Header {
        session.header(self.policy.name(), self.number, details.map(guest).as_ref())
    }
}

/// The guest that these are the details of.
pub(super) fn guest(details: &MachineDetails) -> Guest {
    Guest::new(&details.kernel, Kernel::Release, &details.vmm_version)
}

/// Policies take turns, and trials are far apart, so that changes on the host affect all of them.
/// For trials of each function alone, `groups` is `functions.chunks(1)`.
pub(crate) fn trials<'a>(
    count: u32,
    groups: impl IntoIterator<Item = &'a [FunctionImage]> + Clone,
    policies: &[PolicyName],
) -> Vec<Trial<'a>> {
    let mut trials = Vec::new();
    for number in 0..count {
        for functions in groups.clone() {
            trials.extend(policies.iter().map(|&policy| Trial { policy, functions, number }));
        }
    }
    trials
}
