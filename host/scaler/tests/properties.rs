//! What must hold whatever happens in whatever order: a random `script` is played to a scaler and to a
//! `model` of the world, and an `oracle` says who waits in vain.

mod model;
mod oracle;
mod script;

use model::Model;
use proptest::prelude::*;
use script::{Step, policies, requests_and_unfit_vms, steps};
use squeezy_scaler::Event;

const LIMIT_BYTES: u64 = 1000;
const FUNCTIONS: u32 = 4;
/// The last two functions share a VM.
const VMS: u32 = FUNCTIONS - 1;

/// At least 400 cases, and more with `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases.max(400), ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn rules_hold_and_nothing_is_left(policies in policies(), steps in steps()) {
        let mut model = Model::new(&policies);
        for step in &steps {
            model.step(step);
        }
        model.tell(Event::Drain);
        while !model.pending.is_empty() {
            model.end(0, true, 10);
        }
        prop_assert!(model.scaler.is_empty(), "something is left");
        prop_assert_eq!(model.scaler.budget().committed_bytes(), 0);
        prop_assert_eq!(&model.asked, &model.answered);
        prop_assert!(model.instances.is_empty());
    }

    /// Without failures and limits, and with time enough, every accepted request is answered without a
    /// drain, also when VMs have to be replaced meanwhile.
    #[test]
    fn whoever_waits_is_served(mut policies in policies(), steps in requests_and_unfit_vms()) {
        policies.functions.iter_mut().for_each(|function| function.wait_limit = None);
        let mut model = Model::new(&policies);
        for step in &steps {
            model.step(step);
        }
        // Where a VM has all its memory from its boot on, room comes with the keep-alive only.
        for _ in 0..400 {
            while !model.pending.is_empty() {
                model.end(0, true, 10);
            }
            model.step(&Step::Pass { milliseconds: 4000 });
        }
        prop_assert_eq!(&model.asked, &model.answered);
    }
}
