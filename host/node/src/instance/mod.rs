//! The life of one instance: start, calls, freeze and end.

mod error;

use crate::{
    Contract, Guest, Machine,
    function::{Function, Seccomp},
    response::{agent_problem, is_from_instance},
};
use bytes::Bytes;
use http::{Request, Response};
use squeezy_protocol::{
    ErrorBody, ErrorCode, ExitReason, ImageNumber, InstanceId, InstanceSpec, InstanceState,
    PartitionChoice, PartitionNumber, Squeezed, SqueezedHeap,
};
use squeezy_vmm::{
    Grain, VmError,
    mechanism::{Slot, outside_bytes},
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

pub use error::InstanceError;

/// How long an instance may wait for its partition to be plugged: longer than a plug may take before it
/// counts as failed.
const PARTITION_WAIT_MS: u32 = 30_000;

/// The part of an instance's memory that its files may take, as a divisor: half, the default of tmpfs.
const FILES_PART: u64 = 2;

/// How long an instance that is told to end has to do so by itself.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// The pause between attempts to reach a server that does not listen yet.
const START_PAUSE: Duration = Duration::from_millis(100);

/// How long to wait, after a request has failed, for the news that the instance has ended.
const END_PAUSE: Duration = Duration::from_secs(2);

/// How much of the output of an instance that could not be started is kept: the last lines, and of each its beginning, in
/// characters.
const MOST_LINES_OF_START: usize = 100;
const MOST_OF_A_LINE: usize = 300;

/// How long the end of a call's output may come after its answer, and how often to look for it.
const LOG_WAIT: Duration = Duration::from_millis(100);
const LOG_PAUSE: Duration = Duration::from_millis(5);

/// The marks at the end of a call's output: one on standard output and one on standard error.
const MARKS: i64 = 2;

/// The result of a call to an instance.
#[derive(Debug)]
pub enum Reply {
    /// The instance answered.
    Answered(Response<Bytes>),
    /// It did not, for this reason, and cannot take another call.
    Failed(InstanceError),
}

/// How long the phases of a start took.
#[derive(Clone, Copy, Debug, Default)]
pub struct StartTimes {
    /// Until its command was executed.
    pub spawn: Duration,
    /// From there until its server had answered its first request.
    pub init: Duration,
}

/// The result of a squeeze.
#[derive(Clone, Debug)]
pub struct SqueezeReport {
    /// What its runtime did, or why it did nothing.
    pub heap: Result<SqueezedHeap, String>,
    /// Bytes of its partition that were given back, or why none were.
    pub given_back: Result<u64, String>,
    /// Its memory on the host before, in bytes, with what is swapped out.
    pub before_bytes: u64,
    /// The same after.
    pub resident_bytes: u64,
    /// Processor time spent by its runtime.
    pub cpu: Duration,
    /// How long all of it took.
    pub took: Duration,
}

/// How far the output of an instance has been read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogPosition {
    /// The offset after the last byte that was read.
    end: u64,
    /// How many more marks were owed for the calls that have ended than were read. Fewer than none if another call has
    /// been read with the marks of one whose answer is yet to come.
    owed: i64,
    /// Whether its server did not mark the end of the last call's output.
    unmarked: bool,
}

/// A handle to an instance, which may not have been started yet.
#[derive(Clone)]
pub(crate) struct Instance {
    pub(crate) guest: Arc<dyn Guest>,
    pub(crate) id: InstanceId,
    pub(crate) contract: Arc<dyn Contract>,
}

impl Instance {
    /// Starts it in its slot and waits until its server has answered its first request.
    pub(crate) async fn start(
        &self,
        machine: &dyn Machine,
        slot: Slot,
        function: &Function,
        image: ImageNumber,
        code: Option<ImageNumber>,
    ) -> Result<StartTimes, InstanceError> {
        let begin = Instant::now();
        let details = machine.details();
        // Emulation is slow enough without a limit.
        let limits_cpu = !details.accelerator.emulates();
        let mut spec = InstanceSpec {
            environment: function.environment.clone(),
            working_directory: function.working_directory.clone(),
            image: Some(image),
            code,
            wait_ms: PARTITION_WAIT_MS,
            memory_limit_bytes: Some(function.memory_bytes),
            files_limit_bytes: Some(function.memory_bytes / FILES_PART),
            cpu_share_millis: Some(function.cpu_millis),
            cpu_limit_millis: limits_cpu.then_some(function.cpu_millis),
            port: Some(function.port),
            network: function.network.unwrap_or_default(),
            seccomp: match function.seccomp {
                Seccomp::Default => squeezy_protocol::Seccomp::Default,
                Seccomp::Unconfined => squeezy_protocol::Seccomp::Unconfined,
            },
            ..InstanceSpec::new(self.id.clone(), function.command.clone())
        };
        machine.place(slot, &mut spec);
        if spec.partition != PartitionChoice::None {
            // What is in the partition, including files, does not count against this limit.
            spec.memory_limit_bytes = Some(outside_bytes(details.instance_bytes));
        }
        self.guest.start(&spec).await?;
        let spawn = begin.elapsed();
        if let Err(mut error) = self.come_up(function).await {
            if let Some(output) = error.output_mut() {
                *output = self.end_of_output().await;
            }
            return Err(error);
        }
        Ok(StartTimes { spawn, init: begin.elapsed() - spawn })
    }

    /// Sends its first request until its server is up and answers it.
    async fn come_up(&self, function: &Function) -> Result<(), InstanceError> {
        let request = self.contract.start(function).await;
        let request = request.map_err(InstanceError::NoFirstRequest)?;
        let path = request.uri().path().to_owned();
        let limit = function.init_timeout;
        let begin = Instant::now();
        let answered = tokio::time::timeout(limit, self.first_answer(&request, limit)).await;
        let response = match answered {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if begin.elapsed() < limit => return Err(error),
            Ok(Err(_)) | Err(_) => {
                return Err(InstanceError::StartTooLong { path, limit, output: Vec::new() });
            }
        };
        self.contract.started(&response).map_err(|problem| InstanceError::NotReady {
            path,
            problem,
            output: Vec::new(),
        })
    }

    /// Sends the first request until the server listens, and returns its answer.
    async fn first_answer(
        &self,
        request: &Request<Bytes>,
        limit: Duration,
    ) -> Result<Response<Bytes>, InstanceError> {
        let path = || request.uri().path().to_owned();
        loop {
            let response = self.guest.http(&self.id, request.clone(), limit).await?;
            if is_from_instance(&response) {
                return Ok(response);
            }
            let problem = agent_problem(&response);
            // A server that does not listen yet may still come up. One that took the request and did not
            // answer will not answer the next one either.
            let may_come = problem.code == ErrorCode::Unavailable;
            let ended = if may_come {
                match self.guest.instance(&self.id).await?.state {
                    InstanceState::Ended(reason) => Some(reason),
                    _ => None,
                }
            } else {
                self.ended_soon().await
            };
            if let Some(reason) = ended {
                let last_line = self.last_line().await;
                return Err(InstanceError::EndedAtStart {
                    reason,
                    path: path(),
                    last_line,
                    output: Vec::new(),
                });
            }
            if !may_come {
                return Err(InstanceError::NotReady {
                    path: path(),
                    problem: problem.message,
                    output: Vec::new(),
                });
            }
            tokio::time::sleep(START_PAUSE).await;
        }
    }

    /// Makes a call, to be answered within `limit`.
    pub(crate) async fn call(&self, request: Request<Bytes>, limit: Duration) -> Reply {
        let begin = Instant::now();
        let seen = match self.guest.http(&self.id, request, limit).await {
            Ok(response) if is_from_instance(&response) => return Reply::Answered(response),
            Err(_) if begin.elapsed() >= limit => {
                return Reply::Failed(InstanceError::CallTooLong(limit));
            }
            Ok(response) => match agent_problem(&response) {
                ErrorBody { code: ErrorCode::AnswerTooLong, .. } => InstanceError::AnswerTooLong,
                ErrorBody { message, .. } => InstanceError::NoAnswer(message),
            },
            Err(VmError::AnswerTooLong) => InstanceError::AnswerTooLong,
            Err(error) => error.into(),
        };
        Reply::Failed(match self.ended_soon().await {
            Some(reason) => InstanceError::Ended(reason),
            None => seen,
        })
    }

    /// What it has written since `position`, which is advanced, for a call that has ended. If the server marks the end of a
    /// call, waits for that mark.
    pub(crate) async fn output(&self, position: &mut LogPosition) -> Vec<String> {
        let deadline = Instant::now() + LOG_WAIT;
        let end_line = self.contract.end_of_output();
        position.owed += MARKS;
        loop {
            // Without its VM or its agent there is nothing left to read.
            let Ok((text, end)) = self.guest.log_from(&self.id, position.end).await else {
                return Vec::new();
            };
            let is_end = |line: &&str| Some(*line) == end_line;
            let marks = text.lines().filter(is_end).count() as i64;
            let marked = marks >= position.owed;
            let may_come = end_line.is_some() && !position.unmarked;
            if !marked && may_come && Instant::now() < deadline {
                tokio::time::sleep(LOG_PAUSE).await;
                continue;
            }
            let lost = (end - position.end).saturating_sub(text.len() as u64);
            // Marks that do not come at all are not waited for by later calls.
            let owed = if marked { position.owed - marks } else { 0 };
            *position = LogPosition { end, owed, unmarked: !marked };
            let lost = (lost > 0).then(|| format!("({lost} bytes before this were lost)"));
            let lines = text.lines().filter(|line| !is_end(line)).map(str::to_owned);
            return lost.into_iter().chain(lines).collect();
        }
    }

    /// Freezes it until its next request or its end; `None` if one of them came first.
    pub(crate) async fn freeze(&self) -> Result<Option<squeezy_protocol::Instance>, InstanceError> {
        match self.guest.freeze(&self.id).await {
            Ok(seen) => Ok(Some(seen)),
            Err(VmError::Agent { code: ErrorCode::NotFound | ErrorCode::Unavailable, .. }) => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes it give back memory that it does not use while it is frozen, which is as long as `rests`.
    pub(crate) async fn squeeze(
        &self,
        rests: impl Fn() -> bool + Send + 'static,
    ) -> Result<SqueezeReport, InstanceError> {
        let begin = Instant::now();
        let before = self.guest.instance(&self.id).await?;
        let before_bytes = self.guest.resident(&before).await.ok_or(InstanceError::NotMeasured)?;
        let Squeezed { instance, heap, heap_problem, reported_bytes, report_problem } =
            self.guest.squeeze(&self.id).await?;
        // The agent says only by the way if it was not frozen again. Then it may take memory, and is not what it costs. Who
        // has had a call meanwhile is not frozen for this.
        let instance = if rests() { self.guest.freeze(&self.id).await? } else { instance };
        let taken = self.guest.take_free(&instance, Grain::Page, Box::new(rests)).await;
        let given_back = match taken {
            Some(taken) => taken.map(|taken| taken.bytes).map_err(|error| error.to_string()),
            // Then the guest has reported what is free.
            None => report_problem.map_or(Ok(reported_bytes), Err),
        };
        let resident_bytes = self.guest.resident(&instance).await;
        Ok(SqueezeReport {
            cpu: heap.as_ref().map_or(Duration::ZERO, |heap| Duration::from_nanos(heap.cpu_ns)),
            heap: heap.ok_or_else(|| heap_problem.unwrap_or_default()),
            given_back,
            before_bytes,
            resident_bytes: resident_bytes.ok_or(InstanceError::NotMeasured)?,
            took: begin.elapsed(),
        })
    }

    /// Waits until it has ended, and returns why.
    pub(crate) async fn ended(&self) -> Option<ExitReason> {
        match self.guest.wait(&self.id).await.ok()?.state {
            InstanceState::Ended(reason) => Some(reason),
            _ => None,
        }
    }

    /// Why it has ended, if its end is the reason that it did not answer: its connections close a little
    /// before its last process is reaped.
    async fn ended_soon(&self) -> Option<ExitReason> {
        tokio::time::timeout(END_PAUSE, self.ended()).await.ok().flatten()
    }

    /// Stops it, or whatever parts of it exist. Returns the partition that it was in, if it was in one.
    pub(crate) async fn stop(&self) -> Result<Option<PartitionNumber>, InstanceError> {
        match self.guest.stop(&self.id, STOP_GRACE).await {
            Ok(seen) => Ok(seen.partition),
            // It never existed.
            Err(VmError::Agent { code: ErrorCode::NotFound, .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The last lines it wrote.
    async fn end_of_output(&self) -> Vec<String> {
        let log = self.guest.log_from(&self.id, 0).await.unwrap_or_default().0;
        let is_end = |line: &&str| Some(*line) == self.contract.end_of_output();
        let last = log.lines().rev().filter(|line| !is_end(line)).take(MOST_LINES_OF_START);
        let beginning = |line: &str| line.chars().take(MOST_OF_A_LINE).collect();
        let mut lines: Vec<_> = last.map(beginning).collect();
        lines.reverse();
        lines
    }

    /// The last line it wrote.
    async fn last_line(&self) -> String {
        let log = self.guest.log_from(&self.id, 0).await.unwrap_or_default().0;
        let line = log.lines().rev().find(|line| !line.trim().is_empty());
        line.unwrap_or("it wrote nothing").chars().take(200).collect()
    }
}
