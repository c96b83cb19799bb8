//! What frozen instances cost, and which of them give their garbage back.

use super::{Scaler, deadlines::Subject};
use crate::{
    Command, Event, InstanceNumber, InstanceState, Moment, SqueezePolicy, StopReason, Unexpected,
    instance::Instance, squeeze::Squeezer,
};
use std::time::Duration;

impl Scaler {
    /// From now on frozen instances are squeezed.
    #[must_use]
    pub fn with_squeezing(mut self, policy: SqueezePolicy) -> Self {
        self.squeezer = Some(Squeezer::new(policy));
        self
    }

    /// Charges a frozen instance with what it holds, which is all it can take until it is thawed.
    pub(super) fn frozen(&mut self, now: Moment, number: InstanceNumber, resident_bytes: u64) {
        let Some(instance) = self.pool.get(number).filter(is_frozen) else { return };
        self.charge_resident(number, resident_bytes);
        if let Some(squeezer) = &mut self.squeezer {
            squeezer.frozen(now, number, instance.function, resident_bytes);
        }
    }

    /// Takes note of what an instance holds after it was squeezed, unless it was thawed meanwhile.
    pub(super) fn squeezed(
        &mut self,
        number: InstanceNumber,
        event: Event,
        resident_bytes: u64,
        cpu: Duration,
    ) -> Result<(), Unexpected> {
        self.expect_instance(number, event)?;
        let Some(squeezer) = &mut self.squeezer else { return Ok(()) };
        if squeezer.is_running(number) {
            squeezer.squeezed(number, resident_bytes, cpu);
            self.charge_resident(number, resident_bytes);
        }
        Ok(())
    }

    /// Leaves an instance alone that could not be squeezed. Nobody knows what it holds now.
    pub(super) fn squeeze_failed(
        &mut self,
        number: InstanceNumber,
        event: Event,
    ) -> Result<(), Unexpected> {
        self.expect_instance(number, event)?;
        if let Some(squeezer) = &mut self.squeezer {
            squeezer.failed(number);
        }
        Ok(())
    }

    fn expect_instance(&self, number: InstanceNumber, event: Event) -> Result<(), Unexpected> {
        match self.pool.get(number) {
            Some(_) => Ok(()),
            None => Err(Unexpected::Instance { event, state: None }),
        }
    }

    /// Squeezes frozen instances while they hold too much and there is a processor for it. While one
    /// is squeezed it runs, and may take what it may take when it works.
    pub(super) fn squeeze(&mut self, now: Moment, commands: &mut Vec<Command>) {
        let evicted = |c: &Command| matches!(c, Command::Stop { reason: StopReason::Evicted, .. });
        let any_evicted = commands.iter().any(evicted);
        let working = self.pool.working();
        let Some(squeezer) = &mut self.squeezer else { return };
        if any_evicted {
            squeezer.evicted(now);
        }
        while let Some(number) = self.squeezer.as_ref().and_then(|s| s.choose(now, working)) {
            let Some(instance) = self.pool.get(number) else { break };
            let missing = self.missing_bytes(&instance);
            if !self.budget.commit(missing) {
                break;
            }
            self.charge(number, instance.charged_bytes + missing);
            if let Some(squeezer) = &mut self.squeezer {
                squeezer.begin(number);
            }
            commands.push(Command::Squeeze(number));
        }
        let deadline = self.squeezer.as_ref().and_then(|squeezer| squeezer.deadline(now));
        self.deadlines.set(Subject::Squeezing, deadline);
    }

    /// What an instance lacks of the memory it may take when it runs.
    pub(super) fn missing_bytes(&self, instance: &Instance) -> u64 {
        self.instance_bytes(instance.vm).saturating_sub(instance.charged_bytes)
    }

    fn charge_resident(&mut self, number: InstanceNumber, resident_bytes: u64) {
        let Some(instance) = self.pool.get(number) else { return };
        let charged_bytes = instance.charged_bytes.min(resident_bytes);
        self.budget.release(instance.charged_bytes - charged_bytes);
        self.charge(number, charged_bytes);
    }

    /// Notes what an instance has of the budget, which is what the budget has promised it.
    pub(super) fn charge(&mut self, number: InstanceNumber, charged_bytes: u64) {
        if let Some(instance) = self.pool.get(number) {
            self.pool.put(number, Some(Instance { charged_bytes, ..instance }));
        }
    }
}

fn is_frozen(instance: &Instance) -> bool {
    matches!(instance.state, InstanceState::Idle { frozen: true, .. })
}
