//! The cold start of a function given as code, which comes with the first request to an instance of a runtime or is on a
//! drive of its VM, compared with that of the same function in an image of its own. See README.md.

mod contract;
mod function;
mod report;

use crate::{
    error::{BenchError, Result},
    experiments::coldstart,
    harness::{self, Experiment, Session},
    record::{Measured, OfFunction},
    rigs::{
        load::Arrival,
        node_rig::{NodeRig, NodeRigPlan},
        prepare::prepare,
    },
};
use function::{FUNCTIONS, Given, TwiceGiven};
use serde::{Deserialize, Serialize};
use squeezy_node::PolicyName;
use squeezy_vmm::mechanism::MechanismName;
use std::{fmt, slice, time::Duration};

/// The function is in its image.
const IMAGE: &str = "image";
/// The function is code, which the image of a runtime gets with the first request, or from a drive.
const CODE: &str = "code";

/// What makes images and code, in the checkout.
const BUILD_SCRIPT: &str = "bench/src/experiments/code/build.sh";

/// A page of a guest, in bytes.
const PAGE_BYTES: u64 = 4096;

/// Time to the first answer of a function given as code, and of the same in an image of its own.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The functions, separated by commas: python, node, native, html
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = function::find)]
    functions: Vec<&'static TwiceGiven>,
}

/// A cold start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    #[serde(flatten)]
    start: coldstart::Figures,
    /// The body of the first request to the instance's server, with the code if it brings any.
    sent_bytes: u64,
    /// Pages of its partition that the instance uses after its first answer, files in memory included.
    used_pages: u64,
}

/// A record.
type Line = Measured<Figures>;

impl OfFunction for Figures {
    fn function(&self) -> &str {
        &self.start.function
    }
}

/// A trial of a function, given in one of two ways.
struct Step<'a> {
    given: &'a Given,
    trial: u32,
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Given { method, image, .. } = self.given;
        write!(f, "trial {}: {} as {method}", self.trial + 1, image.function.name)
    }
}

impl harness::Step for Step<'_> {}

impl Experiment for Arguments {
    const NAME: &'static str = "code";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let functions: Vec<&TwiceGiven> = match self.functions.is_empty() {
            true => FUNCTIONS.iter().collect(),
            false => self.functions.clone(),
        };
        let files = functions.iter().flat_map(|function| function.files(&session.files));
        prepare(session.files.path(), files, BUILD_SCRIPT, &session.progress).await?;
        let ways = functions.iter().map(|function| function.ways(&session.files));
        let ways = ways.collect::<Result<Vec<_>>>()?;
        let mut steps = Vec::new();
        for trial in 0..session.options.trials_or(2, 8) {
            for ways in &ways {
                let mut ways = ways.each_ref();
                ways.rotate_left(trial as usize % 2);
                steps.extend(ways.map(|given| Step { given, trial }));
            }
        }
        session.each(&steps, one).await
    }
}

/// The first instance in a VM, which has to be booted, and a further one after it has ended.
async fn one(session: &mut Session<Figures>, step: &Step<'_>) -> Result {
    let Given { method, image, contract } = step.given;
    let function = &image.function;
    let first = contract.start(function).await.map_err(BenchError::function)?;
    let sent_bytes = first.body().len() as u64;
    let policy = PolicyName::Mechanism(MechanismName::Squeezy);
    let plan = NodeRigPlan {
        contract: contract.clone(),
        ..NodeRigPlan::abundant(policy, Duration::from_secs(3600))
    };
    let rig = NodeRig::start(session, slice::from_ref(image), &plan).await?;
    for vm_was_there in [false, true] {
        let seen_before = rig.seen().len();
        let answered = rig.call(Arrival { at: Duration::ZERO, member: 0 }).await;
        if let Some(problem) = &answered.problem {
            return Err(BenchError::function(problem.clone()));
        }
        let used_pages = rig.used_bytes().await? / PAGE_BYTES;
        rig.evict().await?;
        let seen = &rig.seen()[seen_before..];
        let start = coldstart::Figures::of(function, vm_was_there, &answered, seen);
        let header = session.header(method, step.trial, rig.guest().as_ref());
        session.keep(header, Figures { start, sent_bytes, used_pages })?;
    }
    rig.stop().await;
    Ok(())
}
