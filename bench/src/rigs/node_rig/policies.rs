//! Which policies an experiment with a node compares.

use squeezy_node::PolicyName;

/// The option that selects policies.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Policies {
    /// The policies to compare, separated by commas: squeezy, virtio-mem, balloon, static, harvest,
    /// overcommit, microvm
    #[arg(long = "methods", value_name = "LIST", value_delimiter = ',')]
    policies: Vec<PolicyName>,
}

impl Policies {
    /// The requested policies without duplicates, otherwise the default.
    pub(crate) fn or(&self, default: &[PolicyName]) -> Vec<PolicyName> {
        let mut chosen = Vec::new();
        for &policy in if self.policies.is_empty() { default } else { &self.policies } {
            if !chosen.contains(&policy) {
                chosen.push(policy);
            }
        }
        chosen
    }
}
