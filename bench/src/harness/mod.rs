//! Runs an experiment: its command line, its session, and its reports.

mod experiment;
pub(crate) mod interrupt;
mod options;
pub(crate) mod processor;
mod progress;
mod session;
mod step;

#[cfg(test)]
pub(crate) use experiment::assess;
pub(crate) use experiment::{Experiment, Report, Run, recorded};
pub(crate) use options::Options;
pub(crate) use progress::Progress;
pub(crate) use session::Session;
pub(crate) use step::Step;
