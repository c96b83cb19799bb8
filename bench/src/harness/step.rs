//! Steps of an experiment.

use squeezy_vmm::mechanism::MechanismName;
use std::fmt;

/// A step of an experiment, displayed by its description.
pub(crate) trait Step: fmt::Display {
    /// Its approximate duration relative to other steps.
    fn weight(&self) -> f64 {
        1.0
    }
}

impl Step for MechanismName {}
