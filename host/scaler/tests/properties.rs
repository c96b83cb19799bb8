//! Properties that hold for any events in any order: a random `script` is played to a scaler and a `model` of
//! the world, and an `oracle` finds calls that wait in vain.

mod model;
mod oracle;
mod script;

use model::Model;
use proptest::prelude::*;
use script::{Step, policies, requests, requests_and_unfit_vms, steps};
use squeezy_scaler::{Event, FunctionIndex};

const LIMIT_BYTES: u64 = 1000;
const FUNCTIONS: u32 = 4;
/// The last two functions share a VM.
const VMS: u32 = FUNCTIONS - 1;
/// Which have the VMs, in any way.
const TENANTS: u32 = 3;

/// At least 400 cases, and more with `PROPTEST_CASES`. Some are not what a property is about, more or less by chance.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = default.cases.max(400);
    ProptestConfig { cases, max_global_rejects: cases * 20, ..default }
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

    /// Without failures and wait limits, and given enough time, every accepted request is answered without a
    /// drain, even if VMs have to be replaced in the meantime, and minimum instances are there as far as memory goes.
    #[test]
    fn whoever_waits_is_served(mut policies in policies(), steps in requests_and_unfit_vms()) {
        policies.functions.iter_mut().for_each(|function| function.wait_limit = None);
        let mut model = Model::new(&policies);
        for step in &steps {
            model.step(step);
        }
        // If a VM has all its memory from boot on, room may come only with the end of a keep-alive time.
        for _ in 0..400 {
            while !model.pending.is_empty() {
                model.end(0, true, 10);
            }
            model.step(&Step::Pass { milliseconds: 4000 });
        }
        prop_assert_eq!(&model.asked, &model.answered);
        while !model.pending.is_empty() {
            model.end(0, true, 10);
        }
        prop_assert_eq!(model.lacks_minimum(), None, "{}", model);
    }

    /// A call with which its tenant stays within its share waits for calls that run when it comes, and for nothing else,
    /// whatever others ask for in the meantime.
    #[test]
    fn who_stays_within_a_share_waits_only_for_calls_that_run(
        mut policies in policies(),
        steps in requests(),
        function in 0..FUNCTIONS,
        others in prop::collection::vec(0..FUNCTIONS, 1..5),
    ) {
        let function = FunctionIndex(function);
        policies.functions.iter_mut().for_each(|function| function.wait_limit = None);
        for tenant in &mut policies.tenants {
            (tenant.memory_bytes, tenant.calls) = (None, None);
        }
        // Small enough for any share.
        let vm = &mut policies.vms[policies.functions[function.0 as usize].vm.0 as usize];
        (vm.base_bytes, vm.instance_bytes) = (vm.base_bytes / 8, vm.instance_bytes / 8 + 1);
        let mut model = Model::new(&policies);
        let tenant = model.tenant_of(function);
        for (count, step) in steps.iter().enumerate() {
            match step {
                &Step::Request { function } if count > 5 && model.tenant_of(FunctionIndex(function)) == tenant => {}
                step => model.step(step),
            }
        }
        let running = model.running();
        let waits = model.waiting.values().any(|&f| model.tenant_of(f) == tenant);
        prop_assume!(!waits && model.stays_within_share(function));
        let request = model.request(function);
        for other in others.iter().map(|&other| FunctionIndex(other)).cycle().take(200) {
            if !model.waiting.contains_key(&request) {
                break;
            }
            if model.tenant_of(other) != tenant {
                model.request(other);
            }
            if !model.end_but_calls_since(&running) {
                break;
            }
        }
        prop_assert!(!model.waiting.contains_key(&request), "{model}");
    }
}
