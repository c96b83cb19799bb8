//! Minimum instances: functions of which some are kept up, whether or not they are called.
//!
//! They come after calls in everything. They are started with memory that is free and that nobody waits for, and what is
//! idle is not ended for them; what is kept is ended for calls, but after everything else that is idle of its tenant. So a
//! minimum can neither make a call wait nor drive another one out, and come and go with it for ever.

use super::{Function, Scaler, deadlines::Subject, scale::Shortage};
use crate::{
    Command, FunctionIndex, FunctionPolicy, InstanceNumber, Moment, PolicyError, TenantIndex,
    VmIndex, VmState,
};
use std::{collections::BTreeSet, time::Duration};

/// How long to wait before an instance is started in the place of one that failed, for the first time.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// The most that this doubles to, with each failure soon after the one before.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Failures of a function's instances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failures {
    last: Moment,
    pause: Duration,
}

impl Failures {
    /// With one more.
    fn with(earlier: Option<Self>, now: Moment) -> Self {
        let recent = earlier.filter(|earlier| now.since(earlier.last) < 2 * LONGEST_PAUSE);
        let pause = recent.map_or(FIRST_PAUSE, |earlier| LONGEST_PAUSE.min(2 * earlier.pause));
        Self { last: now, pause }
    }

    fn over(self) -> Moment {
        self.last + self.pause
    }
}

impl Scaler {
    /// Notes how many instances of a function are kept up.
    pub(super) fn set_minimum(&mut self, index: FunctionIndex) {
        let keeps = |f: &Function| f.policy.min_instances > 0 && !f.retired;
        if self.function(index).is_some_and(keeps) {
            self.keeping.insert(index);
        } else {
            self.keeping.remove(&index);
            self.deadlines.set(Subject::Keeping(index), None);
        }
    }

    /// Whether a tenant's quota and the budget have the memory for the minimum of a function of it.
    pub(super) fn check_minimum(
        &self,
        tenant: TenantIndex,
        policy: &FunctionPolicy,
    ) -> Result<(), PolicyError> {
        let (minimum, vm) = (policy.min_instances, self.vms.get(&policy.vm));
        let Some(vm) = vm.filter(|_| minimum > 0) else { return Ok(()) };
        let bytes = vm.policy.instance_bytes.saturating_mul(minimum.into());
        let needed_bytes = vm.policy.base_bytes.saturating_add(bytes);
        let quota_bytes = self.tenants.get(&tenant).and_then(|tenant| tenant.policy.memory_bytes);
        let limit_bytes = quota_bytes.unwrap_or(u64::MAX).min(self.budget.limit_bytes());
        if needed_bytes > limit_bytes {
            return Err(PolicyError::MinimumOverMemory { minimum, needed_bytes, limit_bytes });
        }
        Ok(())
    }

    /// Starts instances that functions lack of their minimum, where there is memory for them, unless calls of their
    /// tenants lack some.
    pub(super) fn keep_up(
        &mut self,
        now: Moment,
        short: &BTreeSet<Option<TenantIndex>>,
        commands: &mut Vec<Command>,
    ) {
        let is_short =
            |index| self.function(index).is_some_and(|f| short.contains(&Some(f.tenant)));
        let keeping = self.keeping.iter().copied().filter(|&index| !is_short(index));
        for index in keeping.collect::<Vec<_>>() {
            while self.lacking(index) > 0 && self.start_one(now, index, commands) {}
        }
    }

    /// How many instances a function lacks of its minimum.
    fn lacking(&self, index: FunctionIndex) -> usize {
        let counts = self.pool.counts(index);
        let there = counts.starting + counts.idle + counts.busy;
        self.function(index).map_or(0, |f| (f.policy.min_instances as usize).saturating_sub(there))
    }

    /// Starts an instance, or its VM, with what is free; `false` if that is not possible now.
    fn start_one(
        &mut self,
        now: Moment,
        index: FunctionIndex,
        commands: &mut Vec<Command>,
    ) -> bool {
        let Some(function) = self.function(index) else { return false };
        let (vm_index, tenant) = (function.policy.vm, function.tenant);
        let rests = function.failures.is_some_and(|failures| now < failures.over());
        let Some(vm) = self.vms.get(&vm_index).filter(|vm| !vm.unfit && !rests) else {
            return false;
        };
        // A VM of the tenant's that boots needs some for whoever it is booted for.
        let promised = self.tenants.get(&tenant).map_or(0, |tenant| tenant.promised_bytes);
        let spare = self.budget.reserve_bytes().saturating_add(promised);
        if self.start_bytes(index).saturating_add(spare) > self.free_bytes(vm_index) {
            return false;
        }
        let mut shortage = Shortage::default();
        let sent = commands.len();
        match vm.state {
            VmState::Absent => self.boot(vm_index, &mut shortage, commands),
            VmState::Up { .. } | VmState::Paused { .. } if !self.is_full(index, vm_index) => {
                self.start(index, vm_index, &mut shortage, commands);
            }
            _ => {}
        }
        commands.len() > sent && self.vm_state(vm_index) != Some(VmState::Booting)
    }

    /// Notes that an instance of a function has failed, or could not be started: the next one is not kept up at once,
    /// or one that always fails would be started for ever.
    pub(super) fn has_failed(&mut self, now: Moment, index: FunctionIndex) {
        let Some(function) = self.functions.get_mut(&index) else { return };
        if function.policy.min_instances > 0 {
            let failures = Failures::with(function.failures, now);
            function.failures = Some(failures);
            self.deadlines.set(Subject::Keeping(index), Some(failures.over()));
        }
    }

    /// Notes that the VM of functions has failed, or could not be booted.
    pub(super) fn vm_has_failed(&mut self, now: Moment, vm: VmIndex) {
        let of_vm =
            |index: &FunctionIndex| self.function(*index).is_some_and(|f| f.policy.vm == vm);
        for index in self.keeping.iter().copied().filter(of_vm).collect::<Vec<_>>() {
            self.has_failed(now, index);
        }
    }

    /// Whether an idle instance is one of those that its function has at least: of these, those that were used last.
    pub(super) fn is_kept(&self, number: InstanceNumber) -> bool {
        let index = self.pool.get(number).map(|instance| instance.function);
        let Some(index) = index.filter(|index| self.keeping.contains(index)) else { return false };
        let counts = self.pool.counts(index);
        let later = self.pool.idle_of(index).rev().take_while(|&(_, other)| other != number);
        let minimum = self.function(index).map_or(0, |f| f.policy.min_instances as usize);
        counts.starting + counts.busy + later.count() < minimum
    }

    /// Whether a VM has an idle instance that is kept.
    pub(super) fn has_kept(&self, vm: VmIndex) -> bool {
        !self.keeping.is_empty() && self.pool.idle_in(vm).any(|(_, number)| self.is_kept(number))
    }
}
