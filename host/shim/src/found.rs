//! A server that was found in the registry, and whether it answers.

use crate::{
    Id,
    error::{Error, Result},
    owner,
    registry::{Registry, ServerName},
};
use containerd_shim_protos::{
    api::StateRequest,
    shim_async::{Client, TaskClient},
    ttrpc::{self, r#async::transport::Socket, context::Context},
};
use std::{fs::File, io, path::PathBuf, time::Duration};
use tokio::{
    net::UnixStream,
    runtime::{Builder, Runtime},
    time::{sleep, timeout},
};

/// How long to wait before a server is connected to again that has as many connections as it can have without looking.
const CONNECT_INTERVAL: Duration = Duration::from_millis(50);
/// How often to look whether a server that does not answer works.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How long a server is waited for that does not answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// While it is never found at work: it hangs. One that answers late because its node is busy has the processor, or
    /// waits for it.
    pub(crate) idle: Duration,
    /// Whatever it does.
    pub(crate) longest: Duration,
}

impl Patience {
    /// What is left for one more after so long: time to be found at work, at the least.
    pub(crate) fn after(self, waited: Duration) -> Self {
        Self { longest: self.longest.saturating_sub(waited).max(self.idle), ..self }
    }
}

/// What becomes of asking a server something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It answers, whatever it says.
    Answers,
    /// It works, and has not answered yet.
    Works,
    /// It does nothing, or is not there any more.
    Hangs,
}

/// A server as it was while the registry was locked: its name may be another's later.
pub(crate) struct Found {
    pub(crate) server: ServerName,
    pub(crate) socket: PathBuf,
    /// The file that it owns, if it has begun to.
    pub(crate) owned: Option<File>,
}

impl Found {
    pub(crate) fn new(registry: &Registry, server: ServerName) -> Result<Self> {
        let owned = owner::open(&registry.owner(&server)).map_err(|error| {
            Error::failed(format_args!("cannot open the owner of {}: {error}", server.as_str()))
        })?;
        Ok(Self { socket: registry.socket(&server), owned, server })
    }

    /// Whether it answers in time, whatever it says. One that has just been started need not.
    pub(crate) fn answers(&self, task: &Id, patience: Patience) -> Result<bool> {
        if self.owned.is_none() {
            return Ok(true);
        }
        Ok(runtime()?.block_on(self.ask(task, patience)) == Asked::Answers)
    }

    /// Asks it for the state of a task.
    pub(crate) async fn ask(&self, task: &Id, patience: Patience) -> Asked {
        let state = StateRequest { id: task.to_string(), ..Default::default() };
        let answers = async {
            let Ok(client) = self.connect().await else { return false };
            // Without a limit of its own, which would end with this one and look like an answer that cannot be had.
            let answer = client.state(Context::default(), &state).await;
            matches!(answer, Ok(_) | Err(ttrpc::Error::RpcStatus(_)))
        };
        tokio::select! {
            biased;
            answers = timeout(patience.longest, answers) => match answers {
                Ok(true) => Asked::Answers,
                Ok(false) => Asked::Hangs,
                Err(_) => Asked::Works,
            },
            () = self.until_idle(patience.idle) => Asked::Hangs,
        }
    }

    /// Connects to it, as soon as it has a connection to give.
    pub(crate) async fn connect(&self) -> io::Result<TaskClient> {
        loop {
            match UnixStream::connect(&self.socket).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sleep(CONNECT_INTERVAL).await;
                }
                connected => {
                    return connected
                        .map(|stream| TaskClient::new(Client::new(Socket::new(stream))));
                }
            }
        }
    }

    /// Waits until it has not been found at work for this time. It is the looks that count: whoever looks may have to wait
    /// for the processor, too.
    async fn until_idle(&self, limit: Duration) {
        let mut idle = Duration::ZERO;
        while idle < limit {
            sleep(LOOK_INTERVAL).await;
            let works = |owned| owner::works(owned).unwrap_or(false);
            let is_idle = !self.owned.as_ref().is_some_and(works);
            idle = if is_idle { idle + LOOK_INTERVAL } else { Duration::ZERO };
        }
    }
}

/// What asks servers, in a program that does nothing else meanwhile.
pub(crate) fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().map_err(Error::failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::tests::{busy_owner, stopped_owner};
    use std::{os::unix::net::UnixListener, path::Path, process::Child, time::Instant};

    const SHORT: Duration = Duration::from_millis(500);
    const LONG: Duration = Duration::from_secs(3600);

    /// Whether a server that listens and says nothing is taken to answer; `begin` starts its process.
    fn answers(begin: fn(&Path) -> Child, patience: Patience) -> bool {
        let directory = tempfile::tempdir().unwrap();
        let (socket, path) = (directory.path().join("socket"), directory.path().join("owner"));
        let _listening = UnixListener::bind(&socket).unwrap();
        let mut process = begin(&path);
        let server = ServerName::parse("0-0").unwrap();
        let found = Found { server, socket, owned: owner::open(&path).unwrap() };
        let answers = found.answers(&"pod".parse().unwrap(), patience).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        answers
    }

    #[test]
    fn servers_that_are_asked_in_turn_share_the_longest_wait() {
        let patience = Patience { idle: SHORT, longest: 10 * SHORT };
        for (waited, longest) in [(0, 10), (3, 7), (9, 1), (10, 1), (100, 1)] {
            let left = patience.after(waited * SHORT);
            assert_eq!((left.idle, left.longest), (SHORT, longest * SHORT), "after {waited}");
        }
    }

    #[test]
    fn a_server_that_says_nothing_and_does_nothing_is_not_waited_for_any_longer() {
        // It would be for an hour.
        assert!(!answers(stopped_owner, Patience { idle: SHORT, longest: LONG }));
    }

    #[test]
    fn a_server_that_works_is_waited_for_but_not_for_ever() {
        let begin = Instant::now();
        assert!(!answers(busy_owner, Patience { idle: SHORT, longest: 3 * SHORT }));
        assert!(begin.elapsed() >= 3 * SHORT, "it has had no time to answer");
    }
}
