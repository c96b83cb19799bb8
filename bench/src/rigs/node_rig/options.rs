//! Options of an experiment with functions on a node.

use super::{Functions, Policies, Trial, functions::Usual, trials};
use crate::{error::Result, harness::Session, record::Recorded};
use squeezy_node::{FunctionImage, PolicyName};

/// Selects functions and policies.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NodeRigOptions {
    #[command(flatten)]
    pub(crate) functions: Functions,
    #[command(flatten)]
    pub(crate) policies: Policies,
}

impl NodeRigOptions {
    /// The named functions, otherwise the usual ones.
    pub(crate) fn functions<F: Recorded>(
        &self,
        session: &Session<F>,
        usual: &Usual,
    ) -> Result<Vec<FunctionImage>> {
        self.functions.find(session, usual.names(session.options.quick))
    }

    /// This many trials of each function alone, under the named policies or these.
    pub(crate) fn trials_of_each<'a>(
        &self,
        count: u32,
        functions: &'a [FunctionImage],
        policies: &[PolicyName],
    ) -> Vec<Trial<'a>> {
        trials(count, functions.chunks(1), &self.policies.or(policies))
    }
}
