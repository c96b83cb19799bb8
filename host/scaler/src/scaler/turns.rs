//! Whose turn it is: tenants get memory by the rules of `tenants`, one request at a time, and each tenant's requests in
//! line. Behind the first request that lacks memory nobody gets any, or small instances would starve a large one.

use super::{
    Scaler,
    claim::{Claim, Purpose},
    scale::Shortage,
    tenant::Level,
};
use crate::{Command, FunctionIndex, InstanceNumber, Moment, RequestNumber, TenantIndex, VmState};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// When a request came, for the order in line.
type Came = (Moment, RequestNumber);

/// A tenant's requests, while a step goes through them.
#[derive(Default)]
struct Line {
    /// Functions with queued requests, oldest request first.
    functions: Vec<FunctionIndex>,
    /// Those whose instances have not been looked at.
    there: VecDeque<FunctionIndex>,
    /// Instances to start, oldest request first; absent before all that are there have been looked at.
    starts: Option<VecDeque<(Came, FunctionIndex)>>,
    shortage: Shortage,
}

/// A request that lacks memory, and gets that of other tenants when it comes back.
struct Hold {
    /// To which it takes its tenant.
    level: Level,
    /// Whether it waits for pauses or freezes.
    waits: bool,
}

/// What a tenant's next request takes.
#[derive(Clone, Copy)]
enum Next {
    Busy(FunctionIndex, InstanceNumber),
    Idle(FunctionIndex, InstanceNumber),
    Start(Came, FunctionIndex),
}

impl Scaler {
    /// Gives queued requests to idle instances, starts more, and ends what has to make room for them.
    pub(super) fn serve(&mut self, now: Moment, commands: &mut Vec<Command>) {
        let mut lines = self.lines();
        // The tenant whose request is the first to lack memory.
        let mut short = None;
        let mut hold = None;
        let mut claimed = BTreeSet::new();
        while let Some(tenant) = self.first_in_line(&mut lines, short) {
            let Some(line) = lines.get_mut(&tenant) else { break };
            if short != Some(tenant) && hold.as_ref().is_some_and(|hold| self.holds(hold, tenant)) {
                line.there.clear();
                line.starts = Some(VecDeque::new());
            }
            if let Some(next) = self.next(line) {
                self.take_turn(now, next, line, commands);
                if short.is_none() && line.shortage.is_of_node() {
                    short = Some(tenant);
                    let others = lines.iter_mut().filter(|(other, _)| **other != tenant);
                    others.for_each(|(_, line)| line.shortage.is_behind = true);
                }
                continue;
            }
            let Some(Line { shortage, .. }) = lines.remove(&tenant) else { break };
            self.make_room(&shortage, commands);
            if let Some(claim) = Claim::of(tenant, shortage) {
                claimed.insert(claim.tenant);
                if !self.evict(&claim, commands) {
                    self.give_up_prewarm(&claim, commands);
                } else if claim.purpose == Purpose::Share {
                    hold = self.hold(&claim);
                }
            }
        }
        if short.is_none() {
            self.lend(commands);
            self.keep_up(now, &claimed, commands);
            if self.budget.reserve_bytes() > 0 {
                self.evict(&Claim::reserve(), commands);
                claimed.insert(None);
            }
        }
        self.end_excess(&mut claimed, commands);
        self.awaited.retain(|tenant, _| claimed.contains(tenant));
    }

    /// Ends what is idle of tenants that hold more than they may have by now.
    fn end_excess(
        &mut self,
        claimed: &mut BTreeSet<Option<TenantIndex>>,
        commands: &mut Vec<Command>,
    ) {
        for tenant in self.shrunk.clone() {
            let claim = Claim::excess(tenant);
            if self.wanted_bytes(&claim) == 0 {
                self.shrunk.remove(&tenant);
            } else {
                self.evict(&claim, commands);
                claimed.insert(claim.tenant);
            }
        }
    }

    fn lines(&self) -> BTreeMap<TenantIndex, Line> {
        let first = |&index: &FunctionIndex| {
            let function = &self.functions[&index];
            let waiting = function.queue.front()?;
            Some((waiting.since, waiting.request, function.tenant, index))
        };
        let mut first: Vec<_> = self.waiting.iter().filter_map(first).collect();
        first.sort_unstable();
        let mut lines = BTreeMap::<_, Line>::new();
        for (_, _, tenant, index) in first {
            let line = lines.entry(tenant).or_default();
            line.functions.push(index);
            line.there.push_back(index);
        }
        lines
    }

    /// The tenant whose turn it is: who lacks memory until its whole line is known, then whoever would have the least
    /// with what it needs next. Once somebody lacks memory, nobody else gets any, and the order does not matter.
    fn first_in_line(
        &self,
        lines: &mut BTreeMap<TenantIndex, Line>,
        short: Option<TenantIndex>,
    ) -> Option<TenantIndex> {
        if short.is_some_and(|tenant| lines.contains_key(&tenant)) {
            return short;
        }
        if short.is_some() || lines.len() < 2 {
            return lines.keys().next().copied();
        }
        let rank = |(&tenant, line): (&TenantIndex, &mut Line)| {
            let next = self.next(line).map(|next| (self.level_with(tenant, next), self.came(next)));
            (next, tenant)
        };
        lines.iter_mut().map(rank).min().map(|(_, tenant)| tenant)
    }

    fn next(&self, line: &mut Line) -> Option<Next> {
        while let Some(&function) = line.there.front() {
            if self.waiting.contains(&function) {
                if let Some(instance) = self.with_room(function) {
                    return Some(Next::Busy(function, instance));
                }
                if let Some(instance) = self.pool.last_used(function) {
                    return Some(Next::Idle(function, instance));
                }
            }
            line.there.pop_front();
        }
        let starts = line.starts.get_or_insert_with(|| self.wanted(&line.functions));
        starts.front().map(|&(came, function)| Next::Start(came, function))
    }

    fn take_turn(&mut self, now: Moment, next: Next, line: &mut Line, commands: &mut Vec<Command>) {
        match next {
            Next::Busy(function, instance) => self.dispatch(now, function, instance, commands),
            Next::Idle(function, last) => {
                let instance = self.readiest(function, last, &line.shortage);
                if !self.charge_in_full(instance, &mut line.shortage, commands) {
                    line.there.pop_front();
                    return;
                }
                self.dispatch(now, function, instance, commands);
            }
            Next::Start((_, request), function) => {
                line.starts.get_or_insert_default().pop_front();
                let Some(index) = self.function(function).map(|f| f.policy.vm) else { return };
                let is_first = line.shortage.needs.is_empty();
                match self.vm_state(index) {
                    Some(VmState::Absent) => self.boot(index, &mut line.shortage, commands),
                    Some(VmState::Up { .. } | VmState::Paused { .. }) => {
                        self.start(function, index, &mut line.shortage, commands);
                    }
                    Some(VmState::Booting | VmState::Ending) | None => {}
                }
                if is_first && !line.shortage.needs.is_empty() {
                    let prewarms = self.is_prewarm(function, request);
                    line.shortage.prewarming = prewarms.then_some(function);
                }
            }
        }
    }

    fn came(&self, next: Next) -> Option<Came> {
        match next {
            Next::Busy(function, _) | Next::Idle(function, _) => {
                let waiting = self.function(function)?.queue.front()?;
                Some((waiting.since, waiting.request))
            }
            Next::Start(came, _) => Some(came),
        }
    }

    /// The level of a tenant once its next request has the memory that it needs.
    fn level_with(&self, tenant: TenantIndex, next: Next) -> Option<Level> {
        let needed_bytes = match next {
            Next::Busy(..) => 0,
            Next::Idle(_, instance) => self.thaw_bytes(instance),
            Next::Start(_, function) => self.start_bytes(function),
        };
        let tenant = self.tenants.get(&tenant)?;
        Some(tenant.level(tenant.held_bytes.saturating_add(needed_bytes)))
    }

    fn hold(&self, claim: &Claim) -> Option<Hold> {
        let level = self.unmet(claim)?;
        let sources = self.sources(claim, self.room_bytes(claim));
        let (vms, instances) = self.settling(claim, &sources);
        Some(Hold { level, waits: !vms.is_empty() || !instances.is_empty() })
    }

    /// Whether a tenant's instances take no request, because they may have to make room for another tenant's, and
    /// none is started, which could be told to make room as soon as it runs. It ends at the latest when the requests of
    /// theirs that are being served and what is under way have ended.
    fn holds(&self, hold: &Hold, tenant: TenantIndex) -> bool {
        (hold.waits || self.works(tenant))
            && self.tenants.get(&tenant).is_some_and(|t| t.level(t.held_bytes) > hold.level)
    }
}
