//! Which mechanisms an experiment compares.

use crate::{
    error::{BenchError, Result},
    harness::Session,
    record::Recorded,
};
use squeezy_vmm::{
    GRANULE_BYTES,
    mechanism::{MechanismName, Sizing},
};

/// All mechanisms that can be measured with instances of memhog or without a guest.
pub(crate) const EVERY_METHOD: [MechanismName; 5] = [
    MechanismName::Squeezy,
    MechanismName::VirtioMem,
    MechanismName::Balloon,
    MechanismName::Numa,
    MechanismName::Floor,
];

/// The smallest sizing, for properties of a mechanism that do not depend on it.
const SMALLEST: Sizing = Sizing { instance_bytes: GRANULE_BYTES, instances: 1, shared_bytes: 0 };

/// The option that selects mechanisms.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Methods {
    /// The methods to compare, separated by commas: squeezy, virtio-mem, balloon, numa, floor
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    methods: Vec<MechanismName>,
}

impl Methods {
    /// The requested ones without duplicates. An error if one of them is not in `possible`.
    fn chosen(&self, possible: &[MechanismName]) -> Result<Vec<MechanismName>> {
        let mut chosen: Vec<MechanismName> = Vec::new();
        for method in &self.methods {
            if !possible.contains(method) {
                let names: Vec<_> = possible.iter().map(MechanismName::to_string).collect();
                return Err(BenchError::Arguments(format!(
                    "`{method}` cannot be measured here; choose from {}",
                    names.join(", ")
                )));
            }
            if !chosen.contains(method) {
                chosen.push(*method);
            }
        }
        Ok(chosen)
    }

    /// The requested ones, otherwise those of `default` whose kernel has been built.
    ///
    /// # Errors
    /// If a requested one is not in `possible`.
    pub(crate) fn or<F: Recorded>(
        &self,
        session: &Session<F>,
        possible: &[MechanismName],
        default: &[MechanismName],
    ) -> Result<Vec<MechanismName>> {
        if !self.methods.is_empty() {
            return self.chosen(possible);
        }
        let mut methods = default.to_vec();
        methods.retain(|name| {
            let Some(method) = name.mechanism(SMALLEST) else { return true };
            session.has_kernel(method.kernel(), name)
        });
        Ok(methods)
    }

    /// Rejects mechanisms that are not in `possible`.
    pub(crate) fn check(&self, possible: &[MechanismName]) -> Result {
        self.chosen(possible).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_checked_and_counted_once() {
        use MechanismName::{Balloon, Floor, Squeezy, Static};
        let methods = Methods { methods: vec![Floor, Squeezy, Floor] };
        assert_eq!(methods.chosen(&[Squeezy, Floor]).unwrap(), [Floor, Squeezy]);
        let error =
            Methods { methods: vec![Static] }.chosen(&[Squeezy, Balloon]).unwrap_err().to_string();
        assert_eq!(error, "`static` cannot be measured here; choose from squeezy, balloon");
    }
}
