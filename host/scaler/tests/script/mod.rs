//! Random inputs for a scaler.

use crate::{FUNCTIONS, LIMIT_BYTES, TENANTS, VMS};
use proptest::prelude::*;
use squeezy_scaler::{FunctionPolicy, SqueezePolicy, TenantIndex, TenantPolicy, VmIndex, VmPolicy};
use std::{
    num::{NonZeroU16, NonZeroU32},
    time::Duration,
};

/// What may happen next. Numbers are taken modulo the number of choices.
#[derive(Clone, Debug)]
pub enum Step {
    Request {
        function: u32,
    },
    /// A call comes that has waited for another function.
    SendOn {
        function: u32,
    },
    /// An instance is wanted ahead of calls.
    Prewarm {
        function: u32,
    },
    /// One pending command completes; its instance or VM then holds `resident_bytes`.
    End {
        which: usize,
        well: bool,
        resident_bytes: u64,
    },
    /// An instance ends by itself.
    Die {
        which: usize,
    },
    /// A VM ends by itself.
    Crash {
        which: usize,
    },
    /// A guest turns out to be unfit for further instances.
    Unfit {
        vm: u32,
    },
    /// A guest asks for memory.
    Starve {
        vm: u32,
        bytes: u64,
    },
    /// A frozen instance is measured again, and holds `resident_bytes`.
    Measure {
        which: usize,
        resident_bytes: u64,
    },
    Retire {
        function: u32,
    },
    /// A tenant's memory quota changes.
    Quota {
        tenant: u32,
        memory_bytes: Option<u64>,
    },
    Pass {
        milliseconds: u64,
    },
    /// Everything under way completes, except requests.
    Settle {
        seed: u64,
    },
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        80 => (0..FUNCTIONS).prop_map(|function| Step::Request { function }),
        5 => (0..FUNCTIONS).prop_map(|function| Step::SendOn { function }),
        10 => (0..FUNCTIONS).prop_map(|function| Step::Prewarm { function }),
        160 => (any::<usize>(), prop::bool::weighted(0.85), 0..600_u64)
            .prop_map(|(which, well, resident_bytes)| Step::End { which, well, resident_bytes }),
        20 => any::<usize>().prop_map(|which| Step::Die { which }),
        5 => any::<usize>().prop_map(|which| Step::Crash { which }),
        5 => (0..VMS).prop_map(|vm| Step::Unfit { vm }),
        10 => (0..VMS, prop_oneof![0..200_u64, Just(u64::MAX)])
            .prop_map(|(vm, bytes)| Step::Starve { vm, bytes }),
        20 => (any::<usize>(), 0..600_u64)
            .prop_map(|(which, resident_bytes)| Step::Measure { which, resident_bytes }),
        1 => (0..FUNCTIONS).prop_map(|function| Step::Retire { function }),
        5 => (0..TENANTS, prop::option::of(0..LIMIT_BYTES))
            .prop_map(|(tenant, memory_bytes)| Step::Quota { tenant, memory_bytes }),
        60 => prop_oneof![0..4000_u64, 0..600_u64]
            .prop_map(|milliseconds| Step::Pass { milliseconds }),
        20 => any::<u64>().prop_map(|seed| Step::Settle { seed }),
    ];
    prop::collection::vec(step, 0..300)
}

/// Commands that all succeed.
pub fn requests() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..FUNCTIONS).prop_map(|function| Step::Request { function }),
        6 => (any::<usize>(), 0..600_u64)
            .prop_map(|(which, resident_bytes)| Step::End { which, well: true, resident_bytes }),
        1 => (0..3000_u64).prop_map(|milliseconds| Step::Pass { milliseconds }),
    ];
    prop::collection::vec(step, 1..80)
}

/// Commands that all succeed, in VMs that may turn out to be unfit.
pub fn requests_and_unfit_vms() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..FUNCTIONS).prop_map(|function| Step::Request { function }),
        1 => (0..FUNCTIONS).prop_map(|function| Step::Prewarm { function }),
        4 => any::<usize>().prop_map(|which| Step::End { which, well: true, resident_bytes: 10 }),
        1 => (0..VMS).prop_map(|vm| Step::Unfit { vm }),
        1 => (0..VMS, 0..200_u64).prop_map(|(vm, bytes)| Step::Starve { vm, bytes }),
    ];
    prop::collection::vec(step, 1..80)
}

#[derive(Clone, Debug)]
pub struct Policies {
    pub reserve_bytes: u64,
    pub squeeze: Option<SqueezePolicy>,
    pub tenants: Vec<TenantPolicy>,
    pub vms: Vec<VmPolicy>,
    /// Whose the VMs are.
    pub owners: Vec<TenantIndex>,
    pub functions: Vec<FunctionPolicy>,
}

pub fn policies() -> impl Strategy<Value = Policies> {
    let milliseconds = |most: u64| (0..most).prop_map(Duration::from_millis);
    // Some VMs have no base memory, some have all their memory from boot on.
    let bytes = || prop_oneof![1 => Just(0), 4 => 0..=500_u64];
    let bytes = (bytes(), bytes());
    let vm = (bytes, 1..6_u32, 1..6_u32, prop::option::of(milliseconds(8000))).prop_map(
        |((base_bytes, instance_bytes), max_instances, max_starting, idle_time)| VmPolicy {
            base_bytes,
            instance_bytes: instance_bytes.max(u64::from(base_bytes == 0)),
            max_instances,
            max_starting,
            idle_time,
        },
    );
    let freeze_after = prop::option::weighted(0.8, milliseconds(2000));
    let wait_limit = prop::option::of(milliseconds(20_000));
    let least = prop_oneof![4 => Just(0), 1 => 1..4_u32];
    let requests = prop_oneof![2 => Just(1), 1 => 2..4_u16];
    let instances = (1..6_u32, least, requests);
    let function = (instances, milliseconds(20_000), freeze_after, 1..6_usize, wait_limit);
    let reserve = prop_oneof![Just(0), 0..=LIMIT_BYTES];
    let vms = prop::collection::vec(vm, VMS as usize);
    let owners = prop::collection::vec((0..TENANTS).prop_map(TenantIndex), VMS as usize);
    let quota = prop::option::weighted(0.3, 0..=LIMIT_BYTES);
    let tenant = (1..4_u32, quota, prop::option::weighted(0.2, 1..6_usize)).prop_map(
        |(weight, memory_bytes, calls)| TenantPolicy {
            weight: NonZeroU32::new(weight).expect("at least 1"),
            memory_bytes,
            calls,
        },
    );
    let tenants = prop::collection::vec(tenant, TENANTS as usize);
    let times = (milliseconds(2000), milliseconds(300));
    let squeeze = (0..100_u64, 0..100_u64, times, 1..9_u32, 0..200_u64).prop_map(
        |(floor_bytes, range, (rise, frozen_for), processors, tolerance_bytes)| SqueezePolicy {
            floor_bytes,
            ceiling_bytes: floor_bytes + range,
            rise,
            frozen_for,
            processors,
            tolerance_bytes,
        },
    );
    let functions = prop::collection::vec(function, FUNCTIONS as usize);
    let whose = (tenants, owners);
    (reserve, prop::option::weighted(0.8, squeeze), vms, functions, whose).prop_map(
        |(reserve_bytes, squeeze, vms, functions, (tenants, owners))| Policies {
            reserve_bytes,
            squeeze,
            tenants,
            owners,
            functions: (0..)
                .zip(functions)
                .map(|(index, function)| {
                    let (instances, keep_alive, freeze_after, queue_limit, wait_limit) = function;
                    let (max_instances, least, requests) = instances;
                    let vm = VmIndex(u32::min(index, VMS - 1));
                    let VmPolicy { base_bytes, instance_bytes, .. } = vms[vm.0 as usize];
                    let room = (LIMIT_BYTES - base_bytes) / instance_bytes.max(1);
                    let min_instances = least.min(max_instances).min(room as u32);
                    FunctionPolicy {
                        vm,
                        max_instances,
                        requests_per_instance: NonZeroU16::new(requests).expect("at least 1"),
                        min_instances,
                        keep_alive,
                        freeze_after,
                        queue_limit,
                        wait_limit,
                    }
                })
                .collect(),
            vms,
        },
    )
}
