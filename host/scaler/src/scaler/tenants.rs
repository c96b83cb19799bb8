//! Who shares the node, what each has of it, and what it may take of the others.
//!
//! Memory is shared by max-min fairness with weights. A tenant's *level* is the memory that it holds divided by its
//! weight. While memory is short, the tenant gets it first that would have the lowest level with it, and it comes from
//! what is idle of the tenant with the highest level, as long as that stands above the level at which the other would
//! then be. Until a call has got its memory, whoever stands above that level gives no other call to an instance that
//! could make room for it, and starts none.
//!
//! What follows from this, once a call has come to the front of its tenant's line:
//!
//! - **A bounded wait.** A tenant's *share* is its weight's part of all memory, among the tenants that hold memory or
//!   wait for it. A call with which its tenant stays within its share waits at most until the calls that run already have
//!   ended, and the memory that they held is back. Nobody's later call gets ahead of it, unless that one's tenant has
//!   even less. What a guest has kept of an ended instance, or was lent, counts as its tenant's, but comes back only
//!   when the guest gives it.
//! - **Warm instances stay.** What is idle of a tenant within its share is not ended for calls with which another would
//!   exceed its own, with one exception: while nothing at all of a tenant is at work, one call of it may take what is
//!   idle of anybody. Otherwise a tenant whose smallest VM is larger than its share could never run.
//! - **Nothing lies idle.** While there is memory for all, everybody may have any amount of it.
//! - **No call is ended** to make room for another.
//!
//! Starts and queues need no sharing: a VM belongs to one tenant and starts so many instances at a time on its own, and
//! a function has a queue of its own. A tenant's quotas are hard bounds on all of its memory and calls together.

use super::{
    Scaler, Vm,
    tenant::{Tenant, TenantCounts},
};
use crate::{FunctionIndex, PolicyError, TenantIndex, TenantPolicy, VmIndex, instance::Instance};

impl Scaler {
    /// Adds a tenant.
    pub fn add_tenant(&mut self, policy: TenantPolicy) -> Result<TenantIndex, PolicyError> {
        policy.check()?;
        let index = TenantIndex(self.next_tenant);
        self.next_tenant += 1;
        self.tenants.insert(index, Tenant::new(policy));
        Ok(index)
    }

    /// Changes a tenant's policy. If it has more memory than it may have now, what is idle of it is ended at the next
    /// event; calls go on.
    pub fn update_tenant(
        &mut self,
        index: TenantIndex,
        policy: TenantPolicy,
    ) -> Result<(), PolicyError> {
        policy.check()?;
        self.tenants.get_mut(&index).ok_or(PolicyError::NoTenant(index))?.policy = policy;
        self.shrunk.insert(index);
        Ok(())
    }

    /// Removes a tenant, which gets no more functions. It goes with the last of those that it has.
    pub fn remove_tenant(&mut self, index: TenantIndex) {
        if let Some(tenant) = self.tenants.get_mut(&index) {
            tenant.removed = true;
        }
        self.forget_tenant(index);
    }

    /// A tenant's calls and memory; all zero if it is gone.
    pub fn tenant_counts(&self, index: TenantIndex) -> TenantCounts {
        self.tenants.get(&index).map_or_else(TenantCounts::default, |tenant| TenantCounts {
            queued: tenant.queued,
            running: tenant.running,
            promised_bytes: tenant.used_bytes,
        })
    }

    /// All tenants.
    pub fn tenants(&self) -> impl Iterator<Item = TenantIndex> {
        self.tenants.keys().copied()
    }

    /// Makes a tenant the owner of a VM and of a new function in it, if nobody else has it and it fits the quota.
    pub(super) fn own(&mut self, index: TenantIndex, vm: VmIndex) -> Result<(), PolicyError> {
        let owner = self.tenants.get(&index).filter(|tenant| !tenant.removed);
        let owner = owner.ok_or(PolicyError::NoTenant(index))?;
        let there = self.vms.get(&vm).filter(|vm| !vm.retired).ok_or(PolicyError::NoVm(vm))?;
        if there.tenant.is_some_and(|other| other != index) {
            return Err(PolicyError::OtherTenant(vm));
        }
        let needed_bytes = there.policy.base_bytes + there.policy.instance_bytes;
        if let Some(quota_bytes) = owner.policy.memory_bytes.filter(|&most| needed_bytes > most) {
            return Err(PolicyError::OverQuota { needed_bytes, quota_bytes });
        }
        let is_new = there.tenant.is_none();
        if let Some(tenant) = self.tenants.get_mut(&index) {
            tenant.parts += 1 + usize::from(is_new);
        }
        if let Some(vm) = self.vms.get_mut(&vm) {
            vm.tenant = Some(index);
        }
        Ok(())
    }

    /// Whether a VM with one instance fits into its tenant's quota, which may have been lowered.
    pub(super) fn fits_quota(&self, vm: VmIndex) -> bool {
        let Some(vm) = self.vms.get(&vm) else { return false };
        let most = vm.tenant.and_then(|index| self.tenants.get(&index)?.policy.memory_bytes);
        most.is_none_or(|most| vm.policy.base_bytes + vm.policy.instance_bytes <= most)
    }

    /// A function or VM of a tenant is gone.
    pub(super) fn lose_part(&mut self, index: TenantIndex) {
        if let Some(tenant) = self.tenants.get_mut(&index) {
            tenant.parts -= 1;
        }
        self.forget_tenant(index);
    }

    fn forget_tenant(&mut self, index: TenantIndex) {
        if self.tenants.get(&index).is_some_and(|tenant| tenant.removed && tenant.parts == 0) {
            self.tenants.remove(&index);
        }
    }

    /// The tenant of a function.
    pub(super) fn tenant_of(&self, function: FunctionIndex) -> Option<&Tenant> {
        self.tenants.get(&self.function(function)?.tenant)
    }

    /// Bytes that something in this VM can be given now.
    pub(super) fn free_bytes(&self, vm: VmIndex) -> u64 {
        let Some(owner) = self.vms.get(&vm).and_then(|vm| vm.tenant) else { return 0 };
        self.free_to(owner).min(self.left_bytes(owner))
    }

    /// Bytes of the budget that are free, but for those that other tenants' booting VMs need for a first instance: whoever
    /// they boot for would wait for a later call otherwise.
    pub(super) fn free_to(&self, index: TenantIndex) -> u64 {
        let others = self.tenants.iter().filter(|(other, _)| **other != index);
        let promised = others.map(|(_, tenant)| tenant.promised_bytes).sum();
        self.budget.free_bytes().saturating_sub(promised)
    }

    /// Bytes that a tenant's quota leaves it.
    pub(super) fn left_bytes(&self, index: TenantIndex) -> u64 {
        self.tenants.get(&index).map_or(0, Tenant::left_bytes)
    }

    /// Whether a tenant with this much memory would stay within its share.
    pub(super) fn is_share(&self, index: TenantIndex, bytes: u64) -> bool {
        let Some(tenant) = self.tenants.get(&index) else { return false };
        let part = |tenant: &Tenant| u128::from(tenant.policy.weight.get());
        let there = |&(&other, tenant): &(&TenantIndex, &Tenant)| {
            let waits = tenant.queued + tenant.prewarming > 0;
            other == index || tenant.used_bytes > 0 || waits
        };
        let all: u128 = self.tenants.iter().filter(there).map(|(_, tenant)| part(tenant)).sum();
        u128::from(bytes) * all <= u128::from(self.budget.limit_bytes()) * part(tenant)
    }

    /// Whether something of a tenant serves a request, starts or boots.
    pub(super) fn works(&self, index: TenantIndex) -> bool {
        self.tenants.get(&index).is_some_and(Tenant::works)
    }

    /// Counts an instance with its tenant, or no longer.
    pub(super) fn count(&mut self, instance: Option<Instance>, adds: bool) {
        if let Some(instance) = instance
            && let Some(tenant) = self.tenants.get_mut(&instance.tenant)
        {
            tenant.count(&instance, adds);
        }
    }

    /// Counts what a VM is charged with those in which something starts or serves requests, if it is one, or no longer.
    pub(super) fn count_working_vm(&mut self, index: Option<VmIndex>, adds: bool) {
        let Some(index) = index.filter(|&index| self.pool.works_in(index)) else { return };
        let charged_bytes = self.vms.get(&index).map_or(0, |vm| vm.charged_bytes);
        if adds {
            self.working_vms_bytes += charged_bytes;
        } else {
            self.working_vms_bytes -= charged_bytes;
        }
    }

    /// Changes a VM, and what its tenant and all VMs at work have.
    pub(super) fn alter_vm(&mut self, index: VmIndex, change: impl FnOnce(&mut Vm)) {
        self.count_working_vm(Some(index), false);
        self.alter_vm_of_tenant(index, change);
        self.count_working_vm(Some(index), true);
    }

    fn alter_vm_of_tenant(&mut self, index: VmIndex, change: impl FnOnce(&mut Vm)) {
        let Some(vm) = self.vms.get_mut(&index) else { return };
        let mut tenant = vm.tenant.and_then(|tenant| self.tenants.get_mut(&tenant));
        if let Some(tenant) = &mut tenant {
            tenant.count_vm(vm, false);
        }
        change(vm);
        if let Some(tenant) = &mut tenant {
            tenant.count_vm(vm, true);
        }
    }
}
