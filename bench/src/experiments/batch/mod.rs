//! The host memory of a VM that compiles a C project again and again, with idle time in between (Figure 10 of the
//! HyperAlloc paper). See README.md.

use crate::{
    error::Result,
    harness::{Experiment, Report, Session},
    record::{Measured, describe_run},
    report::{
        Assessments, Estimate, Spread, Table, by_method,
        chart::{Chart, Panel, Series},
        methods, of_method, sorted,
    },
    rigs::compile_vm::{
        CLEAN, CompileVm, Footprint, LEGEND, LIMIT, Reclaim, compile, over_time, watch,
    },
    size::mib,
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::MemoryBackend;
use std::time::{Duration, Instant};

/// How often the project is compiled.
const JOBS: u32 = 2;
/// How long the VM is idle after each time.
const IDLE: Duration = Duration::from_secs(20);

/// The host memory of a VM that compiles a C project again and again, with idle time in between.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// A job, or the idle time after it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Its number, from 0.
    job: u32,
    is_idle: bool,
    #[serde(flatten)]
    footprint: Footprint,
}

impl Experiment for Arguments {
    const NAME: &'static str = "batch";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        // Only memory that the host shares can be taken from outside, so all methods have it.
        session.options.memory_backend = MemoryBackend::Memfd;
        let trials = session.options.trials_or(1, 5);
        let jobs = if session.options.quick { 1 } else { JOBS };
        let in_trial = |trial| Reclaim::in_trial(&Reclaim::COMPARED, trial);
        session.progress.plan((0..trials).flat_map(in_trial).count() as f64);
        for trial in 0..trials {
            let start = Instant::now();
            for reclaim in in_trial(trial) {
                session.progress.say(&format!("trial {} of {trials}: {reclaim}", trial + 1));
                one(session, reclaim, trial, jobs).await?;
                session.progress.advance(1.0);
            }
            if !session.has_time(start.elapsed()) {
                break;
            }
        }
        Ok(())
    }
}

/// All jobs in one VM.
async fn one(session: &mut Session<Figures>, reclaim: Reclaim, trial: u32, jobs: u32) -> Result {
    let vm = CompileVm::start(session, reclaim).await?;
    let (compile, idle) = (compile(1), IDLE.as_secs());
    let script: Vec<_> = (0..jobs)
        .map(|job| format!("{compile}; {CLEAN}; echo built{job}; sleep {idle}; echo idle{job}"))
        .collect();
    vm.begin(&format!("{}; sleep 1000", script.join("; "))).await?;
    for job in 0..jobs {
        for is_idle in [false, true] {
            let word = format!("{}{job}", if is_idle { "idle" } else { "built" });
            let ((), footprint) = watch(&[&vm], reclaim, vm.said(&word, LIMIT)).await?;
            let header = session.header(&reclaim.to_string(), trial, Some(vm.guest()));
            session.keep(header, Figures { job, is_idle, footprint })?;
        }
    }
    vm.stop().await
}

/// A record.
type Line = Measured<Figures>;

/// A column of the table.
type Column<'a> = crate::report::Column<'a, Line>;

/// GiB-minutes of each trial, all jobs and idle times together.
fn each_trial(records: &[Line], method: &str) -> Vec<f64> {
    let of_method: Vec<_> = of_method(records, method).collect();
    let trials = sorted(&of_method, |line| line.header.trial);
    let sum = |trial: &u32| {
        let of_trial = of_method.iter().filter(|line| line.header.trial == *trial);
        of_trial.map(|line| line.footprint.gib_minutes).sum()
    };
    trials.iter().map(sum).collect()
}

impl Report for Arguments {
    type Figures = Figures;

    fn table(records: &[Line]) -> Table {
        let by_method = by_method(records);
        Table::of(
            records,
            |line| (by_method(line), line.job, line.is_idle),
            &[
                Column::common("batch, reclaimed by", |line| line.header.method.clone()),
                Column::common("job", |line| line.job.to_string()),
                Column::common("", |line| {
                    if line.is_idle { "idle" } else { "compiles" }.to_owned()
                }),
                Column::count("n"),
                Column::median("seconds", |line| line.footprint.seconds),
                Column::median("GiB-minutes", |line| line.footprint.gib_minutes),
                Column::quartiles("quartiles", |line| line.footprint.gib_minutes),
                Column::median("peak MiB", |line| mib(line.footprint.peak_bytes)),
                Column::median("at the end MiB", |line| mib(line.footprint.end_bytes)),
            ],
        )
    }

    fn assess(records: &[Line], assessments: &mut Assessments) {
        for (method, target) in
            [("soft", "gib-minutes-blocks"), ("soft, pages", "gib-minutes-pages")]
        {
            assessments.add(
                target,
                format!("GiB-minutes, {method} relative to free page reporting"),
                Estimate::ratio(each_trial(records, method), each_trial(records, "reporting")),
            );
        }
    }

    fn plot(records: &[Line]) -> Chart {
        let methods = methods(records);
        let total = Panel {
            title: "In all".to_owned(),
            x: String::new(),
            y: "GiB-minutes".to_owned(),
            categories: vec!["jobs and idle times".to_owned()],
            series: Series::of_methods(&methods, |method| {
                vec![Spread::of(each_trial(records, method))]
            }),
            joined: false,
            logarithmic: false,
        };
        Chart {
            title: "Host memory of a VM that compiles a C project again and again".to_owned(),
            subtitle: describe_run(records),
            panels: vec![
                total,
                over_time(&methods, |method| {
                    let first = of_method(records, method).filter(|line| line.header.trial == 0);
                    first.flat_map(|line| line.footprint.samples_bytes.clone()).collect()
                }),
            ],
            foot: format!("{LEGEND} The VM is idle for {} s after each time.", IDLE.as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{harness::assess, record::tests::header};

    #[test]
    fn jobs_and_idle_times_of_a_trial_are_summed_up() {
        let line = |method, job, is_idle, gib_minutes| Measured {
            header: header("batch", method, 0),
            figures: Figures {
                job,
                is_idle,
                footprint: Footprint { gib_minutes, ..Footprint::default() },
            },
        };
        let records = [
            line("reporting", 0, false, 3.0),
            line("reporting", 0, true, 1.0),
            line("soft", 0, false, 1.5),
            line("soft", 0, true, 0.5),
        ];
        assert_eq!(assess::<Arguments>(&records)[0].measured.value, 0.5);
        assert!(Arguments::table(&records).to_string().contains("compiles"));
        assert!(Arguments::plot(&records).svg().unwrap().contains("reporting"));
    }
}
