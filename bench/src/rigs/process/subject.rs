//! What every line about a plain process says about it.

use super::{function::Language, functions::percent, instance::Instance, trial::Trial};
use crate::{
    record::{Measured, OfFunction},
    report::{of_function, sorted},
};
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// An instance, and how it was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Subject {
    pub(crate) language: Language,
    pub(crate) function: String,
    /// Its runtime, version and collector.
    pub(crate) runtime: String,
    /// Its memory limit.
    pub(crate) memory_bytes: u64,
    /// Its share of a processor; `None` if unlimited.
    pub(crate) processor_percent: Option<f64>,
    /// Calls that it had answered when it was first measured.
    pub(crate) calls_count: u32,
}

impl Subject {
    pub(crate) fn new(
        trial: &Trial,
        instance: &Instance,
        runtime: String,
        calls_count: u32,
    ) -> Self {
        Self {
            language: trial.function.language,
            function: trial.function.name.clone(),
            runtime,
            memory_bytes: trial.memory_bytes,
            processor_percent: instance.processors().map(percent),
            calls_count,
        }
    }
}

/// Figures about a plain process. Dereferences to the figures alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OfProcess<F> {
    #[serde(flatten)]
    pub(crate) subject: Subject,
    #[serde(flatten)]
    pub(crate) figures: F,
}

impl<F> Deref for OfProcess<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.figures
    }
}

impl<F> OfFunction for OfProcess<F> {
    fn function(&self) -> &str {
        &self.subject.function
    }
}

/// A line about a plain process.
type Line<F> = Measured<OfProcess<F>>;

/// The functions of the lines in a language.
pub(crate) fn functions_in<F>(records: &[Line<F>], language: Language) -> Vec<String> {
    let of_language = |record: &&Line<F>| record.subject.language == language;
    let of_language: Vec<&Line<F>> = records.iter().filter(of_language).collect();
    sorted(&of_language, |record| record.subject.function.clone())
}

/// The memory limits of the lines' instances.
pub(crate) fn sizes_of<F>(records: &[Line<F>]) -> Vec<u64> {
    sorted(records, |record| record.subject.memory_bytes)
}

/// The lines of a method and a function for instances with this memory limit.
pub(crate) fn of_size<'a, F>(
    records: &'a [Line<F>],
    method: &'a str,
    function: &'a str,
    memory_bytes: u64,
) -> impl Iterator<Item = &'a Line<F>> {
    of_function(records, method, function)
        .filter(move |record| record.subject.memory_bytes == memory_bytes)
}

#[cfg(test)]
pub(crate) fn example(language: Language, function: &str) -> Subject {
    Subject {
        language,
        function: function.to_owned(),
        runtime: "hotspot 17 serial".to_owned(),
        memory_bytes: 256 << 20,
        processor_percent: Some(14.0),
        calls_count: 100,
    }
}
