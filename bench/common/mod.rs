//! What the experiments share.

pub(crate) mod bound;
pub(crate) mod cases;
pub(crate) mod chart;
pub(crate) mod error;
pub(crate) mod estimate;
pub(crate) mod fleet;
pub(crate) mod functions;
pub(crate) mod interrupt;
pub(crate) mod lab;
pub(crate) mod load;
pub(crate) mod native;
pub(crate) mod options;
pub(crate) mod policies;
pub(crate) mod processor;
pub(crate) mod progress;
pub(crate) mod record;
pub(crate) mod select;
pub(crate) mod size;
pub(crate) mod stand;
pub(crate) mod stats;
pub(crate) mod table;

use bound::Bound;
use error::{BenchError, Result};
use lab::Lab;
use options::Options;
use record::Record;
use table::Table;

/// One experiment: its arguments, how it measures, and what is made of its lines.
pub(crate) trait Experiment {
    /// Its name on the command line and in its lines.
    const NAME: &'static str;
    /// One measurement.
    type Record: Record;

    /// How to measure and where results go.
    fn options(&self) -> &Options;
    /// Refuses what makes no sense, before anything is started.
    fn check(&self) -> Result {
        Ok(())
    }
    /// Measures; the lab keeps each line.
    async fn measure(&self, lab: &mut Lab<Self::Record>) -> Result;
    /// The figures in short.
    fn table(records: &[Self::Record]) -> Table;
    /// The promised numbers that these lines say something about.
    fn bounds(_records: &[Self::Record]) -> Vec<Bound> {
        Vec::new()
    }
    /// The plot, as SVG.
    fn plot(records: &[Self::Record]) -> Result<String>;
}

/// Runs an experiment from its arguments to its plot.
pub(crate) async fn run<E: Experiment>(experiment: E) -> Result {
    experiment.check()?;
    let options = experiment.options();
    let (records, failures) = match &options.from {
        Some(path) => (record::read(path, E::NAME)?, Vec::new()),
        None => {
            let mut lab = Lab::open(E::NAME, options)?;
            experiment.measure(&mut lab).await?;
            lab.close()
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
    let bounds = E::bounds(&records).into_iter().map(|bound| format!("{bound}\n"));
    let text = format!("{}{}", E::table(&records), bounds.collect::<String>());
    // Whoever reads may have read enough.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
    if let Some(path) = &options.plot {
        let svg = E::plot(&records)?;
        std::fs::write(path, svg).map_err(|e| BenchError::file(path, e))?;
    }
    if failures.is_empty() { Ok(()) } else { Err(BenchError::Incomplete(failures.join("; "))) }
}
