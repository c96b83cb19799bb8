//! Memory of one frozen instance after many calls: unmodified, with eager collection, squeezed, and
//! in the ideal case (Figures 7, 8 and 12 of the Desiccant paper). See README.md.

mod report;

use crate::{
    error::Result,
    harness::{Experiment, Session},
    rigs::process::{OfProcess, ProcessOptions, Subject, Trial},
};
use serde::{Deserialize, Serialize};
use squeezer::{Memory, Request};

/// The state of an instance when it was measured.
const VANILLA: &str = "vanilla";
const EAGER: &str = "eager";
const RECLAIM: &str = "reclaim";
const LIBRARIES: &str = "reclaim+libraries";
const IDEAL: &str = "ideal";

/// Memory of a frozen Java or JavaScript instance, unmodified and squeezed.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    processes: ProcessOptions,
}

/// A frozen instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Same as `method` in the header.
    variant: String,
    uss_bytes: u64,
    rss_bytes: u64,
    pss_bytes: u64,
    /// Resident memory of its heap.
    heap_bytes: u64,
    /// Live data in its heap, by the garbage collection after the measurement or just before it.
    live_bytes: u64,
    /// Pages of files that another process maps too, when libraries were evicted.
    shared_bytes: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "single";

    async fn measure(&self, session: &mut Session<OfProcess<Figures>>) -> Result {
        let count = session.options.trials_or(1, 5);
        let trials = self.processes.trials(session, count, &[false, true]).await?;
        session.each(&trials, async |session, trial| self.one(session, trial).await).await
    }
}

impl Arguments {
    /// Measures all variants of one instance in turn.
    async fn one(&self, session: &mut Session<OfProcess<Figures>>, trial: &Trial) -> Result {
        let quick = session.options.quick;
        let (instance, calls_count) =
            self.processes.functions.warm(trial, quick, async |_| Ok(())).await?;
        instance.freeze().await?;
        let found = instance.memory().await?;
        instance.thaw().await?;
        let squeezed = instance.squeeze(Request::default()).await?;
        instance.freeze().await?;
        let after = instance.memory().await?;
        let evicted = instance.evict_libraries().await?;
        let without_libraries = instance.memory().await?;

        let answer = &squeezed.answer;
        let garbage = answer.before_bytes.saturating_sub(answer.live_bytes);
        let subject = Subject::new(trial, &instance, squeezed.runtime(), calls_count);
        let mut keep = |variant: &str, memory: Memory, heap_bytes| {
            session.keep(
                trial.header(session, variant),
                OfProcess {
                    subject: subject.clone(),
                    figures: Figures {
                        variant: variant.to_owned(),
                        uss_bytes: memory.uss_bytes,
                        rss_bytes: memory.rss_bytes,
                        pss_bytes: memory.pss_bytes,
                        heap_bytes,
                        live_bytes: answer.live_bytes,
                        shared_bytes: evicted.shared_bytes,
                    },
                },
            )
        };
        if trial.eager {
            return keep(EAGER, found, answer.before_bytes);
        }
        keep(VANILLA, found, answer.before_bytes)?;
        keep(RECLAIM, after, answer.after_bytes)?;
        keep(LIBRARIES, without_libraries, answer.after_bytes)?;
        keep(IDEAL, less(found, garbage), answer.live_bytes)
    }
}

/// `memory` with `bytes` less of its own.
fn less(memory: Memory, bytes: u64) -> Memory {
    Memory {
        uss_bytes: memory.uss_bytes.saturating_sub(bytes),
        rss_bytes: memory.rss_bytes.saturating_sub(bytes),
        pss_bytes: memory.pss_bytes.saturating_sub(bytes),
    }
}
