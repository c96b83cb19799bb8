//! What frozen instances are charged, and which of them are squeezed.

use super::{Scaler, deadlines::Subject};
use crate::{
    Command, Event, InstanceNumber, InstanceState, Moment, SqueezePolicy, StopReason, TenantIndex,
    Unexpected, instance::Instance, squeeze::SqueezeManager,
};
use std::time::Duration;

impl Scaler {
    /// Charges frozen instances for what they hold, and squeezes them. Each [`Command::Freeze`] then has to
    /// be answered, with [`u64::MAX`] bytes if what the instance holds is unknown.
    #[must_use]
    pub fn with_squeezing(mut self, policy: SqueezePolicy) -> Self {
        self.squeeze_manager = Some(SqueezeManager::new(policy));
        self
    }

    /// Freezes an idle instance.
    pub(super) fn freeze(&mut self, number: InstanceNumber, commands: &mut Vec<Command>) {
        let Some(Instance { state: InstanceState::Idle { since, .. }, .. }) = self.pool.get(number)
        else {
            return;
        };
        self.set(number, InstanceState::Idle { since, frozen: true });
        if self.squeeze_manager.is_some() {
            self.freezing.insert(number);
        }
        commands.push(Command::Freeze(number));
    }

    /// Freezes all instances of these tenants that could be evicted, because freezing them may free enough memory.
    pub(super) fn freeze_evictables(
        &mut self,
        tenants: &[TenantIndex],
        but: Option<InstanceNumber>,
        commands: &mut Vec<Command>,
    ) {
        if self.squeeze_manager.is_none() {
            return;
        }
        let awake = |number: &InstanceNumber| {
            let instance = self.pool.get(*number).filter(|instance| !is_frozen(instance));
            let instance = instance.filter(|instance| tenants.contains(&instance.tenant));
            let function = instance.and_then(|instance| self.function(instance.function));
            function.is_some_and(|function| function.policy.freeze_after.is_some())
        };
        let evictables = self.pool.idle().map(|(_, number)| number).filter(|&n| Some(n) != but);
        for number in evictables.filter(awake).collect::<Vec<_>>() {
            self.freeze(number, commands);
        }
    }

    /// Charges a frozen instance with what it holds, which is all it may take until it is thawed.
    pub(super) fn frozen(&mut self, now: Moment, number: InstanceNumber, resident_bytes: u64) {
        let Some(instance) = self.pool.get(number).filter(is_frozen) else { return };
        if self.squeeze_manager.is_none() {
            return;
        }
        self.freezing.remove(&number);
        self.touched.insert((instance.vm, instance.function));
        if resident_bytes < instance.charged_bytes {
            self.note_resident(now, number, resident_bytes);
            self.charge_resident(number, resident_bytes);
        }
    }

    /// Has a frozen instance squeezed when its turn comes. If what it holds is unknown, it is charged in full, and no
    /// gain can be expected.
    pub(super) fn note_resident(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        resident_bytes: u64,
    ) {
        let Some(instance) = self.pool.get(number) else { return };
        if resident_bytes < self.instance_bytes(instance.vm)
            && let Some(squeeze_manager) = &mut self.squeeze_manager
        {
            squeeze_manager.frozen(now, number, instance.function, resident_bytes);
        }
    }

    /// An instance is no longer frozen, or gone.
    pub(super) fn thawed(&mut self, number: InstanceNumber, gone: bool) {
        self.freezing.remove(&number);
        match &mut self.squeeze_manager {
            Some(squeeze_manager) if gone => squeeze_manager.gone(number),
            Some(squeeze_manager) => squeeze_manager.thawed(number),
            None => {}
        }
    }

    /// Records what an instance holds after a squeeze, unless it has been thawed since.
    pub(super) fn squeezed(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        event: Event,
        resident_bytes: u64,
        cpu: Duration,
    ) -> Result<(), Unexpected> {
        self.rested(number, event)?;
        let Some(squeeze_manager) = &mut self.squeeze_manager else { return Ok(()) };
        if squeeze_manager.is_running(number) {
            squeeze_manager.squeezed(now, number, resident_bytes, cpu);
            self.charge_resident(number, resident_bytes);
        }
        Ok(())
    }

    /// Leaves an instance alone that could not be squeezed. It stays charged in full, since what it holds is
    /// unknown.
    pub(super) fn squeeze_failed(
        &mut self,
        number: InstanceNumber,
        event: Event,
    ) -> Result<(), Unexpected> {
        self.rested(number, event)?;
        if let Some(squeeze_manager) = &mut self.squeeze_manager {
            squeeze_manager.failed(number);
        }
        Ok(())
    }

    /// A squeeze is over, whatever its outcome, so the instance's VM may now be paused.
    fn rested(&mut self, number: InstanceNumber, event: Event) -> Result<(), Unexpected> {
        match self.pool.get(number) {
            Some(instance) => {
                self.touched.insert((instance.vm, instance.function));
                Ok(())
            }
            None => Err(Unexpected::Instance { event, state: None }),
        }
    }

    /// Squeezes frozen instances while they hold too much and a processor is idle. An instance runs while it
    /// is squeezed, so it is charged in full.
    pub(super) fn squeeze(&mut self, now: Moment, commands: &mut Vec<Command>) {
        let evicted = |command: &Command| match command {
            Command::Stop { reason, .. } | Command::EndVm { reason, .. } => {
                *reason == StopReason::Evicted
            }
            Command::Condemn(_) => true,
            _ => false,
        };
        let any_evicted = commands.iter().any(evicted);
        let working = self.pool.working();
        let working_bytes = self.working_vms_bytes + self.pool.working_bytes();
        let Some(squeeze_manager) = &mut self.squeeze_manager else { return };
        squeeze_manager.works(now, working_bytes, self.budget.limit_bytes());
        if any_evicted {
            squeeze_manager.evicted(now);
        }
        while let Some(number) = self.squeeze_manager.as_ref().and_then(|s| s.choose(now, working))
        {
            let Some(instance) = self.pool.get(number) else { break };
            let missing = self.missing_bytes(&instance);
            if !self.commit_within(instance.vm, missing, commands) {
                break;
            }
            self.charge(number, instance.charged_bytes + missing);
            if let Some(squeeze_manager) = &mut self.squeeze_manager {
                squeeze_manager.begin(number);
            }
            commands.push(Command::Squeeze(number));
        }
        let deadline =
            self.squeeze_manager.as_ref().and_then(|squeeze_manager| squeeze_manager.deadline(now));
        self.deadlines.set(Subject::Squeezing, deadline);
    }

    /// What an instance lacks of the memory that it may use when it runs.
    pub(super) fn missing_bytes(&self, instance: &Instance) -> u64 {
        self.instance_bytes(instance.vm).saturating_sub(instance.charged_bytes)
    }

    fn charge_resident(&mut self, number: InstanceNumber, resident_bytes: u64) {
        let Some(instance) = self.pool.get(number) else { return };
        let charged_bytes = instance.charged_bytes.min(resident_bytes);
        self.budget.release(instance.charged_bytes - charged_bytes);
        self.charge(number, charged_bytes);
    }

    /// Records what an instance is charged. The budget must have committed that much to it.
    pub(super) fn charge(&mut self, number: InstanceNumber, charged_bytes: u64) {
        if let Some(instance) = self.pool.get(number) {
            self.place(number, Some(Instance { charged_bytes, ..instance }));
        }
    }
}

/// Whether the instance is frozen.
pub(super) fn is_frozen(instance: &Instance) -> bool {
    matches!(instance.state, InstanceState::Idle { frozen: true, .. })
}
