//! Which ways to resize a VM an experiment compares.

use crate::{
    error::{BenchError, Result},
    harness::Session,
    record::Recorded,
};
use squeezy_vmm::{
    GRANULE_BYTES,
    method::{MethodName, Sizing},
};

/// All that can be measured with instances of memhog, or without any.
pub(crate) const EVERY_METHOD: [MethodName; 5] = [
    MethodName::Squeezy,
    MethodName::VirtioMem,
    MethodName::Balloon,
    MethodName::Node,
    MethodName::Floor,
];

/// The least there can be, for questions about a method that do not depend on the size.
const SMALLEST: Sizing = Sizing { instance_bytes: GRANULE_BYTES, instances: 1, shared_bytes: 0 };

/// Which ways to resize are compared.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Methods {
    /// Which ways to compare, with commas: squeezy, virtio-mem, balloon, node, floor
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    methods: Vec<MethodName>,
}

impl Methods {
    /// Those that were asked for, each once; an error if one of them is not `possible`.
    fn chosen(&self, possible: &[MethodName]) -> Result<Vec<MethodName>> {
        let mut chosen: Vec<MethodName> = Vec::new();
        for method in &self.methods {
            if !possible.contains(method) {
                let names: Vec<_> = possible.iter().map(MethodName::to_string).collect();
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

    /// Those that were asked for, else of `default` those whose kernel has been built.
    ///
    /// # Errors
    /// One that was asked for is not `possible`.
    pub(crate) fn or<F: Recorded>(
        &self,
        session: &Session<F>,
        possible: &[MethodName],
        default: &[MethodName],
    ) -> Result<Vec<MethodName>> {
        if !self.methods.is_empty() {
            return self.chosen(possible);
        }
        let mut methods = default.to_vec();
        methods.retain(|name| {
            let Some(method) = name.method(SMALLEST) else { return true };
            session.has_kernel(method.kernel(), name)
        });
        Ok(methods)
    }

    /// Refuses what is not `possible`.
    pub(crate) fn check(&self, possible: &[MethodName]) -> Result {
        self.chosen(possible).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_checked_and_counted_once() {
        use MethodName::{Balloon, Floor, Squeezy, Static};
        let methods = Methods { methods: vec![Floor, Squeezy, Floor] };
        assert_eq!(methods.chosen(&[Squeezy, Floor]).unwrap(), [Floor, Squeezy]);
        let error =
            Methods { methods: vec![Static] }.chosen(&[Squeezy, Balloon]).unwrap_err().to_string();
        assert_eq!(error, "`static` cannot be measured here; choose from squeezy, balloon");
    }
}
