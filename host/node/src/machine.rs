//! A VM and the life of the instances in it.

use crate::openwhisk;
use bytes::Bytes;
use http::{Request, Response};
use squeezy_protocol::{
    ErrorCode, ExitReason, InstanceId, InstanceSpec, InstanceState, PartitionChoice,
};
use squeezy_runtime::function::Function;
use squeezy_vmm::{
    MemoryUse, Resize, Vm, VmError,
    method::{Method, Plugged, Slot},
};
use std::time::{Duration, Instant};

/// How long an instance may wait for its partition; its memory is plugged when it starts, so this
/// is for what the kernel has left to do.
const PARTITION_WAIT_MS: u32 = 10_000;

/// How long an instance may take to end by itself when it is told to.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// How long between two tries to reach a server that does not listen yet.
const INIT_PAUSE: Duration = Duration::from_millis(100);

/// How long after a request was not answered its instance may be found to have ended.
const END_PAUSE: Duration = Duration::from_secs(2);

/// A VM and the way its memory is changed.
pub struct Machine {
    /// The VM.
    pub vm: Vm,
    /// How its memory is changed.
    pub method: Box<dyn Method>,
    /// The guest's kernel.
    pub kernel: String,
    /// An instance's memory, in bytes.
    pub instance_bytes: u64,
    /// Whether instances are held to their share of a processor; emulation is slow enough.
    pub limits_cpu: bool,
}

/// What came of a call of an instance.
#[derive(Debug)]
pub enum Reply {
    /// The instance has answered.
    Answered(Response<Bytes>),
    /// It has not, for this reason, and cannot take another call.
    Failed(String),
}

/// How long the parts of a start took.
#[derive(Clone, Copy, Debug, Default)]
pub struct StartTimes {
    /// Until its command was executed.
    pub spawn: Duration,
    /// From there until its server had answered `/init`.
    pub init: Duration,
}

/// A resize that was tried.
#[derive(Debug)]
pub struct Tried {
    /// From the request until it was done or given up; nothing where there is nothing to resize.
    pub latency: Option<Duration>,
    /// How much less was resident on the host after than before, in bytes.
    pub resident_drop_bytes: u64,
    /// Why it failed, if it did.
    pub error: Option<VmError>,
}

impl Machine {
    /// Plugs the memory of one more instance.
    pub async fn plug(&self) -> (Option<Slot>, Tried) {
        match self.method.plug(&self.vm).await {
            Ok(Plugged { slot, resize }) => (Some(slot), tried(Ok(resize), 0)),
            Err(error) => (None, tried(Err(error), 0)),
        }
    }

    /// Takes the memory of an ended instance back. Without a slot it was asked back before, and
    /// the question is only whether the guest has followed by now.
    pub async fn reclaim(&self, slot: Option<Slot>) -> Tried {
        let Some(slot) = slot else {
            return match self.vm.memory().await {
                Ok(MemoryUse { asked_bytes, plugged_bytes, .. }) if plugged_bytes > asked_bytes => {
                    let error = VmError::Resize {
                        requested: asked_bytes,
                        plugged: plugged_bytes,
                        after: Duration::ZERO,
                        reason: "it has still not given it back".to_owned(),
                    };
                    tried(Err(error), 0)
                }
                Ok(_) => tried(Ok(None), 0),
                Err(error) => tried(Err(error), 0),
            };
        };
        let before = self.resident_bytes().await;
        let result = self.method.reclaim(&self.vm, slot).await;
        let drop = before.saturating_sub(self.resident_bytes().await);
        tried(result, drop)
    }

    async fn resident_bytes(&self) -> u64 {
        self.vm.memory().await.map_or(0, |memory| memory.resident.resident_bytes)
    }

    /// Starts an instance in its slot and waits until its server has answered `/init`.
    pub async fn start(
        &self,
        id: &InstanceId,
        function: &Function,
        slot: Slot,
    ) -> Result<StartTimes, String> {
        let begin = Instant::now();
        let mut spec = InstanceSpec {
            id: id.clone(),
            command: function.command.clone(),
            environment: function.environment.clone(),
            working_directory: function.working_directory.clone(),
            image: true,
            partition: PartitionChoice::None,
            wait_ms: PARTITION_WAIT_MS,
            memory_limit_bytes: Some(self.instance_bytes),
            memory_node: None,
            cpu_limit_millis: self.limits_cpu.then_some(function.cpu_millis),
            port: Some(function.port),
        };
        self.method.place(slot, &mut spec);
        let agent = self.vm.agent().map_err(text)?;
        agent.start(&spec).await.map_err(text)?;
        let spawn = begin.elapsed();
        let limit = function.init_timeout;
        tokio::time::timeout(limit, self.init(id, function))
            .await
            .map_err(|_| format!("/init was not answered within {} s", limit.as_secs_f64()))??;
        Ok(StartTimes { spawn, init: begin.elapsed() - spawn })
    }

    /// Sends `/init` until the instance's server is up and answers it.
    async fn init(&self, id: &InstanceId, function: &Function) -> Result<(), String> {
        let agent = self.vm.agent().map_err(text)?;
        loop {
            let request = openwhisk::init(&function.name);
            let response = agent.http(id, request, function.init_timeout).await.map_err(text)?;
            if openwhisk::is_from_instance(&response) {
                return if response.status().is_success() {
                    Ok(())
                } else {
                    Err(format!(
                        "/init: status {}: {}",
                        response.status(),
                        openwhisk::quote(&response)
                    ))
                };
            }
            if let InstanceState::Ended(reason) = agent.instance(id).await.map_err(text)?.state {
                return Err(format!(
                    "it {reason} before it listened: {}",
                    self.last_words(id).await
                ));
            }
            tokio::time::sleep(INIT_PAUSE).await;
        }
    }

    /// Passes a request to an instance, to be answered within `limit`.
    pub async fn call(&self, id: &InstanceId, request: Request<Bytes>, limit: Duration) -> Reply {
        let agent = match self.vm.agent() {
            Ok(agent) => agent,
            Err(error) => return Reply::Failed(text(error)),
        };
        let seen = match agent.http(id, request, limit).await {
            Ok(response) if openwhisk::is_from_instance(&response) => {
                return Reply::Answered(response);
            }
            Ok(response) => openwhisk::quote(&response),
            Err(error) => text(error),
        };
        // Because it has ended, if it has. Its connection closes a little before its last process is
        // reaped.
        Reply::Failed(match tokio::time::timeout(END_PAUSE, self.ended(id)).await {
            Ok(Some(reason)) => format!("the instance {reason}"),
            _ => seen,
        })
    }

    /// Waits until an instance has ended; why it did.
    pub async fn ended(&self, id: &InstanceId) -> Option<ExitReason> {
        match self.vm.agent().ok()?.wait(id).await.ok()?.state {
            InstanceState::Ended(reason) => Some(reason),
            _ => None,
        }
    }

    /// Stops an instance, or what there is of it.
    pub async fn stop(&self, id: &InstanceId) -> Result<(), String> {
        let agent = self.vm.agent().map_err(text)?;
        match agent.stop(id, STOP_GRACE).await {
            // It never came to be.
            Ok(_) | Err(VmError::Agent { code: ErrorCode::NotFound, .. }) => Ok(()),
            Err(error) => Err(text(error)),
        }
    }

    /// The last line an instance wrote.
    async fn last_words(&self, id: &InstanceId) -> String {
        let log = match self.vm.agent() {
            Ok(agent) => agent.log(id).await.unwrap_or_default(),
            Err(_) => String::new(),
        };
        let line = log.lines().rev().find(|line| !line.trim().is_empty());
        line.unwrap_or("it wrote nothing").chars().take(200).collect()
    }
}

fn tried(result: Result<Option<Resize>, VmError>, resident_drop_bytes: u64) -> Tried {
    let (latency, error) = match result {
        Ok(resize) => (resize.map(|resize| resize.latency), None),
        Err(VmError::Resize { after, .. }) if after.is_zero() => (None, result.err()),
        Err(VmError::Resize { after, .. }) => (Some(after), result.err()),
        Err(error) => (None, Some(error)),
    };
    Tried { latency, resident_drop_bytes, error }
}

fn text(error: VmError) -> String {
    error.to_string()
}
