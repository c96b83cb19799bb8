//! Limits that change while an instance runs, and the one that the kernel does not keep: that of private memory.
//!
//! Private memory is in a partition and charged to nobody (docs/adr/0057), so the agent looks how much an instance has:
//! the sooner, the less is missing to its limit. What it may have beyond for a moment is still within its partition.

use super::{
    Entry,
    looks::{LONGEST_PAUSE, SHORTEST_PAUSE},
    validate,
};
use crate::{console, error::ApiError, memory::online_processors, processes};
use rustix::time::{ClockId, clock_gettime};
use squeezy_protocol::{ErrorCode, LimitsRequest};
use std::{io, time::Duration};

/// What a look at an instance has shown.
struct Look {
    held_bytes: u64,
    /// How much of a processor's time it took. What it waited for the instance's own locks is not part of it.
    took: Duration,
}

impl Entry {
    /// Changes its limits, or none of them.
    pub async fn change_limits(&self, limits: LimitsRequest) -> Result<(), ApiError> {
        validate::check_limits(&limits)?;
        let cgroup = self.own_cgroup()?;
        let private_limit = limits.private_limit_bytes.filter(|bytes| *bytes < u64::MAX);
        if let Some(bytes) = private_limit {
            let held = self.look(bytes).await?.held_bytes;
            if held > bytes {
                let message =
                    format!("{}: it has {held} bytes of private memory, not {bytes}", self.id);
                return Err(ApiError::new(ErrorCode::Unavailable, message));
            }
        }
        // Before the rest, which is never refused.
        if let Some(bytes) = limits.files_limit_bytes {
            self.limit_files(bytes).await?;
        }
        cgroup.change_processors(limits.cpu_share_millis, limits.cpu_limit_millis).map_err(
            |error| ApiError::internal(&format!("limiting instance {}", self.id), error),
        )?;
        if limits.private_limit_bytes.is_some() {
            self.private_limit.send_replace(private_limit);
        }
        Ok(())
    }

    /// Changes what its files may hold, unless they hold more.
    async fn limit_files(&self, bytes: u64) -> Result<(), ApiError> {
        let file_system = self.file_system.borrow().clone().ok_or_else(|| {
            let why = "it was started without files_limit_changes, or has ended";
            ApiError::new(ErrorCode::Unavailable, format!("{}: {why}", self.id))
        })?;
        file_system.limit(bytes).await.map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull => {
                ApiError::new(ErrorCode::Unavailable, format!("{}: {error}", self.id))
            }
            _ => ApiError::internal(&format!("limiting the files of instance {}", self.id), error),
        })
    }

    /// Looks after its limit of private memory until it has exceeded it, and kills it then.
    pub(super) async fn until_it_exceeds_its_limit(&self) {
        let mut limit = self.private_limit.subscribe();
        loop {
            let now = *limit.borrow_and_update();
            let _watched = now.map(|_| self.looks.watch());
            let pause = async {
                match now {
                    Some(bytes) => tokio::time::sleep(self.look_at_limit(bytes).await).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = pause => {}
                // The sender is in self.
                _ = limit.changed() => {}
            }
            if self.exceeded.get() {
                return;
            }
        }
    }

    /// Kills it if it has more than this, and returns how long not to look again.
    async fn look_at_limit(&self, bytes: u64) -> Duration {
        // What does not run takes no memory.
        if self.frozen.get() {
            return LONGEST_PAUSE;
        }
        let Ok(Look { held_bytes, took }) = self.look_in_turn(bytes).await else {
            return LONGEST_PAUSE;
        };
        if held_bytes <= bytes {
            return self.looks.pause(bytes - held_bytes, took, online_processors());
        }
        // Its processes are read one after the other, and what they share may have gone from one to another meanwhile.
        tokio::time::sleep(SHORTEST_PAUSE).await;
        match self.look_in_turn(bytes).await {
            Ok(again) if again.held_bytes > bytes => {
                let held_bytes = again.held_bytes;
                console!(
                    "instance {} has {held_bytes} bytes of private memory, and may have {bytes}",
                    self.id
                );
                match self.kill() {
                    Ok(()) => self.exceeded.set(true),
                    Err(error) => console!("{error}"),
                }
                SHORTEST_PAUSE
            }
            Ok(again) => self.looks.pause(0, took + again.took, online_processors()),
            Err(_) => LONGEST_PAUSE,
        }
    }

    /// Looks when no other instance is looked at because of its limit.
    async fn look_in_turn(&self, bytes: u64) -> Result<Look, ApiError> {
        let _turn = self.looks.turn().await;
        self.look(bytes).await
    }

    async fn look(&self, bytes: u64) -> Result<Look, ApiError> {
        self.look_at(move |all| {
            let begin = processor_time();
            let held_bytes = processes::private_bytes_beyond(&all, bytes);
            Look { held_bytes, took: processor_time().saturating_sub(begin) }
        })
        .await
    }
}

/// How long this thread has had a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
