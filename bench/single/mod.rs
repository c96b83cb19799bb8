//! Memory of one frozen instance after many calls: as it is, with eager collection, squeezed, and
//! as it would be at best (Figures 7, 8 and 12 of the Desiccant paper). See README.md.

mod report;

use crate::common::{
    Experiment,
    bound::Bound,
    error::Result,
    lab::Lab,
    native::{Case, Functions, OfSubject, Sizes, Subject, cases},
    options::Options,
    record::{Header, Record},
    table::Table,
};
use serde::{Deserialize, Serialize};
use squeezy_reclaim::{Memory, Request};

/// What an instance was when it was looked at.
const VANILLA: &str = "vanilla";
const EAGER: &str = "eager";
const RECLAIM: &str = "reclaim";
const LIBRARIES: &str = "reclaim+libraries";
const IDEAL: &str = "ideal";

/// The experiment's command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    functions: Functions,
    #[command(flatten)]
    sizes: Sizes,
}

/// A frozen instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) header: Header,
    #[serde(flatten)]
    pub(crate) subject: Subject,
    /// As the header's `method`.
    pub(crate) variant: String,
    pub(crate) uss_bytes: u64,
    pub(crate) rss_bytes: u64,
    pub(crate) pss_bytes: u64,
    /// Resident memory of its heap.
    pub(crate) heap_bytes: u64,
    /// What of its heap was in use, by the collection after it was looked at, or just before.
    pub(crate) live_bytes: u64,
    /// Pages of files that another process maps too, as of when libraries were evicted.
    pub(crate) shared_bytes: u64,
}

impl Record for Line {
    fn header(&self) -> &Header {
        &self.header
    }

    fn function(&self) -> &str {
        &self.subject.function
    }
}

impl OfSubject for Line {
    fn subject(&self) -> &Subject {
        &self.subject
    }
}

impl Experiment for Arguments {
    const NAME: &'static str = "single";
    type Record = Line;

    fn options(&self) -> &Options {
        &self.options
    }

    async fn measure(&self, lab: &mut Lab<Line>) -> Result {
        let functions = self.functions.find(lab).await?;
        let sizes = self.sizes.or_default(self.options.quick);
        let cases = cases(self.options.trials_or(1, 5), &functions, sizes, &[false, true]);
        lab.each(&cases, async |lab, case| self.one(lab, case).await).await
    }

    fn table(records: &[Line]) -> Table {
        report::table(records)
    }

    fn bounds(records: &[Line]) -> Vec<Bound> {
        report::bounds(records)
    }

    fn plot(records: &[Line]) -> Result<String> {
        report::plot(records)
    }
}

impl Arguments {
    /// One instance: all that can be seen of it, one after the other.
    async fn one(&self, lab: &mut Lab<Line>, case: &Case) -> Result {
        let quick = self.options.quick;
        let (instance, calls_count) = self.functions.warm(case, quick, async |_| Ok(())).await?;
        instance.freeze().await?;
        let found = instance.memory().await?;
        instance.thaw().await?;
        let reclaimed = instance.reclaim(Request::default()).await?;
        instance.freeze().await?;
        let squeezed = instance.memory().await?;
        let evicted = instance.evict_libraries().await?;
        let without_libraries = instance.memory().await?;

        let answer = &reclaimed.answer;
        let garbage = answer.before_bytes.saturating_sub(answer.live_bytes);
        let subject = Subject::new(case, &instance, reclaimed.runtime(), calls_count);
        let mut keep = |variant: &str, memory: Memory, heap_bytes| {
            lab.keep(Line {
                header: lab.native_header(variant, case.trial),
                subject: subject.clone(),
                variant: variant.to_owned(),
                uss_bytes: memory.uss_bytes,
                rss_bytes: memory.rss_bytes,
                pss_bytes: memory.pss_bytes,
                heap_bytes,
                live_bytes: answer.live_bytes,
                shared_bytes: evicted.shared_bytes,
            })
        };
        if case.eager {
            return keep(EAGER, found, answer.before_bytes);
        }
        keep(VANILLA, found, answer.before_bytes)?;
        keep(RECLAIM, squeezed, answer.after_bytes)?;
        keep(LIBRARIES, without_libraries, answer.after_bytes)?;
        keep(IDEAL, less(found, garbage), answer.live_bytes)
    }
}

/// The memory of a process without so much of its own.
fn less(memory: Memory, bytes: u64) -> Memory {
    Memory {
        uss_bytes: memory.uss_bytes.saturating_sub(bytes),
        rss_bytes: memory.rss_bytes.saturating_sub(bytes),
        pss_bytes: memory.pss_bytes.saturating_sub(bytes),
    }
}
