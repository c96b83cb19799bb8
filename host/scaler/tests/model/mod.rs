//! A model of the world that knows nothing of the scaler's state: it carries out commands, lets them succeed
//! or fail in any order, and checks every command against what it knows itself.

mod check;
mod tenants;

use crate::{
    FUNCTIONS, LIMIT_BYTES, TENANTS, VMS,
    script::{Policies, Step},
};
use squeezy_scaler::{
    Budget, Command, Event, FunctionIndex, FunctionPolicy, InstanceNumber, InstanceState, Moment,
    RejectReason, RequestNumber, Scaler, StopReason, TenantIndex, TenantPolicy, VmIndex, VmPolicy,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A VM as seen by what carries out the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmModel {
    Absent,
    Booting,
    Up,
    /// Paused, or being paused.
    Paused,
    Ending,
}

/// An instance as seen by what carries out the commands.
#[derive(Debug)]
pub struct InstanceEntry {
    pub function: FunctionIndex,
    pub vm: VmIndex,
    pub running: bool,
    pub frozen: bool,
    /// It can be condemned while its VM is paused.
    pub doomed: bool,
    /// It loses its memory, or has lost it.
    pub condemned: bool,
    pub requests: BTreeSet<RequestNumber>,
    pub dead: bool,
    /// It has failed at a request.
    pub broken: bool,
    pub free_since: Moment,
    pub charged_bytes: u64,
    /// When it was last known what it holds.
    pub measured: Moment,
}

pub struct Model {
    pub scaler: Scaler,
    pub policies: Policies,
    pub now: Moment,
    pub vms: BTreeMap<VmIndex, VmModel>,
    /// VMs that are to be replaced.
    pub unfit: BTreeSet<VmIndex>,
    /// What each existing VM is charged, apart from its instances.
    pub charged_bytes: BTreeMap<VmIndex, u64>,
    /// What each was lent since it booted.
    pub lent_bytes: BTreeMap<VmIndex, u64>,
    /// VMs that have to be ended at once: paused ones that hold more than there is for them, and those in which something
    /// frozen grows.
    overdrawn: BTreeSet<VmIndex>,
    pub instances: BTreeMap<InstanceNumber, InstanceEntry>,
    /// Stopped instances whose memory the guest kept: their VM and how many bytes.
    pub stranded: BTreeMap<InstanceNumber, (VmIndex, u64)>,
    pub pending: Vec<Command>,
    pub asked: BTreeSet<RequestNumber>,
    /// Requests that are not calls.
    pub prewarms: BTreeSet<RequestNumber>,
    /// Calls that have waited for another function.
    pub sent_on: BTreeSet<RequestNumber>,
    /// Requests that no instance has taken yet.
    pub waiting: BTreeMap<RequestNumber, FunctionIndex>,
    /// When each request was sent.
    pub asked_at: BTreeMap<RequestNumber, Moment>,
    /// When an instance last took one of a function's requests.
    pub taken_at: BTreeMap<FunctionIndex, Moment>,
    pub answered: BTreeSet<RequestNumber>,
    /// What each tenant had after the last event.
    had_bytes: BTreeMap<TenantIndex, u64>,
}

impl Model {
    pub fn new(policies: &Policies) -> Self {
        let budget = Budget::new(LIMIT_BYTES).with_reserve(policies.reserve_bytes);
        let mut scaler = Scaler::new(budget);
        if let Some(policy) = policies.squeeze {
            scaler = scaler.with_squeezing(policy);
        }
        for tenant in (1..TENANTS).map(TenantIndex) {
            assert_eq!(scaler.add_tenant(TenantPolicy::default()), Ok(tenant));
        }
        for &vm in &policies.vms {
            scaler.add_vm(vm).expect("a valid policy");
        }
        for &function in &policies.functions {
            let owner = policies.owners[function.vm.0 as usize];
            scaler.add_function(owner, function).expect("a valid policy");
        }
        // Its functions may exceed a quota that was lowered.
        for (tenant, &policy) in (0..).map(TenantIndex).zip(&policies.tenants) {
            scaler.update_tenant(tenant, policy).expect("a valid policy");
        }
        Self {
            scaler,
            policies: policies.clone(),
            now: Moment::START,
            vms: (0..VMS).map(|vm| (VmIndex(vm), VmModel::Absent)).collect(),
            unfit: BTreeSet::new(),
            charged_bytes: BTreeMap::new(),
            lent_bytes: BTreeMap::new(),
            overdrawn: BTreeSet::new(),
            instances: BTreeMap::new(),
            stranded: BTreeMap::new(),
            pending: Vec::new(),
            asked: BTreeSet::new(),
            prewarms: BTreeSet::new(),
            sent_on: BTreeSet::new(),
            waiting: BTreeMap::new(),
            asked_at: BTreeMap::new(),
            taken_at: BTreeMap::new(),
            answered: BTreeSet::new(),
            had_bytes: BTreeMap::new(),
        }
    }

    pub fn vm_policy(&self, vm: VmIndex) -> VmPolicy {
        self.policies.vms[vm.0 as usize]
    }

    /// What a VM may use when it runs, apart from its instances.
    pub fn base_bytes(&self, vm: VmIndex) -> u64 {
        self.vm_policy(vm).base_bytes + self.lent_bytes.get(&vm).copied().unwrap_or(0)
    }

    /// What a VM that is there lacks of that.
    pub fn missing_base_bytes(&self, vm: VmIndex) -> u64 {
        self.base_bytes(vm).saturating_sub(self.charged_bytes[&vm])
    }

    pub fn function_policy(&self, function: FunctionIndex) -> FunctionPolicy {
        self.policies.functions[function.0 as usize]
    }

    pub fn tell(&mut self, event: Event) {
        let commands = self.scaler.handle(self.now, event).expect("a valid event");
        // A call that cannot be served must not make others fail.
        let fails = matches!(event, Event::StartFailed(_) | Event::VmFailed(_) | Event::VmEnded(_));
        for command in commands {
            if let Command::Reject { reason, .. } = command {
                let failed = [RejectReason::StartFailed, RejectReason::VmFailed].contains(&reason);
                assert!(fails || !failed, "rejected by {event:?}: {reason:?}");
            }
            self.check(command);
            if !matches!(
                command,
                Command::Reject { .. } | Command::Prewarmed(_) | Command::ResumeVm(_)
            ) {
                self.pending.push(command);
            }
        }
        self.check_budget();
        self.check_tenants();
        assert!(self.overdrawn.is_empty(), "{:?} hold what nobody is charged for", self.overdrawn);
        for (&number, entry) in self.instances.iter().filter(|(_, entry)| entry.condemned) {
            let state = self.scaler.state(number);
            let ends = !matches!(state, Some(InstanceState::Condemned { .. }));
            assert!(ends || self.vms[&entry.vm] == VmModel::Paused, "{number:?} is left to run");
        }
        if self.is_at_rest() {
            let in_vain = self.in_vain();
            let (vms, instances, stranded) = (&self.vms, &self.instances, &self.stranded);
            assert!(in_vain.is_none(), "{in_vain:?}: {vms:?}, {instances:?}, {stranded:?}");
            for &vm in &self.unfit {
                assert!(self.works(vm), "{vm:?} is not replaced: {vms:?}, {instances:?}");
            }
        }
    }

    /// Whether a request has waited for its limit while no request of its function was taken.
    pub fn has_waited_too_long(&self, request: RequestNumber) -> bool {
        let function = self.waiting[&request];
        let taken = self.taken_at.get(&function).copied().unwrap_or(Moment::START);
        let waited = self.now.since(self.asked_at[&request].max(taken));
        self.function_policy(function).wait_limit.is_some_and(|limit| waited >= limit)
    }

    /// A starting instance first takes over memory that the guest kept and that is not being asked back.
    pub fn use_again(&mut self, vm: VmIndex) {
        let asked = |instance| self.pending.contains(&Command::Reclaim { vm, instance });
        let mut stranded = self.stranded.iter().filter(|&(&n, &(v, _))| v == vm && !asked(n));
        if let Some((&number, _)) = stranded.next() {
            self.stranded.remove(&number);
        }
    }

    /// Drops a pending freeze or squeeze of an instance.
    pub fn forget_rest(&mut self, instance: InstanceNumber) {
        let rest = [Command::Freeze(instance), Command::Squeeze(instance)];
        self.pending.retain(|command| !rest.contains(command));
    }

    pub fn answer(&mut self, request: RequestNumber) {
        assert!(self.asked.contains(&request));
        assert!(self.answered.insert(request), "a request answered twice");
    }

    /// The budget has committed exactly what is in use, by the model's own count.
    pub fn check_budget(&self) {
        let bytes = self.taken_bytes();
        assert!(bytes <= LIMIT_BYTES, "over budget");
        assert_eq!(bytes, self.scaler.budget().committed_bytes());
    }

    /// Memory in use, by the model's own count.
    pub fn taken_bytes(&self) -> u64 {
        let stranded = self.stranded.values().map(|&(_, bytes)| bytes);
        let bytes: u64 = self.instances.values().map(|b| b.charged_bytes).chain(stranded).sum();
        bytes + self.charged_bytes.values().sum::<u64>()
    }

    pub fn end(&mut self, which: usize, well: bool, resident_bytes: u64) {
        if self.pending.is_empty() {
            return;
        }
        let which = which % self.pending.len();
        if let Command::PauseVm { vm, .. } = self.pending[which] {
            self.doom_some(vm, resident_bytes);
        }
        let command = self.pending.swap_remove(which);
        let event = match command {
            Command::BootVm(vm) => {
                self.vms.insert(vm, if well { VmModel::Up } else { VmModel::Absent });
                if !well {
                    self.charged_bytes.remove(&vm);
                }
                if well { Event::VmBooted(vm) } else { Event::VmFailed(vm) }
            }
            Command::PauseVm { vm, .. } => {
                let resident_bytes = if well { resident_bytes } else { u64::MAX };
                if well {
                    self.paused(vm, resident_bytes);
                }
                Event::VmPaused { vm, resident_bytes }
            }
            Command::KillVm { vm, .. } => return self.gone(vm),
            Command::EndVm { vm, .. } => {
                self.vms.insert(vm, VmModel::Absent);
                self.unfit.remove(&vm);
                self.charged_bytes.remove(&vm);
                self.stranded.retain(|_, stranded| stranded.0 != vm);
                self.instances.retain(|_, entry| entry.vm != vm);
                Event::VmEnded(vm)
            }
            Command::Start { instance, .. } => {
                let now = self.now;
                let entry = self.instances.get_mut(&instance).unwrap();
                entry.running = well;
                entry.free_since = now;
                if well { Event::Started(instance) } else { Event::StartFailed(instance) }
            }
            Command::Dispatch { instance, request, .. } => {
                let now = self.now;
                let entry = self.instances.get_mut(&instance).unwrap();
                entry.requests.remove(&request);
                entry.free_since = now;
                let well = well && !entry.dead;
                entry.broken |= !well;
                self.answer(request);
                if well { Event::Answered(instance) } else { Event::Broken(instance) }
            }
            Command::Stop { instance, .. } => {
                self.instances.get_mut(&instance).unwrap().running = false;
                Event::Stopped(instance)
            }
            Command::Reclaim { instance, .. } => {
                if let Some(entry) = self.instances.remove(&instance) {
                    self.stranded.insert(instance, (entry.vm, entry.charged_bytes));
                }
                if well {
                    self.stranded.remove(&instance);
                }
                if well { Event::Reclaimed(instance) } else { Event::ReclaimFailed(instance) }
            }
            Command::Freeze(instance) => {
                if self.policies.squeeze.is_none() {
                    return;
                }
                // What it holds may be unknown.
                let resident_bytes = if well { resident_bytes } else { u64::MAX };
                self.rests(instance, resident_bytes);
                Event::Frozen { instance, resident_bytes }
            }
            Command::Squeeze(instance) if well => {
                self.rests(instance, resident_bytes);
                let cpu = Duration::from_millis(resident_bytes % 7);
                Event::Squeezed { instance, resident_bytes, cpu }
            }
            Command::Squeeze(instance) => Event::SqueezeFailed(instance),
            Command::Condemn(instance) => self.condemn(instance, well, resident_bytes),
            Command::LendVm { vm, bytes } => {
                let given_bytes = if well { resident_bytes.min(bytes) } else { 0 };
                self.lent(vm, bytes - given_bytes);
                Event::Lent { vm, bytes, given_bytes }
            }
            Command::Reject { .. } | Command::Prewarmed(_) | Command::ResumeVm(_) => {
                unreachable!("it is not pending")
            }
        };
        self.tell(event);
    }

    pub fn rests(&mut self, instance: InstanceNumber, resident_bytes: u64) {
        let entry = self.instances.get_mut(&instance).expect("a known instance");
        entry.charged_bytes = entry.charged_bytes.min(resident_bytes);
        entry.measured = self.now;
    }

    /// One of the frozen instances that are to be measured again turns out to hold this much. If there is none, the
    /// result is about another one, and comes too late.
    fn measure(&mut self, which: usize, resident_bytes: u64) {
        let watched = self.vms.keys().flat_map(|&vm| self.scaler.worth_measuring(vm));
        let watched: Vec<_> = watched.collect();
        let Some(&instance) = watched.get(which % watched.len().max(1)) else {
            let mut all = self.instances.keys().copied();
            if let Some(instance) = all.nth(which % self.instances.len().max(1)) {
                self.tell(Event::Measured { instance, resident_bytes });
            }
            return;
        };
        let InstanceEntry { vm, frozen, charged_bytes, measured, .. } = self.instances[&instance];
        assert!(frozen && self.vms[&vm] == VmModel::Up, "{instance:?} may take memory, or cannot");
        let changes = [Command::Freeze(instance), Command::Squeeze(instance)];
        let changes = self.pending.iter().any(|command| changes.contains(command));
        assert!(!changes, "what {instance:?} holds is about to change");
        let policy = self.policies.squeeze.expect("it is charged for what it holds");
        let seconds = self.now.since(measured).as_secs();
        let tolerated_bytes = policy.tolerance_bytes * (10 + seconds) / 10;
        let most_bytes = self.vm_policy(vm).instance_bytes;
        let taken_bytes = resident_bytes.min(most_bytes).saturating_sub(charged_bytes);
        // It is taken already, whatever is promised to others, or left of a quota.
        let has_room = taken_bytes <= LIMIT_BYTES - self.taken_bytes();
        let owner = self.owner(vm);
        let entry = self.instances.get_mut(&instance).expect("a known instance");
        entry.measured = self.now;
        if taken_bytes > tolerated_bytes {
            self.overdrawn.insert(vm);
        } else if has_room {
            entry.charged_bytes += taken_bytes;
            *self.had_bytes.entry(owner).or_default() += taken_bytes;
        }
        self.tell(Event::Measured { instance, resident_bytes });
    }

    /// A paused VM is charged for all that it holds, or ended.
    fn paused(&mut self, vm: VmIndex, resident_bytes: u64) {
        let instances = self.instances.values().filter(|entry| entry.vm == vm);
        let beside =
            resident_bytes.saturating_sub(instances.map(|entry| entry.charged_bytes).sum());
        if beside <= self.charged_bytes[&vm] + self.free_bytes(self.owner(vm)) {
            self.charged_bytes.insert(vm, beside);
        } else {
            self.overdrawn.insert(vm);
        }
    }

    /// A guest has not got so much of a loan. Its VM may be paused or ending by now; then that does not matter before it
    /// runs again.
    fn lent(&mut self, vm: VmIndex, refused_bytes: u64) {
        let is_being_paused = self.is_being_paused(vm);
        let runs = self.vms[&vm] == VmModel::Up || is_being_paused;
        if let Some(charged_bytes) = self.charged_bytes.get_mut(&vm).filter(|_| runs) {
            *charged_bytes -= refused_bytes;
        }
        *self.lent_bytes.entry(vm).or_default() -= refused_bytes;
    }

    fn is_being_paused(&self, vm: VmIndex) -> bool {
        self.pending.iter().any(|command| pauses(command, vm))
    }

    /// Before a VM is paused, some of what is frozen in it is doomed. Others have to do with the rest.
    fn doom_some(&mut self, vm: VmIndex, seed: u64) {
        let within = self.instances.iter().filter(|(_, entry)| entry.vm == vm);
        let some = within.filter(|(number, _)| !(number.0 + seed).is_multiple_of(4));
        for number in some.map(|(&number, _)| number).collect::<Vec<_>>() {
            self.instances.get_mut(&number).expect("a known instance").doomed = true;
            self.tell(Event::Doomed(number));
        }
    }

    /// The answer may come when the VM runs again or has ended, and the instance with it.
    fn condemn(&mut self, instance: InstanceNumber, well: bool, freed_bytes: u64) -> Event {
        if let Some(entry) = self.instances.get_mut(&instance)
            && self.vms[&entry.vm] == VmModel::Paused
        {
            entry.condemned = well;
            if well {
                entry.charged_bytes = entry.charged_bytes.saturating_sub(freed_bytes);
            }
            entry.measured = self.now;
        }
        match well {
            true => Event::Condemned { instance, freed_bytes },
            false => Event::CondemnFailed(instance),
        }
    }

    /// A VM ends by itself.
    pub fn crash(&mut self, which: usize) {
        let there = |(&vm, &vm_model): (&VmIndex, &VmModel)| {
            let there = [VmModel::Up, VmModel::Paused, VmModel::Ending].contains(&vm_model);
            there.then_some(vm)
        };
        let vms: Vec<_> = self.vms.iter().filter_map(there).collect();
        if let Some(&vm) = vms.get(which % vms.len().max(1)) {
            self.gone(vm);
        }
    }

    /// Removes a VM with everything in it.
    fn gone(&mut self, vm: VmIndex) {
        self.vms.insert(vm, VmModel::Absent);
        self.unfit.remove(&vm);
        self.charged_bytes.remove(&vm);
        let gone: BTreeSet<_> =
            self.instances.iter().filter(|(_, b)| b.vm == vm).map(|(&n, _)| n).collect();
        for number in &gone {
            let requests = self.instances.remove(number).map(|entry| entry.requests);
            requests.into_iter().flatten().for_each(|request| self.answer(request));
        }
        self.pending.retain(|command| match command {
            Command::PauseVm { vm: index, .. }
            | Command::EndVm { vm: index, .. }
            | Command::KillVm { vm: index, .. }
            | Command::Reclaim { vm: index, .. } => *index != vm,
            Command::Start { instance, .. }
            | Command::Dispatch { instance, .. }
            | Command::Freeze(instance)
            | Command::Squeeze(instance)
            | Command::Stop { instance, .. } => !gone.contains(instance),
            _ => true,
        });
        self.stranded.retain(|_, stranded| stranded.0 != vm);
        self.tell(Event::VmEnded(vm));
    }

    pub fn request(&mut self, function: FunctionIndex) -> RequestNumber {
        let request = self.ask(function);
        self.tell(Event::Request { function, request });
        request
    }

    /// Sends a call on that has waited for another function.
    pub fn send_on(&mut self, function: FunctionIndex) {
        let request = self.ask(function);
        self.sent_on.insert(request);
        self.tell(Event::SentOn { function, request });
    }

    /// Wants an instance ahead of calls.
    pub fn prewarm(&mut self, function: FunctionIndex) {
        let request = self.ask(function);
        self.prewarms.insert(request);
        self.tell(Event::Prewarm { function, request });
        assert!(
            !self.waiting.contains_key(&request) || !self.has_instance(function),
            "wanted although it is there"
        );
    }

    fn ask(&mut self, function: FunctionIndex) -> RequestNumber {
        let request = RequestNumber(self.asked.len() as u64);
        self.asked.insert(request);
        self.asked_at.insert(request, self.now);
        self.waiting.insert(request, function);
        request
    }

    /// Whether an instance of a function runs.
    fn has_instance(&self, function: FunctionIndex) -> bool {
        let states = self.instances.iter().filter(|(_, entry)| entry.function == function);
        let mut states = states.filter_map(|(&number, _)| self.scaler.state(number));
        states.any(|s| matches!(s, InstanceState::Idle { .. } | InstanceState::Busy { .. }))
    }

    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Request { function } => drop(self.request(FunctionIndex(function))),
            Step::SendOn { function } => self.send_on(FunctionIndex(function)),
            Step::Prewarm { function } => self.prewarm(FunctionIndex(function)),
            Step::End { which, well, resident_bytes } => self.end(which, well, resident_bytes),
            Step::Die { which } => {
                let running: Vec<_> = self
                    .instances
                    .iter()
                    .filter(|(_, b)| b.running && !b.dead)
                    .map(|(&n, _)| n)
                    .collect();
                if let Some(&number) = running.get(which % running.len().max(1)) {
                    self.instances.get_mut(&number).unwrap().dead = true;
                    self.tell(Event::Died(number));
                }
            }
            Step::Crash { which } => self.crash(which),
            Step::Starve { vm, bytes: wanted_bytes } => {
                self.tell(Event::Starved { vm: VmIndex(vm), wanted_bytes });
            }
            Step::Measure { which, resident_bytes } => self.measure(which, resident_bytes),
            Step::Settle { seed } => self.settle(seed),
            Step::Unfit { vm } => {
                let vm = VmIndex(vm);
                // The event may come late, when the VM is gone, and again, when it is known to be unfit.
                if [VmModel::Up, VmModel::Paused].contains(&self.vms[&vm]) {
                    self.unfit.insert(vm);
                }
                self.tell(Event::VmUnfit(vm));
            }
            Step::Quota { tenant, memory_bytes } => self.set_quota(tenant, memory_bytes),
            Step::Retire { function } => self.tell(Event::Retire(FunctionIndex(function))),
            Step::Pass { milliseconds } => {
                self.now = self.now + Duration::from_millis(milliseconds);
                // One tick may freeze what the next one stops, or resume a VM in which more is due.
                for _ in 0..4 {
                    self.tell(Event::Tick);
                }
                self.check_deadlines();
            }
        }
    }

    /// A function that has fewer instances than its minimum, although there is memory for one more. Says nothing where
    /// something is under way or has failed.
    pub fn lacks_minimum(&self) -> Option<FunctionIndex> {
        let lacks = |&function: &FunctionIndex| {
            let FunctionPolicy { vm, min_instances, .. } = self.function_policy(function);
            let policy = self.vm_policy(vm);
            let own = self.instances.values().filter(|b| b.function == function && !b.condemned);
            let in_vm = self.instances.values().filter(|b| b.vm == vm).count();
            let base = match self.vms[&vm] {
                VmModel::Absent => policy.base_bytes,
                _ => self.missing_base_bytes(vm),
            };
            let free = LIMIT_BYTES - self.taken_bytes();
            let free = free.min(self.left_bytes(self.tenant_of(function)));
            let needed = base + policy.instance_bytes + self.policies.reserve_bytes;
            let has_room = needed <= free && in_vm < policy.max_instances as usize;
            has_room && own.count() < min_instances as usize
        };
        (0..FUNCTIONS).map(FunctionIndex).find(lacks)
    }

    /// After a tick, no instance has been idle and no request has waited for too long, and the next deadline
    /// lies ahead.
    pub fn check_deadlines(&self) {
        for (number, entry) in &self.instances {
            if let Some(InstanceState::Idle { since, frozen }) = self.scaler.state(*number) {
                let policy = self.function_policy(entry.function);
                let idle = self.now.since(since);
                // A paused VM may lack the memory to be resumed, so its instances cannot be stopped one by
                // one.
                let paused = self.vms[&entry.vm] == VmModel::Paused;
                let may_be_kept = policy.min_instances > 0;
                assert!(idle < policy.keep_alive || paused || may_be_kept);
                assert!(frozen || policy.freeze_after.is_none_or(|after| idle < after));
            }
        }
        assert!(!self.waiting.keys().any(|&request| self.has_waited_too_long(request)));
        assert!(self.scaler.next_deadline().is_none_or(|deadline| deadline > self.now));
    }
}

/// Whether it is this VM that is to be paused.
fn pauses(command: &Command, vm: VmIndex) -> bool {
    matches!(command, Command::PauseVm { vm: paused, .. } if *paused == vm)
}
