//! The interface of experiments, and how each gets from its command line to its plot.

use super::{Options, Session};
use crate::{
    error::{BenchError, Result},
    record::{self, Measured, Recorded},
    report::{Assessment, Assessments, Chart, Table},
};
use std::path::Path;

/// How an experiment measures. Its fields are its command-line arguments.
pub(crate) trait Experiment: clap::Args + Report {
    /// Its name on the command line, in its lines and in bench/targets.toml.
    const NAME: &'static str;

    /// Rejects invalid arguments before anything is started.
    fn check(&self) -> Result {
        Ok(())
    }

    /// Measures; the session records each line.
    async fn measure(&self, session: &mut Session<Self::Figures>) -> Result;
}

/// How an experiment's lines are reported.
pub(crate) trait Report {
    /// The figures of one line.
    type Figures: Recorded;

    /// A summary of the figures.
    fn table(records: &[Measured<Self::Figures>]) -> Table;

    /// Assesses the experiment's targets.
    fn assess(_records: &[Measured<Self::Figures>], _assessments: &mut Assessments) {}

    /// The plot.
    fn plot(records: &[Measured<Self::Figures>]) -> Chart;
}

// A doc comment here would replace the help of every experiment.
#[derive(Debug, clap::Args)]
pub(crate) struct Run<E: Experiment> {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    experiment: E,
}

impl<E: Experiment> Run<E> {
    /// Measures, or reads earlier lines, and reports the results.
    pub(crate) async fn execute(self) -> Result {
        let Self { options, experiment } = self;
        experiment.check()?;
        let (records, failures) = match &options.from {
            Some(path) => (record::read(path, E::NAME)?, Vec::new()),
            None => {
                let mut session = Session::open(E::NAME, &options)?;
                experiment.measure(&mut session).await?;
                session.close()
            }
        };
        if records.is_empty() {
            return Err(match failures.is_empty() {
                true => BenchError::Arguments(
                    "nothing was measured: no method is left to compare".to_owned(),
                ),
                false => BenchError::Incomplete(failures.join("; ")),
            });
        }
        let assessed = assess::<E>(&records).into_iter().map(|verdict| format!("{verdict}\n"));
        let text = format!("{}{}", E::table(&records), assessed.collect::<String>());
        // The reader may have closed the pipe.
        let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
        if let Some(path) = &options.plot {
            let svg = E::plot(&records).svg()?;
            std::fs::write(path, svg).map_err(|e| BenchError::file(path, e))?;
        }
        if failures.is_empty() { Ok(()) } else { Err(BenchError::Incomplete(failures.join("; "))) }
    }
}

/// Assesses an experiment's targets by these lines.
pub(crate) fn assess<E: Experiment>(records: &[Measured<E::Figures>]) -> Vec<Assessment> {
    let mut assessments = Assessments::of(E::NAME);
    E::assess(records, &mut assessments);
    assessments.into_vec()
}

/// Assesses an experiment's targets by its recorded lines, in its folder in `results`.
pub(crate) fn recorded<E: Experiment>(results: &Path) -> Result<Vec<Assessment>> {
    let path = results.join(E::NAME).join("results.jsonl");
    Ok(assess::<E>(&record::read(&path, E::NAME)?))
}
