//! Finds calls that wait in vain, by looking at the whole world for a way to serve them.
//!
//! The scaler's liveness property is: *a call that could be served by ending what is idle is served without
//! another event*. So once nothing is under way except calls being served, which may take any time, no such
//! call may be waiting. [`Model::tell`] checks this whenever the world is at rest like that, and
//! [`Model::settle`] brings it there from any state, without time passing.
//!
//! Calls queue for memory here too: behind the first call that lacks memory none gets any, or small instances
//! would starve a large one. A call that needs no memory does not wait.

use crate::{
    LIMIT_BYTES,
    model::{InstanceEntry, Model, VmModel},
};
use squeezy_scaler::{Command, FunctionIndex, FunctionPolicy, RequestNumber, VmIndex};
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

    /// A waiting call that could be served by ending what is idle, in a world at rest.
    pub fn in_vain(&self) -> Option<InVain> {
        let free_bytes = LIMIT_BYTES - self.taken_bytes();
        let mut first = true;
        for (request, function) in self.line() {
            let ways = self.ways(function, free_bytes);
            // Its function or its VM has all the instances it may have, and all are busy.
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

    /// The waiting calls in the order in which they get memory: those with an idle instance that only lacks
    /// memory come before those without.
    fn line(&self) -> Vec<(RequestNumber, FunctionIndex)> {
        let mut line: Vec<_> = self.waiting.iter().map(|(&r, &f)| (r, f)).collect();
        line.sort_by_key(|&(request, function)| (self.idle_of(function).next().is_none(), request));
        line
    }

    /// All ways to serve a call of a function.
    fn ways(&self, function: FunctionIndex, free_bytes: u64) -> Vec<Way> {
        let FunctionPolicy { vm, max_instances, .. } = self.function_policy(function);
        let policy = self.vm_policy(vm);
        let elsewhere: u64 =
            self.vms.keys().filter(|&&v| v != vm).map(|&v| self.idle_bytes(v)).sum();
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
        let base = self.base_bytes(vm) - self.charged_bytes[&vm];
        let had_bytes = free_bytes + elsewhere;
        // A VM has to run before anything in it can be ended, but for what can be condemned.
        let condemnable = |but: Option<&InstanceEntry>| -> u64 {
            let others = self.condemnable(vm).filter(|&e| but.is_none_or(|b| !ptr::eq(b, e)));
            others.map(|entry| entry.charged_bytes).sum()
        };
        if base <= had_bytes + condemnable(None) {
            let can_run = |entry: &&InstanceEntry| base <= had_bytes + condemnable(Some(*entry));
            for entry in self.idle_of(function).filter(can_run) {
                let needed_bytes = base + policy.instance_bytes - entry.charged_bytes;
                ways.push(Way {
                    needed_bytes,
                    had_bytes: had_bytes + within - entry.charged_bytes,
                });
            }
            let there = live().filter(|entry| entry.vm == vm).count();
            let has_room = there < policy.max_instances as usize;
            let fits = own < max_instances as usize;
            if fits && (has_room || self.idle_in(vm).next().is_some()) {
                // If the guest kept the memory of several, the earliest is reused first.
                let mut stranded = self.stranded.values().filter(|&&(v, _)| v == vm);
                let stranded = stranded.next().map_or(0, |&(_, bytes)| bytes);
                let needed_bytes = base + policy.instance_bytes.saturating_sub(stranded);
                ways.push(Way { needed_bytes, had_bytes: had_bytes + within });
            }
        }
        ways
    }

    fn idle_of(&self, function: FunctionIndex) -> impl Iterator<Item = &InstanceEntry> {
        let of = move |b: &&InstanceEntry| b.function == function && b.request.is_none();
        self.instances.values().filter(of).filter(|entry| !entry.condemned)
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
        self.instances.values().filter(move |entry| entry.vm == vm && entry.request.is_none())
    }

    /// Whether an instance in a VM is busy.
    pub fn works(&self, vm: VmIndex) -> bool {
        self.instances.values().any(|entry| entry.vm == vm && entry.request.is_some())
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
