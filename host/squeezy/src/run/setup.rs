//! Sets up a run: the function, and the same load for each policy in turn.

use super::{
    args::Args,
    error::RunError,
    input::{LoadInput, make_up, read_trace},
    record::{PolicyRecord, Report},
    recorder::{Booted, Recorder},
    replay::Replay,
    view::View,
};
use crate::interrupt::Interrupt;
use squeezy_node::{FunctionImage, FunctionLimits, Node, PolicyName, VmPlan};
use squeezy_openwhisk::OpenWhisk;
use squeezy_scaler::{Budget, Moment, TenantIndex, VmPolicy};
use squeezy_vmm::{Artifacts, MemoryBackend, SharedHugePages};
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

/// What to run.
pub struct Setup {
    args: Args,
    input: FunctionImage,
    /// The VM's plan, for the first of the policies.
    plan: VmPlan,
    /// What the host had at the beginning. By that all policies that have the choice are on the same memory backend,
    /// whatever happens to the host meanwhile.
    pages: SharedHugePages,
    /// The load, the same for every policy. A synthetic one is only known once an instance has run.
    load: Option<LoadInput>,
}

impl Setup {
    /// Reads all input, so that errors are reported before a VM starts.
    pub fn read(args: Args) -> Result<Self, RunError> {
        let files = Artifacts::find(args.build.as_deref())?;
        let mut input = FunctionImage::find(&args.function, &files)?;
        let function = &mut input.function;
        function.memory_bytes = args.memory.unwrap_or(function.memory_bytes);
        function.concurrency = args.concurrency.unwrap_or(function.concurrency);
        let load = read_trace(&args, function)?;
        let inputs = std::slice::from_ref(&input);
        let (name, policy) = (&input.function.name, args.policies[0]);
        let mut plan = VmPlan::new(name, inputs, &files, policy, args.shared_memory);
        plan.vcpus = args.vcpus.unwrap_or(plan.vcpus);
        plan.accelerator = args.accelerator;
        let setup = Self { args, input, plan, pages: SharedHugePages::of_host(), load };
        setup.args.policies.iter().try_for_each(|policy| setup.plan(*policy).check())?;
        Ok(setup)
    }

    /// Runs the policies one after another, or until the user interrupts.
    pub async fn run(
        mut self,
        view: &Arc<dyn View>,
        interrupt: &Interrupt,
    ) -> Result<Report, RunError> {
        let mut report = self.report();
        for index in 0..self.args.policies.len() {
            let record = match self.run_policy(index, &mut report, view, interrupt).await {
                // Keep the results of the other policies.
                Err(error) if !report.policies.is_empty() => PolicyRecord {
                    policy: self.args.policies[index].to_string(),
                    ended_early: Some(error.to_string()),
                    ..PolicyRecord::default()
                },
                result => result?,
            };
            report.policies.push(record);
            if interrupt.is_raised() {
                break;
            }
        }
        Ok(report)
    }

    async fn run_policy(
        &mut self,
        index: usize,
        report: &mut Report,
        view: &Arc<dyn View>,
        interrupt: &Interrupt,
    ) -> Result<PolicyRecord, RunError> {
        let policy = self.args.policies[index];
        let name = policy.to_string();
        let turn = format!("{name} ({} of {})", index + 1, self.args.policies.len());
        view.begin(&self.input.function.name, &turn, self.plan.sizing.instances);
        let recorder = Recorder::new(Arc::downgrade(view), name, self.plan.sizing.instance_bytes);
        let replay = self.replay(policy, Arc::new(recorder)).await?;
        let recorder = &replay.recorder;
        let first_answer = tokio::select! {
            answered = replay.warm_up() => answered,
            () = interrupt.raised(1) => {
                recorder.end_early("interrupted");
                return Ok(recorder.finish(Moment::START));
            }
        };
        let Some(booted) = recorder.booted() else {
            return Err(RunError::Boot(recorder.vm_ended().await));
        };
        let first_answer = first_answer.map_err(|reason| match recorder.why_vm_ended() {
            Some(ended) => RunError::Boot(ended),
            None => RunError::FirstInstance { function: self.input.function.name.clone(), reason },
        })?;
        let seconds = first_answer.as_secs_f64();
        view.note(&format!("the first instance answered after {seconds:.1} s"));
        let load = match &mut self.load {
            Some(load) => load,
            unknown => {
                let burst = self.args.burst.unwrap_or(self.plan.sizing.instances.into());
                unknown.insert(make_up(&self.args, burst, first_answer)?)
            }
        };
        describe(report, &booted, load);
        let limits = limits(&self.args, load.keep_alive);
        replay.node.update_function(replay.index, limits).await?;
        view.load(&load.load, load.length);
        recorder.begin_load(Moment(replay.begin.elapsed()), first_answer);
        Ok(replay.run(&load.load.arrivals, interrupt).await)
    }

    /// A node with the function, and nothing booted yet.
    async fn replay(
        &self,
        policy: PolicyName,
        recorder: Arc<Recorder>,
    ) -> Result<Replay, RunError> {
        let begin = Instant::now();
        let plan = self.plan(policy);
        let budget = budget(policy, &plan.vm_policy(None)?);
        let node = Node::start(budget, None, begin, recorder.clone());
        let vm = node.add_vm(plan, None).await?;
        let function = &self.input.function;
        // The first instance is not kept alive, whatever the keep-alive.
        let limits = limits(&self.args, function.keep_alive);
        let index = node
            .add_function(vm, TenantIndex::FIRST, self.input.clone(), Arc::new(OpenWhisk), limits)
            .await?;
        Ok(Replay { node, begin, index, function: Arc::new(function.clone()), recorder })
    }

    fn plan(&self, policy: PolicyName) -> VmPlan {
        let memory_backend = self.memory_backend(policy).into();
        VmPlan { policy, memory_backend, ..self.plan.clone() }
    }

    fn memory_backend(&self, policy: PolicyName) -> MemoryBackend {
        self.args.memory_backend.resolve_with(policy.mechanism(), &self.pages)
    }

    /// Those of all policies, each once.
    fn memory_backends(&self) -> String {
        let of_policies = self.args.policies.iter().map(|&policy| self.memory_backend(policy));
        let names: BTreeSet<String> = of_policies.map(|backend| backend.to_string()).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    }

    fn report(&self) -> Report {
        Report {
            kind: "squeezy_run",
            version: env!("CARGO_PKG_VERSION"),
            function: self.input.function.name.clone(),
            instance_bytes: self.plan.sizing.instance_bytes,
            concurrency: self.plan.sizing.instances,
            load_speed: self.args.speed,
            seed: self.args.seed,
            memory_backend: self.memory_backends(),
            ..Report::default()
        }
    }
}

/// Unlimited, unless the policy keeps a reserve: then the VM's maximum, part of which it keeps
/// free.
fn budget(policy: PolicyName, vm: &VmPolicy) -> Budget {
    let all_bytes = vm.base_bytes + u64::from(vm.max_instances) * vm.instance_bytes;
    match policy.reserve_bytes(all_bytes) {
        0 => Budget::new(u64::MAX),
        reserve_bytes => Budget::new(all_bytes).with_reserve(reserve_bytes),
    }
}

fn limits(args: &Args, keep_alive: Duration) -> FunctionLimits {
    FunctionLimits {
        keep_alive,
        freeze_after: None,
        queue: args.queue as usize,
        minimum_instances: 0,
    }
}

/// Adds what is known once the first VM has booted.
fn describe(report: &mut Report, booted: &Booted, load: &LoadInput) {
    report.load.clone_from(&load.load.source);
    report.load_seconds = load.length.as_secs_f64();
    report.keep_alive_seconds = load.keep_alive.as_secs_f64();
    report.accelerator = booted.accelerator.to_string();
    report.accelerator_reason.clone_from(&booted.accelerator_reason);
    report.vmm.clone_from(&booted.vmm);
    report.kernel.clone_from(&booted.kernel);
    report.notes = vec![
        "Before the load a first instance answers a request and ends, which leaves the function's files in the \
         page cache."
            .to_owned(),
    ];
    if booted.accelerator.emulates() {
        report.notes.push(
            "Emulated (TCG): guest code runs many times slower than on hardware, and the keep-alive is scaled \
             accordingly. Compare policies with each other; absolute times mean nothing. Instances have no CPU limit."
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squeezy_vmm::mechanism::MechanismName;

    #[test]
    fn harvest_keeps_a_part_of_its_vm_free() {
        let vm = VmPolicy {
            base_bytes: 200,
            instance_bytes: 100,
            max_instances: 6,
            max_starting: 1,
            idle_time: None,
        };
        let harvest = budget(PolicyName::Harvest, &vm);
        assert_eq!((harvest.limit_bytes(), harvest.reserve_bytes()), (800, 100));
        let stock = budget(PolicyName::Mechanism(MechanismName::VirtioMem), &vm);
        assert_eq!((stock.limit_bytes(), stock.reserve_bytes()), (u64::MAX, 0));
    }
}
