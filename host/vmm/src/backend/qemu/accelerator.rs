//! QEMU runs the guest's code with KVM, or translates it.

use crate::{
    Result, VmError,
    accelerator::{Accelerator, AcceleratorChoice, AcceleratorKind, kvm_loop_ns},
};

/// Chooses an accelerator. Blocks for up to a second the first time in a process, while KVM is
/// probed.
pub(crate) fn accelerator(choice: AcceleratorChoice) -> Result<Accelerator> {
    let tcg = |reason| Accelerator { kind: AcceleratorKind::Tcg, reason };
    if choice == AcceleratorChoice::Tcg {
        return Ok(tcg("it was requested".to_owned()));
    }
    match (kvm_loop_ns(), choice) {
        (Ok(ns), _) => Ok(Accelerator {
            kind: AcceleratorKind::Kvm,
            reason: format!("KVM runs guest code at {ns:.2} ns per loop iteration"),
        }),
        (Err(reason), AcceleratorChoice::Kvm) => Err(VmError::Kvm(reason.clone())),
        (Err(reason), _) => Ok(tcg(format!("KVM is not usable: {reason}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_follows_the_probe() {
        let forced = accelerator(AcceleratorChoice::Kvm);
        let auto = accelerator(AcceleratorChoice::Auto).unwrap();
        match forced {
            Ok(accelerator) => assert_eq!(accelerator, auto),
            Err(error) => {
                assert!(error.to_string().contains("tcg"), "{error}");
                assert_eq!(auto.kind, AcceleratorKind::Tcg);
                assert!(!auto.reason.is_empty());
            }
        }
        assert_eq!(accelerator(AcceleratorChoice::Tcg).unwrap().kind, AcceleratorKind::Tcg);
    }
}
