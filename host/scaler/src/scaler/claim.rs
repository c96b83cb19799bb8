//! What may be ended for whom.

use super::{Scaler, evict::Evictable, scale::Shortage, tenant::Level};
use crate::{TenantIndex, VmIndex};
use std::{cmp::Reverse, collections::BTreeMap};

/// What memory is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Requests that the node has no memory for.
    Share,
    /// Requests that their tenant's quota leaves no memory for, or what it holds beyond its quota.
    Quota,
    /// The node's reserve.
    Reserve,
}

/// Memory that is wanted.
pub(super) struct Claim {
    pub(super) purpose: Purpose,
    /// For whom; absent for the reserve.
    pub(super) tenant: Option<TenantIndex>,
    pub(super) shortage: Shortage,
}

impl Claim {
    /// The claim of a tenant whose requests lack memory, if it can have more. Who stands behind another in line waits.
    pub(super) fn of(tenant: TenantIndex, shortage: Shortage) -> Option<Self> {
        let purpose = match shortage {
            _ if shortage.needs.is_empty() => return None,
            Shortage { is_of_quota: true, .. } => Purpose::Quota,
            Shortage { is_behind: true, .. } => return None,
            _ => Purpose::Share,
        };
        Some(Self { purpose, tenant: Some(tenant), shortage })
    }

    /// What a tenant holds beyond its quota.
    pub(super) fn excess(tenant: TenantIndex) -> Self {
        let shortage = Shortage::default();
        Self { purpose: Purpose::Quota, tenant: Some(tenant), shortage }
    }

    pub(super) fn reserve() -> Self {
        Self { purpose: Purpose::Reserve, tenant: None, shortage: Shortage::default() }
    }

    /// The tenant whose memory alone counts; absent if all does.
    pub(super) fn only(&self) -> Option<TenantIndex> {
        self.tenant.filter(|_| self.purpose == Purpose::Quota)
    }

    /// Whether `room` is not enough for the first request.
    pub(super) fn lacks_the_first(&self, room: u64) -> bool {
        self.shortage.needs.first().is_some_and(|&need| need > room)
    }

    /// The bytes of all requests up to the first one that `room` is not enough for, and whether it is the first of all.
    fn next_need(&self, room: u64) -> Option<(u64, bool)> {
        let mut sum = 0_u64;
        self.shortage.needs.iter().enumerate().find_map(|(index, &need)| {
            sum = sum.saturating_add(need);
            (sum > room).then_some((sum, index == 0))
        })
    }
}

impl Scaler {
    /// How many bytes have to be free or on their way back.
    pub(super) fn wanted_bytes(&self, claim: &Claim) -> u64 {
        let needs = claim.shortage.needs.iter().fold(0, |sum: u64, &need| sum.saturating_add(need));
        let others = match claim.purpose {
            Purpose::Share | Purpose::Reserve => self.budget.reserve_bytes(),
            Purpose::Quota => {
                let tenant = claim.tenant.and_then(|index| self.tenants.get(&index));
                let excess = tenant.and_then(|t| Some((t.used_bytes, t.policy.memory_bytes?)));
                excess.map_or(0, |(used, most)| used.saturating_sub(most))
            }
        };
        needs.saturating_add(others)
    }

    /// How many bytes are.
    pub(super) fn room_bytes(&self, claim: &Claim) -> u64 {
        let free = match (claim.purpose, claim.tenant) {
            (Purpose::Quota, Some(tenant)) => self.left_bytes(tenant),
            (Purpose::Share, Some(tenant)) => self.free_to(tenant),
            _ => self.budget.free_bytes(),
        };
        free.saturating_add(self.coming_bytes(claim))
    }

    /// The level to which the next request takes its tenant for which not even what is on its way back is enough.
    pub(super) fn unmet(&self, claim: &Claim) -> Option<Level> {
        let (bytes, _) = claim.next_need(self.room_bytes(claim))?;
        let tenant = self.tenants.get(&claim.tenant?)?;
        Some(tenant.level(tenant.held_bytes.saturating_add(bytes)))
    }

    /// Whether something idle of a tenant may be ended for the claim, when there is this much room, and tenants hold
    /// what `held` says.
    pub(super) fn may_take(
        &self,
        claim: &Claim,
        from: TenantIndex,
        room: u64,
        held: &BTreeMap<TenantIndex, u64>,
    ) -> bool {
        let Some(index) = claim.tenant.filter(|&index| index != from) else { return true };
        if claim.purpose == Purpose::Quota {
            return false;
        }
        // The rest is for the reserve.
        let Some((needed, is_first)) = claim.next_need(room) else { return true };
        let (Some(tenant), Some(other)) = (self.tenants.get(&index), self.tenants.get(&from))
        else {
            return false;
        };
        let bytes = held.get(&index).copied().unwrap_or(0).saturating_add(needed);
        let stands = other.level(held.get(&from).copied().unwrap_or(0));
        stands > tenant.level(bytes)
            || (is_first && !self.works(index) && !self.is_share(index, bytes))
    }

    /// The tenants from whom something may be taken for the claim now.
    pub(super) fn sources(&self, claim: &Claim, room: u64) -> Vec<TenantIndex> {
        let held = self.held();
        held.keys().copied().filter(|&from| self.may_take(claim, from, room, &held)).collect()
    }

    /// What each tenant that has memory holds of it, without what is on its way back.
    fn held(&self) -> BTreeMap<TenantIndex, u64> {
        let used = self.tenants.iter().filter(|(_, tenant)| tenant.used_bytes > 0);
        used.map(|(&index, tenant)| (index, tenant.held_bytes)).collect()
    }

    /// What to end for the claim, of the highest level first and for each tenant the least recently used first, until
    /// there is enough room or nothing may be taken, and the room that there will be.
    pub(super) fn plan(&self, claim: &Claim) -> (Vec<Evictable>, u64) {
        let (mut room, wanted) = (self.room_bytes(claim), self.wanted_bytes(claim));
        let mut held = self.held();
        let evictables =
            |&tenant: &TenantIndex| (tenant, self.evictables(tenant, claim).peekable());
        let mut sources: BTreeMap<_, _> = held.keys().map(evictables).collect();
        let mut going: BTreeMap<VmIndex, usize> = self.going_in();
        let mut plan = Vec::new();
        while room < wanted {
            let level = |tenant: TenantIndex| {
                let bytes = held.get(&tenant).copied().unwrap_or(0);
                let level = self.tenants.get(&tenant).map(|t| t.level(bytes));
                (level, Some(tenant) == claim.tenant, Reverse(tenant))
            };
            let taken = |(&tenant, source): (&TenantIndex, &mut std::iter::Peekable<_>)| {
                let has_any = source.peek().is_some();
                (has_any && self.may_take(claim, tenant, room, &held)).then_some(tenant)
            };
            let highest = sources.iter_mut().filter_map(taken).max_by_key(|&tenant| level(tenant));
            let Some(tenant) = highest else { break };
            let Some((evictable, mut bytes)) = sources.get_mut(&tenant).and_then(Iterator::next)
            else {
                break;
            };
            if let Evictable::Instance(number) = evictable
                && let Some(instance) = self.pool.get(number)
            {
                let count = going.entry(instance.vm).or_default();
                *count += 1;
                bytes += self.left_empty_bytes(instance.vm, *count, claim);
            }
            if let Evictable::Vm(index) = evictable {
                // What was to be condemned in it goes with it. It has been counted twice, until the next step.
                plan.retain(|&other| match other {
                    Evictable::Condemned(n) => self.pool.get(n).is_some_and(|i| i.vm != index),
                    _ => true,
                });
            }
            room = room.saturating_add(bytes);
            held.entry(tenant).and_modify(|held| *held = held.saturating_sub(bytes));
            plan.push(evictable);
        }
        (plan, room)
    }
}
