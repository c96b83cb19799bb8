//! What an experiment with functions on a node is told on its command line.

use super::{Functions, Policies, Trial, functions::Usual, trials};
use crate::{error::Result, harness::Session, record::Recorded};
use squeezy_node::{FunctionImage, PolicyName};

/// Which functions are called, and under which policies.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FleetOptions {
    #[command(flatten)]
    pub(crate) functions: Functions,
    #[command(flatten)]
    pub(crate) policies: Policies,
}

impl FleetOptions {
    /// Those functions that were named, else the usual ones.
    pub(crate) fn functions<F: Recorded>(
        &self,
        session: &Session<F>,
        usual: &Usual,
    ) -> Result<Vec<FunctionImage>> {
        self.functions.find(session, usual.names(session.options.quick))
    }

    /// So many trials of each function by itself, under the policies that were named or these.
    pub(crate) fn trials_of_each<'a>(
        &self,
        count: u32,
        functions: &'a [FunctionImage],
        policies: &[PolicyName],
    ) -> Vec<Trial<'a>> {
        trials(count, functions.chunks(1), &self.policies.or(policies))
    }
}
