//! A process in the VM: the instance that it is to the agent.

use crate::{
    error::{Error, ErrorKind, Result},
    spec::Process,
    vm::{Ended, Input, Output, Signal},
};
use squeezy_protocol::{
    ErrorCode, ExitReason, Instance, InstanceId, InstanceSpec, InstanceState, MAX_BODY_BYTES,
    OutputKind, SignalRequest, Squeezed,
};
use squeezy_vmm::{AgentClient, OutputStream, VmError};
use std::{fmt::Display, time::Duration};

/// How much of a sentence of the guest's is in the log, in characters.
const MOST_OF_A_SENTENCE: usize = 300;

/// The spec of an instance that runs a process, without anything that it does not say.
pub(super) fn spec(id: String, process: &Process, has_input: bool) -> InstanceSpec {
    let id = id.parse().expect("it is an id");
    InstanceSpec {
        environment: process.environment.clone(),
        working_directory: process.working_directory.clone(),
        input: has_input,
        terminal: process.terminal,
        output: OutputKind::Streams,
        user: process.user.clone(),
        privileges: process.privileges.clone(),
        resource_limits: process.resource_limits.clone(),
        oom_score_adj: process.oom_score_adj,
        ..InstanceSpec::new(id, process.arguments.clone())
    }
}

/// Refuses what is longer than what the agent takes at once.
pub(super) fn check_length(spec: &InstanceSpec) -> Result<()> {
    let bytes = serde_json::to_vec(spec).map_err(Error::failed)?.len();
    if bytes > MAX_BODY_BYTES {
        return Err(Error::invalid(format_args!(
            "the process's arguments and environment and its container's seccomp profile take {} KiB, and may take {} KiB \
             together",
            bytes >> 10,
            MAX_BODY_BYTES >> 10
        )));
    }
    Ok(())
}

/// Starts an instance. If that fails, nothing of it is left, also if only the answer got lost.
pub(super) async fn start(agent: &AgentClient, spec: &InstanceSpec) -> Result<Instance, VmError> {
    let started = agent.start(spec).await;
    if started.is_err() {
        let _ = agent.stop(&spec.id, Duration::ZERO).await;
    }
    started
}

/// What an instance of this spec, which has just been started, writes. If that fails, it is ended.
pub(super) async fn output(agent: &AgentClient, spec: &InstanceSpec) -> Result<Output> {
    match streams(agent, spec).await {
        Ok(output) => Ok(output),
        Err(error) => {
            let _ = agent.stop(&spec.id, Duration::ZERO).await;
            Err(error.into())
        }
    }
}

async fn streams(agent: &AgentClient, spec: &InstanceSpec) -> Result<Output, VmError> {
    let stdout = Box::new(agent.output(&spec.id, OutputStream::Output).await?);
    Ok(match spec.terminal {
        Some(_) => Output { stdout, stderr: Box::new(tokio::io::empty()) },
        None => {
            let stderr = agent.output(&spec.id, OutputStream::Error).await?;
            Output { stdout, stderr: Box::new(stderr) }
        }
    })
}

/// Waits until an instance has ended. The guest knows nothing of it any more when this returns.
pub(super) async fn wait(agent: &AgentClient, id: &InstanceId) -> Result<Ended> {
    let instance = agent.wait(id).await?;
    // All its processes are gone.
    if let Err(error) = agent.stop(id, Duration::ZERO).await {
        tracing::error!("instance {id}: {}", in_a_line(&error));
    }
    ended(instance.state)
}

/// Passes on the standard input of an instance, until there is no more or the instance has ended.
pub(super) async fn input(agent: &AgentClient, id: &InstanceId, from: Input) -> Result<()> {
    match agent.input(id, from).await {
        // It has ended before anything was sent.
        Err(error) if is_gone(&error) => Ok(()),
        other => Ok(other?),
    }
}

/// Sends a signal to the first process of an instance, or to all of them.
pub(super) async fn signal(
    agent: &AgentClient,
    id: &InstanceId,
    signal: Signal,
    all: bool,
) -> Result<()> {
    let request = SignalRequest { signal: signal.number(), all };
    match agent.signal(id, request).await {
        // containerd takes this for what it is.
        Err(error) if is_gone(&error) => {
            Err(Error::new(ErrorKind::NotFound, "the process has ended already"))
        }
        other => Ok(other?),
    }
}

/// Freezes an instance, and lets its runtime and its partition give back what they do not need. If that fails, it is
/// thawed. Returns how many bytes of free memory the guest has given back.
pub(super) async fn pause(agent: &AgentClient, id: &InstanceId) -> Result<u64, VmError> {
    let paused = freeze(agent, id).await;
    if paused.is_err() {
        let _ = agent.thaw(id).await;
    }
    paused
}

async fn freeze(agent: &AgentClient, id: &InstanceId) -> Result<u64, VmError> {
    agent.freeze(id).await?;
    squeeze(agent, id).await
}

/// Lets the runtime and the partition of a frozen instance give back what they do not need, and freezes it again. Returns
/// how many bytes of free memory the guest has given back: none where the host takes them by itself.
pub(super) async fn squeeze(agent: &AgentClient, id: &InstanceId) -> Result<u64, VmError> {
    let bytes = match agent.squeeze(id).await {
        Ok(Squeezed { reported_bytes, report_problem, .. }) => {
            if let Some(problem) = report_problem {
                let problem = in_a_line(&problem);
                tracing::warn!("instance {id} has not given back all that is free: {problem}");
            }
            reported_bytes
        }
        // Whoever has ended cannot be frozen either.
        Err(error) if is_gone(&error) => 0,
        Err(error) => {
            tracing::warn!("instance {id} has given nothing back: {}", in_a_line(&error));
            0
        }
    };
    // Its runtime was to run meanwhile.
    agent.freeze(id).await?;
    Ok(bytes)
}

/// Whether something could not be done with an instance because it has ended.
pub(super) fn is_gone(error: &VmError) -> bool {
    matches!(error, VmError::Agent { code: ErrorCode::NotFound | ErrorCode::Unavailable, .. })
}

/// What the guest says, or what has a sentence of its in it, for the log.
pub(super) fn in_a_line(said: &(impl Display + ?Sized)) -> String {
    let said = said.to_string();
    let characters = said.chars().take(MOST_OF_A_SENTENCE);
    characters.map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// Thaws an instance.
pub(super) async fn resume(agent: &AgentClient, id: &InstanceId) -> Result<(), VmError> {
    agent.thaw(id).await.map(drop)
}

/// How an instance has ended, as a shell has it.
fn ended(state: InstanceState) -> Result<Ended> {
    let number = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    let (status, out_of_memory) = match state {
        InstanceState::Ended(ExitReason::Exited(status)) => (number(status), false),
        InstanceState::Ended(ExitReason::Killed(signal)) => {
            (number(signal.saturating_add(128)), false)
        }
        InstanceState::Ended(ExitReason::ExceededMemory) => (Signal::KILL.status(), true),
        InstanceState::Ended(ExitReason::Stopped) => (Signal::KILL.status(), false),
        InstanceState::Starting | InstanceState::Running => {
            return Err(Error::failed("the guest says that a process has ended that runs"));
        }
    };
    Ok(Ended { status, out_of_memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_as_a_shell_has_it() {
        let of = |reason| ended(InstanceState::Ended(reason)).unwrap();
        for (reason, status, out_of_memory) in [
            (ExitReason::Exited(0), 0, false),
            (ExitReason::Exited(7), 7, false),
            (ExitReason::Killed(15), 143, false),
            (ExitReason::Killed(9), 137, false),
            (ExitReason::Stopped, 137, false),
            (ExitReason::ExceededMemory, 137, true),
            // What no kernel says.
            (ExitReason::Exited(-1), 255, false),
            (ExitReason::Killed(i32::MAX), 255, false),
        ] {
            assert_eq!(of(reason), Ended { status, out_of_memory }, "{reason:?}");
        }
        assert!(ended(InstanceState::Running).is_err());
    }

    #[test]
    fn what_the_guest_says_takes_no_more_than_a_line_of_the_log() {
        assert_eq!(in_a_line("no such device\n\x1b[2J INFO"), "no such device  [2J INFO");
        assert_eq!(in_a_line(&"ä".repeat(1 << 20)), "ä".repeat(MOST_OF_A_SENTENCE));
        let said = |code, message: &str| VmError::Agent {
            request: "POST /v1/instances/a/squeeze".to_owned(),
            code,
            message: message.to_owned(),
        };
        let error = said(ErrorCode::Internal, &"\n\x1b]0;".repeat(1 << 20));
        let line = in_a_line(&error);
        assert!(!line.contains(char::is_control) && line.chars().count() == MOST_OF_A_SENTENCE);
        assert!(!is_gone(&error) && is_gone(&said(ErrorCode::NotFound, "")));
    }
}
