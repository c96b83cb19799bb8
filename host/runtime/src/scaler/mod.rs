//! Decides which instances start and stop, and which request goes where.

use crate::{
    Budget, Command, Event, FunctionIndex, InstanceNumber, InstanceState, Moment, RejectReason,
    RequestNumber, StopReason, Unexpected, instance::Instance,
};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// How long memory that the guest would not give back is left alone before it is asked for again.
const STRANDED_RETRY: Duration = Duration::from_secs(5);

/// What holds for every instance of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionPolicy {
    /// Memory of one instance, in bytes.
    pub instance_bytes: u64,
    /// Instances whose memory may be plugged at a time (the concurrency factor N of its VM).
    pub max_instances: u32,
    /// How long an instance without a request stays.
    pub keep_alive: Duration,
    /// Requests that may wait for an instance.
    pub queue_limit: usize,
}

/// A [`FunctionPolicy`] under which no request could ever be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The instance's memory is zero.
    #[error("an instance of function {0} would have no memory")]
    NoMemory(FunctionIndex),
    /// No instance is allowed.
    #[error("function {0} may have no instance; allow one at least")]
    NoInstance(FunctionIndex),
    /// No request may wait, so none would ever lead to an instance.
    #[error("no request to function {0} may wait; allow one at least")]
    NoQueue(FunctionIndex),
    /// One instance is more than the whole budget.
    #[error(
        "an instance of function {function} needs {instance_bytes} bytes, the host's budget is {limit_bytes}"
    )]
    OverBudget {
        /// The function.
        function: FunctionIndex,
        /// What an instance needs.
        instance_bytes: u64,
        /// What there is.
        limit_bytes: u64,
    },
}

/// Instances and requests of one function at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instances whose memory is being plugged or whose processes start.
    pub starting: usize,
    /// Instances that wait for a request.
    pub idle: usize,
    /// Instances that work on one.
    pub busy: usize,
    /// Instances whose processes are being stopped.
    pub stopping: usize,
    /// Ended instances whose memory is on its way back to the host.
    pub reclaiming: usize,
    /// Ended instances whose memory the guest kept.
    pub stranded: usize,
    /// Requests that wait for an instance.
    pub queued: usize,
}

struct Waiting {
    request: RequestNumber,
    since: Moment,
}

struct Function {
    policy: FunctionPolicy,
    queue: VecDeque<Waiting>,
}

/// Events in, commands out. See the crate's documentation.
pub struct Scaler {
    functions: Vec<Function>,
    instances: BTreeMap<InstanceNumber, Instance>,
    budget: Budget,
    next_instance: u64,
    draining: bool,
}

impl Scaler {
    /// A scaler for these functions, none of which has an instance yet.
    pub fn new(budget: Budget, functions: &[FunctionPolicy]) -> Result<Self, PolicyError> {
        for (index, policy) in functions.iter().enumerate() {
            check(FunctionIndex(index), policy, budget.limit_bytes())?;
        }
        let functions =
            functions.iter().map(|&policy| Function { policy, queue: VecDeque::new() }).collect();
        Ok(Self {
            functions,
            instances: BTreeMap::new(),
            budget,
            next_instance: 0,
            draining: false,
        })
    }

    /// The host's memory and what is promised of it.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// How one instance stands; nothing when it is gone with its memory.
    pub fn state(&self, instance: InstanceNumber) -> Option<InstanceState> {
        self.instances.get(&instance).map(|i| i.state)
    }

    /// Whether no instance and no request is left.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty() && self.functions.iter().all(|f| f.queue.is_empty())
    }

    /// The instances and requests of one function.
    pub fn counts(&self, function: FunctionIndex) -> Counts {
        let mut counts =
            Counts { queued: self.functions[function.0].queue.len(), ..Counts::default() };
        for instance in self.instances.values().filter(|i| i.function == function) {
            *match instance.state {
                InstanceState::Plugging | InstanceState::Starting => &mut counts.starting,
                InstanceState::Idle { .. } => &mut counts.idle,
                InstanceState::Busy { .. } => &mut counts.busy,
                InstanceState::Stopping => &mut counts.stopping,
                InstanceState::Reclaiming => &mut counts.reclaiming,
                InstanceState::Stranded { .. } => &mut counts.stranded,
            } += 1;
        }
        counts
    }

    /// When the next [`Event::Tick`] has something to do, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.instances.values().filter_map(|i| self.deadline(i)).min()
    }

    /// Takes note of what happened at `now` and answers what has to be done, in this order.
    ///
    /// `now` must not run backwards. An event that makes no sense changes nothing.
    pub fn handle(&mut self, now: Moment, event: Event) -> Result<Vec<Command>, Unexpected> {
        let mut commands = Vec::new();
        match event {
            Event::Request { function, request } => {
                self.enqueue(now, function, request, &mut commands);
            }
            Event::Tick => self.expire(now, &mut commands),
            Event::Drain => self.drain(&mut commands),
            Event::Plugged(number) => self.plugged(number, event, &mut commands)?,
            Event::PlugFailed(number) => {
                let function = self.change(number, event, InstanceState::Reclaiming, |s| {
                    matches!(s, InstanceState::Plugging)
                })?;
                commands.push(Command::Reclaim { function, instance: number });
                self.give_up_one(function, &mut commands);
            }
            Event::Started(number) => {
                self.change(number, event, InstanceState::Idle { since: now }, |s| {
                    matches!(s, InstanceState::Starting)
                })?;
            }
            Event::StartFailed(number) => {
                let function = self.change(number, event, InstanceState::Stopping, |s| {
                    matches!(s, InstanceState::Starting)
                })?;
                commands.push(Command::Stop { instance: number, reason: StopReason::Broken });
                self.give_up_one(function, &mut commands);
            }
            Event::Answered(number) => self.answered(now, number, event, false, &mut commands)?,
            Event::Broken(number) => self.answered(now, number, event, true, &mut commands)?,
            Event::Died(number) => self.died(number, event, &mut commands)?,
            Event::Stopped(number) => {
                let function = self.change(number, event, InstanceState::Reclaiming, |s| {
                    matches!(s, InstanceState::Stopping)
                })?;
                commands.push(Command::Reclaim { function, instance: number });
            }
            Event::Reclaimed(number) => self.reclaimed(now, number, event, true)?,
            Event::ReclaimFailed(number) => self.reclaimed(now, number, event, false)?,
        }
        if self.draining {
            self.stop_idle(StopReason::Draining, |_| true, &mut commands);
        } else {
            self.dispatch(&mut commands);
            self.scale_up(&mut commands);
        }
        Ok(commands)
    }

    fn enqueue(
        &mut self,
        now: Moment,
        function: FunctionIndex,
        request: RequestNumber,
        commands: &mut Vec<Command>,
    ) {
        let idle = self.counts(function).idle;
        let Function { policy, queue } = &mut self.functions[function.0];
        let reason = if self.draining {
            RejectReason::Draining
        } else if idle == 0 && queue.len() >= policy.queue_limit {
            RejectReason::QueueFull
        } else {
            queue.push_back(Waiting { request, since: now });
            return;
        };
        commands.push(Command::Reject { request, reason });
    }

    fn plugged(
        &mut self,
        number: InstanceNumber,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        let plugging = |s| matches!(s, InstanceState::Plugging);
        if self.draining {
            let function = self.change(number, event, InstanceState::Reclaiming, plugging)?;
            commands.push(Command::Reclaim { function, instance: number });
        } else {
            let function = self.change(number, event, InstanceState::Starting, plugging)?;
            commands.push(Command::Start { function, instance: number });
        }
        Ok(())
    }

    fn answered(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        event: Event,
        broken: bool,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        let Some(InstanceState::Busy { dying, .. }) = self.state(number) else {
            return Err(Unexpected { event, state: self.state(number) });
        };
        if broken || dying {
            self.change(number, event, InstanceState::Stopping, |_| true)?;
            commands.push(Command::Stop { instance: number, reason: StopReason::Broken });
        } else {
            self.change(number, event, InstanceState::Idle { since: now }, |_| true)?;
        }
        Ok(())
    }

    fn died(
        &mut self,
        number: InstanceNumber,
        event: Event,
        commands: &mut Vec<Command>,
    ) -> Result<(), Unexpected> {
        match self.state(number) {
            Some(InstanceState::Idle { .. }) => {
                self.change(number, event, InstanceState::Stopping, |_| true)?;
                commands.push(Command::Stop { instance: number, reason: StopReason::Broken });
            }
            Some(InstanceState::Busy { request, .. }) => {
                self.change(number, event, InstanceState::Busy { request, dying: true }, |_| true)?;
            }
            // Whoever watches the instance may see its end before or after it was stopped.
            _ => {}
        }
        Ok(())
    }

    fn reclaimed(
        &mut self,
        now: Moment,
        number: InstanceNumber,
        event: Event,
        all: bool,
    ) -> Result<(), Unexpected> {
        let function = self.change(number, event, InstanceState::Stranded { since: now }, |s| {
            matches!(s, InstanceState::Reclaiming)
        })?;
        // What is stranded when everything ends goes with its VM.
        if all || self.draining {
            self.forget(number, function);
        }
        Ok(())
    }

    /// Stops what has been idle for too long, and asks again for stranded memory.
    fn expire(&mut self, now: Moment, commands: &mut Vec<Command>) {
        let due: Vec<_> = self
            .instances
            .iter()
            .filter(|(_, i)| self.deadline(i).is_some_and(|deadline| deadline <= now))
            .map(|(&number, i)| (number, *i))
            .collect();
        for (number, instance) in due {
            if matches!(instance.state, InstanceState::Stranded { .. }) {
                self.set(number, InstanceState::Reclaiming);
                commands.push(Command::Reclaim { function: instance.function, instance: number });
            } else {
                self.set(number, InstanceState::Stopping);
                commands
                    .push(Command::Stop { instance: number, reason: StopReason::KeepAliveOver });
            }
        }
    }

    fn drain(&mut self, commands: &mut Vec<Command>) {
        self.draining = true;
        for function in &mut self.functions {
            for waiting in function.queue.drain(..) {
                let reason = RejectReason::Draining;
                commands.push(Command::Reject { request: waiting.request, reason });
            }
        }
        let stranded: Vec<_> = self
            .instances
            .iter()
            .filter(|(_, i)| matches!(i.state, InstanceState::Stranded { .. }))
            .map(|(&number, i)| (number, i.function))
            .collect();
        for (number, function) in stranded {
            self.forget(number, function);
        }
    }

    /// Gives waiting requests to idle instances, the one used last first: so the others get to
    /// the end of their keep-alive.
    fn dispatch(&mut self, commands: &mut Vec<Command>) {
        for index in 0..self.functions.len() {
            while !self.functions[index].queue.is_empty() {
                let Some((_, number)) = self.idle(|i| i.function.0 == index).max() else { break };
                let Some(Waiting { request, .. }) = self.functions[index].queue.pop_front() else {
                    break;
                };
                self.set(number, InstanceState::Busy { request, dying: false });
                commands.push(Command::Dispatch { instance: number, request });
            }
        }
    }

    /// Starts an instance for every request that waits and has none on its way, oldest first. From
    /// the first one on that does not fit the budget nobody gets memory, or small instances would
    /// starve a large one; what is short is taken from the instances idle for longest.
    fn scale_up(&mut self, commands: &mut Vec<Command>) {
        let mut wanted_bytes = 0_u64;
        for function in self.wanted() {
            let bytes = self.functions[function.0].policy.instance_bytes;
            let stranded = self
                .instances
                .iter()
                .find(|(_, i)| {
                    i.function == function && matches!(i.state, InstanceState::Stranded { .. })
                })
                .map(|(&number, _)| number);
            if let Some(number) = stranded {
                self.forget(number, function);
            }
            if (wanted_bytes == 0 || stranded.is_some()) && self.budget.commit(bytes) {
                let instance = InstanceNumber(self.next_instance);
                self.next_instance += 1;
                let state = InstanceState::Plugging;
                self.instances.insert(instance, Instance { function, state });
                commands.push(Command::Plug { function, instance });
            } else {
                wanted_bytes = wanted_bytes.saturating_add(bytes);
            }
        }
        if wanted_bytes > 0 {
            self.evict(wanted_bytes, commands);
        }
    }

    /// The function of each instance that should be started, the longest waiting request first.
    fn wanted(&self) -> Vec<FunctionIndex> {
        let mut wanted = Vec::new();
        for (index, function) in self.functions.iter().enumerate() {
            if function.queue.is_empty() {
                continue;
            }
            let counts = self.counts(FunctionIndex(index));
            // Stranded memory does not count: the new instance takes it.
            let plugged =
                counts.starting + counts.idle + counts.busy + counts.stopping + counts.reclaiming;
            let room = (function.policy.max_instances as usize).saturating_sub(plugged);
            let waiting = function.queue.iter().skip(counts.starting).take(room);
            wanted.extend(waiting.map(|w| (w.since, w.request, FunctionIndex(index))));
        }
        wanted.sort_unstable();
        wanted.into_iter().map(|(_, _, function)| function).collect()
    }

    /// Stops as many idle instances as make room for `wanted_bytes`, least recently used first,
    /// counting the memory that is on its way back already.
    fn evict(&mut self, wanted_bytes: u64, commands: &mut Vec<Command>) {
        let coming: u64 = self
            .instances
            .values()
            .filter(|i| matches!(i.state, InstanceState::Stopping | InstanceState::Reclaiming))
            .map(|i| self.bytes(i))
            .sum();
        let mut room = self.budget.free_bytes().saturating_add(coming);
        let mut idle: Vec<_> = self.idle(|_| true).collect();
        idle.sort_unstable();
        for (_, number) in idle {
            if room >= wanted_bytes {
                break;
            }
            room += self.instances.get(&number).map_or(0, |i| self.bytes(i));
            self.set(number, InstanceState::Stopping);
            commands.push(Command::Stop { instance: number, reason: StopReason::Evicted });
        }
    }

    fn stop_idle(
        &mut self,
        reason: StopReason,
        which: impl Fn(&Instance) -> bool,
        commands: &mut Vec<Command>,
    ) {
        let idle: Vec<_> = self.idle(which).map(|(_, number)| number).collect();
        for instance in idle {
            self.set(instance, InstanceState::Stopping);
            commands.push(Command::Stop { instance, reason });
        }
    }

    /// Rejects the request that the failed instance was meant for. Without this a function that
    /// cannot start would be started for ever.
    fn give_up_one(&mut self, function: FunctionIndex, commands: &mut Vec<Command>) {
        if let Some(Waiting { request, .. }) = self.functions[function.0].queue.pop_front() {
            commands.push(Command::Reject { request, reason: RejectReason::StartFailed });
        }
    }

    /// The idle instances of `which`, with the moment they became idle.
    fn idle(
        &self,
        which: impl Fn(&Instance) -> bool,
    ) -> impl Iterator<Item = (Moment, InstanceNumber)> {
        self.instances.iter().filter_map(move |(&number, i)| match i.state {
            InstanceState::Idle { since } if which(i) => Some((since, number)),
            _ => None,
        })
    }

    fn deadline(&self, instance: &Instance) -> Option<Moment> {
        match instance.state {
            InstanceState::Idle { since } => {
                Some(since + self.functions[instance.function.0].policy.keep_alive)
            }
            InstanceState::Stranded { since } => Some(since + STRANDED_RETRY),
            _ => None,
        }
    }

    fn bytes(&self, instance: &Instance) -> u64 {
        self.functions[instance.function.0].policy.instance_bytes
    }

    fn forget(&mut self, number: InstanceNumber, function: FunctionIndex) {
        self.instances.remove(&number);
        self.budget.release(self.functions[function.0].policy.instance_bytes);
    }

    fn set(&mut self, number: InstanceNumber, state: InstanceState) {
        if let Some(instance) = self.instances.get_mut(&number) {
            instance.state = state;
        }
    }

    /// Moves an instance on if it stands where the event says it does.
    fn change(
        &mut self,
        number: InstanceNumber,
        event: Event,
        to: InstanceState,
        from: impl Fn(InstanceState) -> bool,
    ) -> Result<FunctionIndex, Unexpected> {
        match self.instances.get_mut(&number) {
            Some(instance) if from(instance.state) => {
                instance.state = to;
                Ok(instance.function)
            }
            other => Err(Unexpected { event, state: other.map(|i| i.state) }),
        }
    }
}

fn check(
    function: FunctionIndex,
    policy: &FunctionPolicy,
    limit_bytes: u64,
) -> Result<(), PolicyError> {
    let &FunctionPolicy { instance_bytes, max_instances, queue_limit, .. } = policy;
    if instance_bytes == 0 {
        Err(PolicyError::NoMemory(function))
    } else if max_instances == 0 {
        Err(PolicyError::NoInstance(function))
    } else if queue_limit == 0 {
        Err(PolicyError::NoQueue(function))
    } else if instance_bytes > limit_bytes {
        Err(PolicyError::OverBudget { function, instance_bytes, limit_bytes })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
