//! Finds calls that wait in vain, by looking at the whole world for a way to serve them.
//!
//! The scaler's liveness property is: *a call that could be served by ending what is idle is served without
//! another event*. So once nothing is under way except calls being served, which may take any time, no such
//! call may be waiting. [`Model::tell`] checks this whenever the world is at rest like that, and
//! [`Model::settle`] brings it there from any state, without time passing.
//!
//! Calls queue for memory here too: behind the first call that lacks memory none gets any, or small instances
//! would starve a large one. The first is that of the tenant that would have the least with it for its weight, and only
//! what is idle of tenants that have more than that may be ended for it. Nor do these give a call to an idle instance
//! before, or to a busy one with room for it, while other calls of theirs are served. Any other call that needs no memory
//! does not wait.

use crate::{
    LIMIT_BYTES, TENANTS,
    model::{InstanceEntry, Model, VmModel},
};
use squeezy_scaler::{Command, FunctionIndex, FunctionPolicy, RequestNumber, TenantIndex, VmIndex};
use std::ptr;

/// More than anything under way can take. A scaler that is not at rest by then makes no progress.
const MOST_STEPS: u32 = 2000;

/// A call that waits in vain, and what would serve it.
#[derive(Debug)]
#[expect(dead_code, reason = "only to be printed")]
pub struct InVain {
    request: RequestNumber,
    function: FunctionIndex,
    free_bytes: u64,
    needed_bytes: u64,
    had_bytes: u64,
}

/// A call that lacks memory.
#[derive(Clone, Copy)]
struct Lack {
    request: RequestNumber,
    function: FunctionIndex,
    needed_bytes: u64,
}

/// A way to serve a call: the memory it needs, and the memory there would be if everything idle were ended.
#[derive(Clone, Copy)]
struct Way {
    needed_bytes: u64,
    had_bytes: u64,
}

impl Way {
    fn is_open(self) -> bool {
        self.needed_bytes <= self.had_bytes
    }
}

impl Model {
    /// Completes everything under way except calls, in random order and mostly with success.
    pub fn settle(&mut self, mut seed: u64) {
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..MOST_STEPS {
            let under_way = (0..self.pending.len()).filter(|&i| !is_work(&self.pending[i]));
            let under_way: Vec<_> = under_way.collect();
            if under_way.is_empty() {
                return;
            }
            let which = under_way[draw(under_way.len() as u64) as usize];
            self.end(which, draw(8) > 0, draw(600));
        }
        panic!("it does not come to rest: {:?}", self.pending);
    }

    /// Whether nothing is under way except calls.
    pub fn is_at_rest(&self) -> bool {
        self.pending.iter().all(is_work)
    }

    /// A waiting call that could be served by ending what is idle and may be ended for it, in a world at rest.
    pub fn in_vain(&self) -> Option<InVain> {
        let tenants = || (0..TENANTS).map(TenantIndex);
        let lacks = |tenant| Some((self.lacks(tenant)?, tenant));
        let lacking = tenants().filter_map(lacks);
        let (of_quota, mut of_node): (Vec<_>, Vec<_>) =
            lacking.partition(|(lack, tenant)| lack.needed_bytes > self.left_bytes(*tenant));
        for (lack, tenant) in of_quota {
            let room = self.left_bytes(tenant).min(LIMIT_BYTES - self.taken_bytes());
            let ways = self.ways(lack.function, room + self.own_elsewhere(lack.function));
            if let Some(way) = ways.into_iter().find(|way| way.is_open()) {
                return Some(self.vain(lack, way));
            }
        }
        of_node.sort_by_key(|(lack, tenant)| {
            let bytes = self.bytes_of(*tenant) + lack.needed_bytes;
            // All weights divide this.
            (bytes * 12 / self.weight(*tenant), lack.request)
        });
        let first = of_node.first().copied();
        for tenant in tenants().filter(|&tenant| !first.is_some_and(|f| self.is_held(tenant, f))) {
            for (request, function) in self.line(tenant) {
                let ways = self.ways(function, 0);
                if let Some(way) = ways.into_iter().find(|way| way.needed_bytes == 0) {
                    let lack = Lack { request, function, needed_bytes: 0 };
                    return Some(self.vain(lack, way));
                }
            }
        }
        let (lack, tenant) = first?;
        let elsewhere = self.own_elsewhere(lack.function) + self.takes(lack, tenant);
        let room = LIMIT_BYTES - self.taken_bytes() + elsewhere;
        // What is taken of others does not make the quota any larger, and what is idle of its own may be left.
        let ways = self.ways(lack.function, room.min(self.left_bytes(tenant)));
        ways.into_iter().find(|way| way.is_open()).map(|way| self.vain(lack, way))
    }

    /// Whether there would be memory for an instance of a function without a VM, if everything idle were ended that may be
    /// for it. Says nothing where it is not known what that would bring: in a world that is not at rest, or that has memory
    /// which a guest has kept.
    pub fn has_room(&self, function: FunctionIndex) -> bool {
        let tenant = self.tenant_of(function);
        let lack =
            Lack { request: RequestNumber(0), function, needed_bytes: self.needed_bytes(function) };
        let free = LIMIT_BYTES - self.taken_bytes();
        let elsewhere = self.own_elsewhere(function);
        let room = if lack.needed_bytes > self.left_bytes(tenant) {
            free.min(self.left_bytes(tenant)) + elsewhere
        } else {
            (free + elsewhere + self.takes(lack, tenant)).min(self.left_bytes(tenant))
        };
        let is_known = self.is_at_rest() && self.stranded.is_empty();
        let has_vm = self.vms[&self.function_policy(function).vm] != VmModel::Absent;
        is_known && !has_vm && self.ways(function, room).into_iter().any(Way::is_open)
    }

    fn vain(&self, lack: Lack, way: Way) -> InVain {
        let (Lack { request, function, .. }, Way { needed_bytes, had_bytes }) = (lack, way);
        let free_bytes = LIMIT_BYTES - self.taken_bytes();
        InVain { request, function, free_bytes, needed_bytes, had_bytes }
    }

    /// The first call of a tenant that lacks memory, and how much it needs.
    fn lacks(&self, tenant: TenantIndex) -> Option<Lack> {
        let lack = |(request, function)| {
            let ways = self.ways(function, LIMIT_BYTES);
            // Without any, its function or its VM has all the instances it may have, and all are busy.
            let lacks = !ways.is_empty() && ways.iter().all(|way| way.needed_bytes > 0);
            lacks.then(|| Lack { request, function, needed_bytes: self.needed_bytes(function) })
        };
        self.line(tenant).into_iter().find_map(lack)
    }

    /// What a call of a function needs if nothing of its VM is ended for it.
    fn needed_bytes(&self, function: FunctionIndex) -> u64 {
        let FunctionPolicy { vm, max_instances, .. } = self.function_policy(function);
        let policy = self.vm_policy(vm);
        if self.vms[&vm] == VmModel::Absent {
            return policy.base_bytes + policy.instance_bytes;
        }
        let base = self.missing_base_bytes(vm);
        let instances = || self.instances.iter();
        let idle = instances().filter(|(_, e)| e.function == function && e.requests.is_empty());
        let idle = idle.filter(|(_, entry)| !entry.condemned);
        if let Some((_, last)) = idle.max_by_key(|&(number, entry)| (entry.free_since, number)) {
            return base + policy.instance_bytes - last.charged_bytes;
        }
        let there = instances().filter(|(_, entry)| entry.vm == vm).count();
        let own = instances().filter(|(_, entry)| entry.function == function).count();
        if there >= policy.max_instances as usize || own >= max_instances as usize {
            return base;
        }
        base + policy.instance_bytes.saturating_sub(self.kept_bytes(vm))
    }

    /// What may be taken of other tenants for a call, at least.
    fn takes(&self, lack: Lack, tenant: TenantIndex) -> u64 {
        let bytes = self.bytes_of(tenant) + lack.needed_bytes;
        let works =
            self.instances.values().any(|e| !e.requests.is_empty() && self.owner(e.vm) == tenant);
        let anything = !works && !self.is_share_now(tenant, bytes);
        let takes = |other: TenantIndex| {
            let vms = self.vms.keys().filter(|&&vm| self.owner(vm) == other);
            let idle: u64 = vms.map(|&vm| self.idle_bytes(vm)).sum();
            let level = bytes * self.weight(other) / self.weight(tenant);
            idle.min(if anything { u64::MAX } else { self.bytes_of(other).saturating_sub(level) })
        };
        (0..TENANTS).map(TenantIndex).filter(|&other| other != tenant).map(takes).sum()
    }

    /// Whether a tenant's idle instances take no call, because it stands above the one whose call lacks memory, and
    /// works.
    fn is_held(&self, tenant: TenantIndex, (lack, short): (Lack, TenantIndex)) -> bool {
        let works =
            self.instances.values().any(|e| !e.requests.is_empty() && self.owner(e.vm) == tenant);
        let level = (self.bytes_of(short) + lack.needed_bytes) * self.weight(tenant);
        tenant != short && works && self.bytes_of(tenant) * self.weight(short) > level
    }

    /// A tenant's waiting calls in the order in which they get memory: those with an idle instance that only lacks
    /// memory come before those without.
    fn line(&self, tenant: TenantIndex) -> Vec<(RequestNumber, FunctionIndex)> {
        let waiting = self.waiting.iter().filter(|&(_, &f)| self.tenant_of(f) == tenant);
        let mut line: Vec<_> = waiting.map(|(&r, &f)| (r, f)).collect();
        line.sort_by_key(|&(request, function)| (self.idle_of(function).next().is_none(), request));
        line
    }

    /// What would come back if everything idle of a function's tenant in other VMs were ended.
    fn own_elsewhere(&self, function: FunctionIndex) -> u64 {
        let (tenant, vm) = (self.tenant_of(function), self.function_policy(function).vm);
        let own = self.vms.keys().filter(|&&v| v != vm && self.owner(v) == tenant);
        own.map(|&v| self.idle_bytes(v)).sum()
    }

    /// All ways to serve a call of a function with this much memory besides that in its VM.
    fn ways(&self, function: FunctionIndex, room: u64) -> Vec<Way> {
        let FunctionPolicy { vm, max_instances, .. } = self.function_policy(function);
        let policy = self.vm_policy(vm);
        if self.has_open(function) {
            return vec![Way { needed_bytes: 0, had_bytes: room }];
        }
        // Condemned ones end as soon as their VM runs.
        let lives = |entry: &&InstanceEntry| !entry.condemned;
        let live = || self.instances.values().filter(lives);
        let own = live().filter(|b| b.function == function).count();
        let idle = self.idle_of(function).next().is_some();
        if !idle && own >= max_instances as usize {
            return Vec::new();
        }
        // Something in it is still busy, or it would be ending.
        if self.unfit.contains(&vm) {
            return Vec::new();
        }
        let anew = Way {
            needed_bytes: policy.base_bytes + policy.instance_bytes,
            had_bytes: room + self.idle_bytes(vm),
        };
        let vm_model = self.vms[&vm];
        if vm_model == VmModel::Absent {
            return vec![anew];
        }
        let mut ways = Vec::new();
        if !self.works(vm) && policy.base_bytes > 0 {
            ways.push(anew);
        }
        let within: u64 = self.idle_in(vm).map(|entry| entry.charged_bytes).sum();
        let base = self.missing_base_bytes(vm);
        // A VM has to run before anything in it can be ended, but for what can be condemned.
        let condemnable = |but: Option<&InstanceEntry>| -> u64 {
            let others = self.condemnable(vm).filter(|&e| but.is_none_or(|b| !ptr::eq(b, e)));
            others.map(|entry| entry.charged_bytes).sum()
        };
        if base <= room + condemnable(None) {
            let can_run = |entry: &&InstanceEntry| base <= room + condemnable(Some(*entry));
            for entry in self.idle_of(function).filter(can_run) {
                let needed_bytes = base + policy.instance_bytes - entry.charged_bytes;
                ways.push(Way { needed_bytes, had_bytes: room + within - entry.charged_bytes });
            }
            let there = live().filter(|entry| entry.vm == vm).count();
            let has_room = there < policy.max_instances as usize;
            let fits = own < max_instances as usize;
            if fits && (has_room || self.idle_in(vm).next().is_some()) {
                let needed_bytes = base + policy.instance_bytes.saturating_sub(self.kept_bytes(vm));
                ways.push(Way { needed_bytes, had_bytes: room + within });
            }
        }
        ways
    }

    /// What the guest has kept of an ended instance. If of several, the earliest is reused first.
    fn kept_bytes(&self, vm: VmIndex) -> u64 {
        let mut stranded = self.stranded.values().filter(|&&(v, _)| v == vm);
        stranded.next().map_or(0, |&(_, bytes)| bytes)
    }

    fn idle_of(&self, function: FunctionIndex) -> impl Iterator<Item = &InstanceEntry> {
        let of = move |b: &&InstanceEntry| b.function == function && b.requests.is_empty();
        self.instances.values().filter(of).filter(|entry| !entry.condemned)
    }

    /// Whether a busy instance of a function takes one more request beside its own.
    fn has_open(&self, function: FunctionIndex) -> bool {
        let FunctionPolicy { vm, requests_per_instance, .. } = self.function_policy(function);
        let most = usize::from(requests_per_instance.get());
        let mut own = self.instances.values().filter(|entry| entry.function == function);
        let takes = |entry: &InstanceEntry| {
            !entry.dead && !entry.broken && (1..most).contains(&entry.requests.len())
        };
        !self.unfit.contains(&vm) && own.any(takes)
    }

    /// What is doomed in a VM, without the one that was used last.
    fn condemnable(&self, vm: VmIndex) -> impl Iterator<Item = &InstanceEntry> {
        let live = self.instances.iter().filter(move |(_, e)| e.vm == vm && !e.condemned);
        let mut live: Vec<_> = live.collect();
        live.sort_by_key(|&(number, entry)| (entry.free_since, number));
        live.pop();
        live.into_iter().map(|(_, entry)| entry).filter(|entry| entry.doomed)
    }

    /// Including condemned ones, whose end brings what is left of them.
    fn idle_in(&self, vm: VmIndex) -> impl Iterator<Item = &InstanceEntry> {
        self.instances.values().filter(move |entry| entry.vm == vm && entry.requests.is_empty())
    }

    /// Whether an instance in a VM is busy.
    pub fn works(&self, vm: VmIndex) -> bool {
        self.instances.values().any(|entry| entry.vm == vm && !entry.requests.is_empty())
    }

    /// What would come back if everything idle in a VM were ended, and the VM too if nothing in it is busy.
    fn idle_bytes(&self, vm: VmIndex) -> u64 {
        let idle: u64 = self.idle_in(vm).map(|entry| entry.charged_bytes).sum();
        if self.works(vm) {
            return idle;
        }
        let stranded = self.stranded.values().filter(|&&(v, _)| v == vm).map(|&(_, bytes)| bytes);
        idle + stranded.sum::<u64>() + self.charged_bytes.get(&vm).copied().unwrap_or(0)
    }
}

/// Whether a command serves a call, which may take any time.
fn is_work(command: &Command) -> bool {
    matches!(command, Command::Dispatch { .. })
}
