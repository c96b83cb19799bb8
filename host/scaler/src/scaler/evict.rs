//! Which instances and VMs have to give up their memory.

use super::{Scaler, Vm, claim::Claim, scale::Shortage};
use crate::{Command, InstanceNumber, Moment, StopReason, TenantIndex, VmIndex, VmState};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Pauses and freezes that were under way when memory became short. Only these are waited for: on a busy host there is
/// always one that began later.
pub(super) struct Awaited {
    vms: BTreeSet<VmIndex>,
    instances: BTreeSet<InstanceNumber>,
}

/// Something that can be ended to make room.
#[derive(Clone, Copy)]
pub(super) enum Evictable {
    Instance(InstanceNumber),
    /// An instance of a paused VM, without the VM.
    Condemned(InstanceNumber),
    /// A VM with no running instance.
    Vm(VmIndex),
    /// All idle instances of a VM that has all its memory from boot on: once they are gone, it can go too.
    AllOf(VmIndex),
}

impl Scaler {
    /// Stops idle instances in full VMs, least recently used first.
    pub(super) fn make_room(&mut self, shortage: &Shortage, commands: &mut Vec<Command>) {
        for (&vm, &wanted) in &shortage.room {
            let coming = self.pool.going().filter(|i| i.vm == vm).count();
            let idle = self.pool.idle_in(vm).map(|(_, number)| number);
            let evictable = idle.filter(|&number| Some(number) != shortage.thawing);
            for number in evictable.take(wanted.saturating_sub(coming)).collect::<Vec<_>>() {
                self.stop(number, StopReason::Evicted, commands);
            }
        }
    }

    /// Ends idle instances and unused VMs until what is claimed is free or on its way back, or nothing is left that may
    /// be taken for it. Spares whatever is to get the memory. Returns `false`, and ends nothing, if an instance that is
    /// wanted ahead of calls comes first, and would not get enough by that.
    pub(super) fn evict(&mut self, claim: &Claim, commands: &mut Vec<Command>) -> bool {
        let (room, wanted) = (self.room_bytes(claim), self.wanted_bytes(claim));
        if room >= wanted {
            self.awaited.remove(&claim.tenant);
            return true;
        }
        let sources = self.sources(claim, room);
        self.freeze_evictables(&sources, claim.shortage.thawing, commands);
        if self.waits(claim, &sources) {
            return true;
        }
        let (plan, room) = self.plan(claim);
        // Who is being frozen is not ended, and may bring what is lacking.
        let gain = |&number: &InstanceNumber| self.most_gain(number, claim, &sources);
        let most: u64 = self.freezing.iter().map(gain).sum();
        if room < wanted && room.saturating_add(most) >= wanted {
            return true;
        }
        if claim.shortage.prewarming.is_some() && claim.lacks_the_first(room) {
            return false;
        }
        for evictable in plan {
            match evictable {
                Evictable::Instance(number) => self.stop(number, StopReason::Evicted, commands),
                Evictable::Condemned(number) => self.condemn(number, commands),
                Evictable::Vm(index) => self.end_vm(index, StopReason::Evicted, commands),
                Evictable::AllOf(index) => {
                    for (_, number) in self.pool.idle_in(index).collect::<Vec<_>>() {
                        self.stop(number, StopReason::Evicted, commands);
                    }
                }
            }
        }
        if room < wanted {
            self.evict_within(claim, commands);
        }
        true
    }

    /// Whether to wait until it is known what VMs and instances hold that are being paused and frozen.
    fn waits(&mut self, claim: &Claim, sources: &[TenantIndex]) -> bool {
        let (vms, instances) = self.settling(claim, sources);
        let awaited = self
            .awaited
            .entry(claim.tenant)
            .or_insert_with(|| Awaited { vms: vms.clone(), instances: instances.clone() });
        awaited.vms.retain(|vm| vms.contains(vm));
        awaited.instances.retain(|number| instances.contains(number));
        !awaited.vms.is_empty() || !awaited.instances.is_empty()
    }

    /// VMs that are being paused and instances that are being frozen, and that may bring something for a claim.
    pub(super) fn settling(
        &self,
        claim: &Claim,
        sources: &[TenantIndex],
    ) -> (BTreeSet<VmIndex>, BTreeSet<InstanceNumber>) {
        let of_source = |index: &VmIndex| {
            let tenant = self.vms.get(index).and_then(|vm| vm.tenant);
            tenant.is_some_and(|tenant| sources.contains(&tenant))
        };
        let may_gain = |&number: &InstanceNumber| self.most_gain(number, claim, sources) > 0;
        let vms = self.pausing.iter().copied().filter(of_source).collect();
        (vms, self.freezing.iter().copied().filter(may_gain).collect())
    }

    /// The most bytes that may come back with the end of an instance's freeze.
    fn most_gain(&self, number: InstanceNumber, claim: &Claim, sources: &[TenantIndex]) -> u64 {
        let instance = self.pool.get(number).filter(|_| claim.shortage.thawing != Some(number));
        let instance = instance.filter(|instance| sources.contains(&instance.tenant));
        instance.map_or(0, |instance| instance.charged_bytes)
    }

    /// Bytes on their way back, including those of VMs that will be empty once their stopping instances are
    /// gone. If the claim is to a tenant's quota, only what is that tenant's.
    pub(super) fn coming_bytes(&self, claim: &Claim) -> u64 {
        let only = claim.only();
        let counts = |tenant| only.is_none_or(|only| tenant == Some(only));
        let counts_vm = |index: &VmIndex| counts(self.vms.get(index).and_then(|vm: &Vm| vm.tenant));
        let ending = self.ending.iter().filter(|index| counts_vm(index));
        let ending = ending.map(|&index| self.vm_bytes(index));
        // Instances that end with their VM are counted with it.
        let going = self.pool.going().filter(|i| !self.ending.contains(&i.vm));
        let empty = self.going_in();
        let empty = empty.iter().filter(|(index, _)| counts_vm(index));
        let empty = empty.map(|(&index, &count)| self.left_empty_bytes(index, count, claim));
        let going = going.chain(self.pool.condemning()).filter(|i| counts(Some(i.tenant)));
        let going = going.map(|i| i.charged_bytes);
        ending.chain(going).chain(empty).sum()
    }

    /// How many instances are going, per VM that is not itself ending.
    pub(super) fn going_in(&self) -> BTreeMap<VmIndex, usize> {
        let mut going = BTreeMap::new();
        for instance in self.pool.going().filter(|i| !self.ending.contains(&i.vm)) {
            *going.entry(instance.vm).or_default() += 1;
        }
        going
    }

    /// What comes back with a VM if `count` instances are all it has: a VM left empty is ended when memory is
    /// short, unless it is the one that is to get memory.
    pub(super) fn left_empty_bytes(&self, index: VmIndex, count: usize, claim: &Claim) -> u64 {
        let stays = Some(index) == claim.shortage.first || self.pool.alive(index) > count;
        self.vms.get(&index).filter(|_| !stays).map_or(0, |vm| vm.charged_bytes)
    }

    /// The last resort, when all that is left to end is in the very VM that lacks memory. If it is paused, it
    /// is resumed so that its idle and condemned instances can be ended. If that is not enough and no memory
    /// is on its way back, one of two things is ended: the instance that lacks memory, if a new one fits into
    /// what the guest kept of another; or the whole VM, if nothing in it is busy and it can be booted again
    /// with the memory that this frees.
    fn evict_within(&mut self, claim: &Claim, commands: &mut Vec<Command>) {
        let shortage = &claim.shortage;
        let Some(index) = shortage.first else { return };
        let Some(&Vm { policy, state, .. }) = self.vms.get(&index) else { return };
        // Nothing can be ended in it before it is paused or resumed.
        if self.pausing.contains(&index) {
            return;
        }
        let paused = matches!(state, VmState::Paused { .. });
        let evictable =
            self.pool.idle_in(index).any(|(_, number)| Some(number) != shortage.thawing)
                || self.pool.condemned(index).next().is_some();
        let missing = self.missing_base_bytes(index);
        if paused && evictable && self.resume(index, commands) {
            let mut shortage = shortage.clone();
            if let Some(need) = shortage.needs.first_mut() {
                *need = need.saturating_sub(missing);
            }
            self.evict(&Claim { shortage, ..*claim }, commands);
            return;
        }
        if self.coming_bytes(claim) > 0 {
            return;
        }
        let free = self.free_bytes(index);
        let had = |number| self.pool.get(number).map_or(0, |instance| instance.charged_bytes);
        let kept = self.pool.stranded(index).map(had);
        let anew = |&n: &InstanceNumber| {
            kept.is_some_and(|kept| policy.instance_bytes <= free.saturating_add(kept + had(n)))
        };
        if let Some(number) = shortage.thawing.filter(anew) {
            return self.stop(number, StopReason::Evicted, commands);
        }
        let idle: Vec<_> = self.pool.idle_in(index).map(|(_, number)| number).collect();
        let needed = policy.base_bytes.saturating_add(policy.instance_bytes);
        let works = !paused && idle.len() < self.pool.alive(index);
        if works || needed > free.saturating_add(self.vm_bytes(index)) {
            return;
        }
        match state {
            VmState::Up { .. } if !idle.is_empty() => {
                idle.into_iter().for_each(|n| self.stop(n, StopReason::Evicted, commands));
            }
            VmState::Up { .. } | VmState::Paused { .. } => {
                self.end_vm(index, StopReason::Evicted, commands);
            }
            VmState::Absent | VmState::Booting | VmState::Ending => {}
        }
    }

    /// What frees memory of a tenant when it is ended, and how much, least recently used first, but what is kept up
    /// without calls last. Leaves out whatever is to get the memory.
    pub(super) fn evictables(
        &self,
        tenant: TenantIndex,
        claim: &Claim,
    ) -> impl Iterator<Item = (Evictable, u64)> + use<'_> {
        let kept = (!self.keeping.is_empty()).then(|| self.evictables_if(tenant, claim, true));
        self.evictables_if(tenant, claim, false).chain(kept.into_iter().flatten())
    }

    fn evictables_if(
        &self,
        tenant: TenantIndex,
        claim: &Claim,
        kept: bool,
    ) -> impl Iterator<Item = (Evictable, u64)> + use<'_> {
        let Shortage { first: needed, thawing, .. } = claim.shortage;
        let runs = move |vm| {
            matches!(self.vm_state(vm), Some(VmState::Up { .. })) && !self.pausing.contains(&vm)
        };
        let instances =
            self.pool.idle_by(tenant).filter(move |&(_, number)| Some(number) != thawing);
        let instances = instances.filter_map(move |(at, number)| {
            let instance = self.pool.get(number)?;
            if self.is_condemnable(number, instance.vm) {
                return Some((at, Evictable::Condemned(number), instance.charged_bytes));
            }
            if !runs(instance.vm) {
                return None;
            }
            match instance.charged_bytes {
                // What it holds is known in a moment.
                1.. if self.freezing.contains(&number) => None,
                0 => {
                    let index = instance.vm;
                    let brings = Some(index) != needed && self.is_last_idle(number, index);
                    brings.then(|| (at, Evictable::AllOf(index), self.vms[&index].charged_bytes))
                }
                bytes => Some((at, Evictable::Instance(number), bytes)),
            }
        });
        // An instance may have been added since the set was last updated.
        let free = move |index| {
            let paused = matches!(self.vm_state(index), Some(VmState::Paused { .. }));
            let empty = self.pool.alive(index) == 0 && !self.pausing.contains(&index);
            Some(index) != needed && (paused || empty)
        };
        let (first, last) =
            ((Moment::START, VmIndex(0)), (Moment(Duration::MAX), VmIndex(u32::MAX)));
        let vms = self.evictable_vms.range((tenant, first)..=(tenant, last));
        let vms = vms.filter(move |(_, (_, index))| free(*index));
        let vms = vms.map(|&(_, (at, index))| (at, Evictable::Vm(index), self.vm_bytes(index)));
        let (mut instances, mut vms) = (instances.peekable(), vms.peekable());
        let merged = std::iter::from_fn(move || match (instances.peek(), vms.peek()) {
            (Some((idle, ..)), Some((empty, ..))) if empty < idle => vms.next(),
            (None, _) => vms.next(),
            _ => instances.next(),
        });
        let is_kept = move |evictable| match evictable {
            Evictable::Instance(number) | Evictable::Condemned(number) => self.is_kept(number),
            Evictable::Vm(index) | Evictable::AllOf(index) => self.has_kept(index),
        };
        let wanted =
            move |&(_, evictable, bytes): &(_, _, u64)| bytes > 0 && is_kept(evictable) == kept;
        merged.filter(wanted).map(|(_, evictable, bytes)| (evictable, bytes))
    }

    /// Whether all live instances of a VM are idle and this one is the most recently used.
    fn is_last_idle(&self, number: InstanceNumber, vm: VmIndex) -> bool {
        self.pool.idle_in(vm).next_back().is_some_and(|(_, last)| last == number)
            && self.pool.idle_in(vm).count() == self.pool.alive(vm)
    }

    /// Bytes that come back when a VM with no running instance is ended.
    fn vm_bytes(&self, index: VmIndex) -> u64 {
        let Some(vm) = self.vms.get(&index) else { return 0 };
        let instances = self.pool.within(index).filter_map(|number| self.pool.get(number));
        vm.charged_bytes + instances.map(|instance| instance.charged_bytes).sum::<u64>()
    }
}
