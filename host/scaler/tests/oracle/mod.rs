//! Whether somebody waits in vain: what one who sees the whole world could do for a call that waits.
//!
//! Liveness, as the scaler promises it: *a call that could be served by ending what is idle is served
//! without another event*. So when nothing goes on but work on calls, which may take as long as it likes,
//! no call waits that could be served like that. [`Model::tell`] looks whenever the world has come to such
//! a rest, and [`Model::settle`] brings it there from anywhere, without time passing.
//!
//! The rule of the line holds here too: from the first call on that lacks memory none gets any, or small
//! instances would starve a large one; but whoever needs none does not wait.

use crate::{
    LIMIT_BYTES,
    model::{InstanceEntry, Model, VmModel},
};
use squeezy_scaler::{Command, FunctionIndex, FunctionPolicy, RequestNumber, VmIndex};

/// More than anything that is under way takes. A scaler that is still at it then gets nowhere.
const MOST_STEPS: u32 = 2000;

/// A call that waits, with what would serve it.
#[derive(Debug)]
#[expect(dead_code, reason = "only to be printed")]
pub struct InVain {
    request: RequestNumber,
    function: FunctionIndex,
    free_bytes: u64,
    needed_bytes: u64,
    had_bytes: u64,
}

/// Memory that would do, and that there would be if all that is idle were ended.
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
    /// Has everything that is under way end, but work on calls, in any order and mostly well.
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

    /// Whether nothing goes on but work on calls.
    pub fn is_at_rest(&self) -> bool {
        self.pending.iter().all(is_work)
    }

    /// Somebody who waits and could be served by ending what is idle, in a world that rests.
    pub fn in_vain(&self) -> Option<InVain> {
        let free_bytes = LIMIT_BYTES - self.taken_bytes();
        let mut first = true;
        for (request, function) in self.line() {
            let ways = self.ways(function, free_bytes);
            // Its function has all the instances it may have, or its VM, and all of them work.
            if ways.is_empty() {
                continue;
            }
            let served = |way: &&Way| way.is_open() && (first || way.needed_bytes == 0);
            if let Some(&Way { needed_bytes, had_bytes }) = ways.iter().find(served) {
                return Some(InVain { request, function, free_bytes, needed_bytes, had_bytes });
            }
            first = false;
        }
        None
    }

    /// Those who wait, first in line first: who has an instance that only lacks memory comes before who
    /// has none.
    fn line(&self) -> Vec<(RequestNumber, FunctionIndex)> {
        let mut line: Vec<_> = self.waiting.iter().map(|(&r, &f)| (r, f)).collect();
        line.sort_by_key(|&(request, function)| (self.idle_of(function).next().is_none(), request));
        line
    }

    /// What would serve a call of a function.
    fn ways(&self, function: FunctionIndex, free_bytes: u64) -> Vec<Way> {
        let FunctionPolicy { vm, max_instances, .. } = self.function_policy(function);
        let policy = self.vm_policy(vm);
        let elsewhere: u64 =
            self.vms.keys().filter(|&&v| v != vm).map(|&v| self.idle_bytes(v)).sum();
        let own = self.instances.values().filter(|b| b.function == function).count();
        let idle = self.idle_of(function).next().is_some();
        if !idle && own >= max_instances as usize {
            return Vec::new();
        }
        // Somebody works in it still, or it would be on its way out.
        if self.unfit.contains(&vm) {
            return Vec::new();
        }
        let anew = Way {
            needed_bytes: policy.base_bytes + policy.instance_bytes,
            had_bytes: free_bytes + elsewhere + self.idle_bytes(vm),
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
        let base = policy.base_bytes - self.charged_bytes[&vm];
        let had_bytes = free_bytes + elsewhere;
        // A VM has to run before anything in it can be ended.
        if base <= had_bytes {
            for entry in self.idle_of(function) {
                let needed_bytes = base + policy.instance_bytes - entry.charged_bytes;
                ways.push(Way {
                    needed_bytes,
                    had_bytes: had_bytes + within - entry.charged_bytes,
                });
            }
            let there = self.instances.values().filter(|entry| entry.vm == vm).count();
            let has_room = there < policy.max_instances as usize;
            let fits = own < max_instances as usize;
            if fits && (has_room || self.idle_in(vm).next().is_some()) {
                // Of what the guest has kept of several, the earliest is used again first.
                let mut stranded = self.stranded.values().filter(|&&(v, _)| v == vm);
                let stranded = stranded.next().map_or(0, |&(_, bytes)| bytes);
                let needed_bytes = base + policy.instance_bytes.saturating_sub(stranded);
                ways.push(Way { needed_bytes, had_bytes: had_bytes + within });
            }
        }
        ways
    }

    fn idle_of(&self, function: FunctionIndex) -> impl Iterator<Item = &InstanceEntry> {
        self.instances.values().filter(move |b| b.function == function && b.request.is_none())
    }

    fn idle_in(&self, vm: VmIndex) -> impl Iterator<Item = &InstanceEntry> {
        self.instances.values().filter(move |entry| entry.vm == vm && entry.request.is_none())
    }

    /// Whether somebody in a VM works.
    pub fn works(&self, vm: VmIndex) -> bool {
        self.instances.values().any(|entry| entry.vm == vm && entry.request.is_some())
    }

    /// What would come back if all that is idle in a VM were ended, and it with that when nobody works in it.
    fn idle_bytes(&self, vm: VmIndex) -> u64 {
        let idle: u64 = self.idle_in(vm).map(|entry| entry.charged_bytes).sum();
        if self.works(vm) {
            return idle;
        }
        let stranded = self.stranded.values().filter(|&&(v, _)| v == vm).map(|&(_, bytes)| bytes);
        idle + stranded.sum::<u64>() + self.charged_bytes.get(&vm).copied().unwrap_or(0)
    }
}

/// Whether a command is work on a call, which may take as long as it likes.
fn is_work(command: &Command) -> bool {
    matches!(command, Command::Dispatch { .. })
}
