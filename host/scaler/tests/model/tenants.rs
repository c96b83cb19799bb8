//! What tenants have and may have.

use super::*;
use std::fmt;

impl Model {
    pub fn tenant_policy(&self, tenant: TenantIndex) -> TenantPolicy {
        self.policies.tenants[tenant.0 as usize]
    }

    pub fn owner(&self, vm: VmIndex) -> TenantIndex {
        self.policies.owners[vm.0 as usize]
    }

    pub fn tenant_of(&self, function: FunctionIndex) -> TenantIndex {
        self.owner(self.function_policy(function).vm)
    }

    pub fn weight(&self, tenant: TenantIndex) -> u64 {
        self.tenant_policy(tenant).weight.get().into()
    }

    /// Memory of a tenant in use, by the model's own count.
    pub fn bytes_of(&self, tenant: TenantIndex) -> u64 {
        let of = |vm: &VmIndex| self.owner(*vm) == tenant;
        let instances = self.instances.values().map(|entry| (entry.vm, entry.charged_bytes));
        let instances = instances.chain(self.stranded.values().copied());
        let vms = self.charged_bytes.iter().map(|(&vm, &bytes)| (vm, bytes));
        instances.chain(vms).filter(|(vm, _)| of(vm)).map(|(_, bytes)| bytes).sum()
    }

    /// What is free for something of a tenant: other tenants' VMs that boot need some for a first instance.
    pub fn free_bytes(&self, tenant: TenantIndex) -> u64 {
        let promised = |command: &Command| match *command {
            Command::BootVm(vm) if self.owner(vm) != tenant => self.vm_policy(vm).instance_bytes,
            _ => 0,
        };
        let promised = self.pending.iter().map(promised).sum();
        let free = (LIMIT_BYTES - self.taken_bytes()).saturating_sub(promised);
        free.min(self.left_bytes(tenant))
    }

    /// What a tenant's quota leaves it.
    pub fn left_bytes(&self, tenant: TenantIndex) -> u64 {
        let most = self.tenant_policy(tenant).memory_bytes.unwrap_or(u64::MAX);
        most.saturating_sub(self.bytes_of(tenant))
    }

    /// The calls of a tenant that wait or are served.
    pub fn calls_of(&self, tenant: TenantIndex) -> usize {
        let waiting = self.waiting.iter().filter(|(request, _)| !self.prewarms.contains(request));
        let own = waiting.filter(|&(_, &function)| self.tenant_of(function) == tenant);
        own.count() + self.served(tenant)
    }

    fn served(&self, tenant: TenantIndex) -> usize {
        let own = self.instances.values().filter(|entry| self.owner(entry.vm) == tenant);
        own.map(|entry| entry.requests.len()).sum()
    }

    /// The calls that are being served.
    pub fn running(&self) -> BTreeSet<RequestNumber> {
        self.instances.values().flat_map(|entry| &entry.requests).copied().collect()
    }

    /// Whether a tenant with this much memory is within its share, even if all others want theirs.
    pub fn is_share(&self, tenant: TenantIndex, bytes: u64) -> bool {
        let all: u64 = (0..TENANTS).map(|tenant| self.weight(TenantIndex(tenant))).sum();
        bytes * all <= LIMIT_BYTES * self.weight(tenant)
    }

    /// Whether a call of a function leaves its tenant within its share, and can be served at all.
    pub fn stays_within_share(&self, function: FunctionIndex) -> bool {
        let tenant = self.tenant_of(function);
        let VmPolicy { base_bytes, instance_bytes, .. } =
            self.vm_policy(self.function_policy(function).vm);
        self.is_share(tenant, self.bytes_of(tenant) + base_bytes + instance_bytes)
    }

    /// Completes whatever is under way except calls, or one of the calls that ran; `false` if there is neither.
    pub fn end_but_calls_since(&mut self, ran: &BTreeSet<RequestNumber>) -> bool {
        let ends = |command: &Command| match command {
            Command::Dispatch { request, .. } => ran.contains(request),
            _ => true,
        };
        let is_call = |which: &usize| matches!(self.pending[*which], Command::Dispatch { .. });
        let which = (0..self.pending.len()).filter(|&which| ends(&self.pending[which]));
        let Some(which) = which.min_by_key(is_call) else { return false };
        self.end(which, true, 50);
        true
    }

    pub fn set_quota(&mut self, tenant: u32, memory_bytes: Option<u64>) {
        let policy = &mut self.policies.tenants[tenant as usize];
        policy.memory_bytes = memory_bytes;
        let policy = *policy;
        self.scaler.update_tenant(TenantIndex(tenant), policy).expect("a valid policy");
        self.tell(Event::Tick);
    }

    /// What is idle of a tenant is ended for its own sake, for the reserve, or for a tenant that is within its share or
    /// has nothing at work, unless it stands above its own share.
    pub fn check_taken(&self, from: TenantIndex) {
        let waits = |tenant| self.waiting.values().any(|&f| self.tenant_of(f) == tenant);
        let works = |tenant| {
            let starts = |command: &Command| match command {
                Command::BootVm(vm) | Command::Start { vm, .. } => self.owner(*vm) == tenant,
                _ => false,
            };
            self.served(tenant) > 0 || self.pending.iter().any(starts)
        };
        let others = (0..TENANTS).map(TenantIndex).filter(|&other| other != from && waits(other));
        let mut entitled = others
            .filter(|&other| !works(other) || self.is_share_now(other, self.held_bytes(other)));
        let own = waits(from) || self.left_bytes(from) == 0 || self.policies.reserve_bytes > 0;
        let is_above = !self.is_share_now(from, self.held_bytes(from));
        assert!(own || is_above || entitled.next().is_some(), "taken of {from}: {self}");
    }

    /// The memory of a tenant that is not on its way back to the host.
    fn held_bytes(&self, tenant: TenantIndex) -> u64 {
        // What still works in a VM that is killed may go on to.
        let works = |number: InstanceNumber| {
            let starts = |command: &Command| match command {
                Command::Start { instance, .. } => *instance == number,
                _ => false,
            };
            self.instances.get(&number).is_some_and(|entry| !entry.requests.is_empty())
                || self.pending.iter().any(starts)
        };
        let ends = |number: InstanceNumber, vm: VmIndex| {
            (self.vms[&vm] == VmModel::Ending && !works(number))
                || self.pending.iter().any(|command| match *command {
                    Command::Stop { instance, .. }
                    | Command::Reclaim { instance, .. }
                    | Command::Condemn(instance) => instance == number,
                    _ => false,
                })
        };
        let instances =
            self.instances.iter().map(|(&n, entry)| (n, (entry.vm, entry.charged_bytes)));
        let stranded = self.stranded.iter().map(|(&number, &stranded)| (number, stranded));
        let held = instances.chain(stranded).filter(|&(number, (vm, _))| !ends(number, vm));
        let vms = self.charged_bytes.iter().map(|(&vm, &bytes)| (vm, bytes));
        let vms = vms.filter(|(vm, _)| self.vms[vm] != VmModel::Ending);
        let of = |vm| self.owner(vm) == tenant;
        held.map(|(_, held)| held).chain(vms).filter(|&(vm, _)| of(vm)).map(|(_, b)| b).sum()
    }

    /// Whether a tenant with this much memory is within its share among those who hold or want any.
    pub fn is_share_now(&self, tenant: TenantIndex, bytes: u64) -> bool {
        let there = |other: &TenantIndex| {
            *other == tenant
                || self.bytes_of(*other) > 0
                || self.waiting.values().any(|&function| self.tenant_of(function) == *other)
        };
        let all = (0..TENANTS).map(TenantIndex).filter(there);
        let all: u64 = all.map(|other| self.weight(other)).sum();
        bytes * all <= LIMIT_BYTES * self.weight(tenant)
    }

    /// Nobody is given more than a quota allows, and the scaler counts what the model counts.
    pub fn check_tenants(&mut self) {
        for tenant in (0..TENANTS).map(TenantIndex) {
            let (bytes, calls) = (self.bytes_of(tenant), self.calls_of(tenant));
            let policy = self.tenant_policy(tenant);
            let had = self.had_bytes.insert(tenant, bytes).unwrap_or(0);
            let most = policy.memory_bytes.unwrap_or(u64::MAX);
            assert!(bytes <= most.max(had), "{tenant} has {bytes} of {most} bytes");
            assert!(policy.calls.is_none_or(|most| calls <= most), "{tenant} has {calls} calls");
            let counts = self.scaler.tenant_counts(tenant);
            assert_eq!(counts.promised_bytes, bytes);
            assert_eq!(
                (counts.queued + counts.running, counts.running),
                (calls, self.served(tenant))
            );
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vms, instances, stranded, waiting, pending, charged_bytes, .. } = self;
        write!(
            f,
            "{vms:?}, {charged_bytes:?}, {instances:?}, {stranded:?}, {waiting:?}, {pending:?}"
        )
    }
}
