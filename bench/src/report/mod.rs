//! Reports of an experiment's lines: tables, verdicts on its targets, plots.

mod assessment;
pub(crate) mod chart;
mod estimate;
mod number;
mod select;
pub(crate) mod specification;
mod spread;
mod table;
mod target;

pub(crate) use assessment::{Assessment, Assessments, Verdict};
pub(crate) use chart::Chart;
pub(crate) use estimate::{Estimate, Sample};
pub(crate) use number::number;
pub(crate) use select::{by_method, functions, in_order, methods, of_function, of_method, sorted};
pub(crate) use spread::{Spread, mean, median};
pub(crate) use table::{Column, Table};
#[cfg(test)]
pub(crate) use target::{TARGETS, Target};
