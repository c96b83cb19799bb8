//! Limits that change while an instance runs, and the one that the kernel does not keep: that of private memory.
//!
//! Private memory is in a partition and charged to nobody (docs/adr/0057), so the agent looks how much an instance has:
//! the sooner, the less is missing to its limit. What it may have beyond for a moment is still within its partition.

use super::{
    Entry,
    looks::{LONGEST_PAUSE, SHORTEST_PAUSE},
    to_the_end::to_the_end,
    validate,
};
use crate::{console, error::ApiError, memory::online_processors, processes};
use rustix::time::{ClockId, clock_gettime};
use squeezy_protocol::{ErrorCode, LimitsRequest};
use std::{io, rc::Rc, sync::Arc, time::Duration};

/// What a look at an instance has shown.
struct Look {
    held_bytes: u64,
    /// How much of a processor's time it took. What it waited for the instance's own locks is not part of it.
    took: Duration,
}

impl Entry {
    /// Changes its limits, or none of them, when no other change is under way. Once begun, this continues even if the
    /// caller gives up; before, nothing is changed for it then.
    pub async fn change_limits(self: &Rc<Self>, limits: LimitsRequest) -> Result<(), ApiError> {
        validate::check_limits(&limits)?;
        let can_change = Arc::clone(&self.limits_can_change).lock_owned().await;
        if !*can_change {
            return Err(self.not_running());
        }
        let entry = Rc::clone(self);
        to_the_end("changing limits", async move {
            let _until_done = can_change;
            entry.set_limits(limits).await
        })
        .await
    }

    /// Has its limits change no more, because it ends: a change that has begun is waited for, and others are refused.
    pub(super) async fn keep_limits(&self) {
        *self.limits_can_change.lock().await = false;
    }

    async fn set_limits(&self, limits: LimitsRequest) -> Result<(), ApiError> {
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
        let failed =
            |error: io::Error| ApiError::internal(&format!("limiting instance {}", self.id), error);
        // It may lack memory: then the instance keeps its processors, too.
        if limits.private_limit_bytes.is_some()
            && let Some(file_system) = &*self.file_system.borrow()
        {
            file_system.show_limit(private_limit).map_err(failed)?;
        }
        cgroup
            .change_processors(limits.cpu_share_millis, limits.cpu_limit_millis)
            .map_err(failed)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cgroup::Cgroup, instance::reaper::ExitStatus};
    use squeezy_protocol::InstanceSpec;
    use std::{
        fs,
        path::Path,
        pin::{Pin, pin},
        sync::mpsc,
        task::{Context, Waker},
    };
    use tempfile::TempDir;
    use tokio::{runtime, task::LocalSet};

    const LIMIT_BYTES: u64 = 64 << 20;

    /// An instance without processes, whose cgroup is a directory of files.
    fn running() -> (Rc<Entry>, TempDir) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("cgroup.procs"), "").unwrap();
        let spec = InstanceSpec::new("a".parse().unwrap(), vec!["a".to_owned()]);
        let entry = Entry::new(&spec, 0, None, None, &Rc::default());
        entry.cgroup.set(Cgroup::at(directory.path())).unwrap();
        (Rc::new(entry), directory)
    }

    fn weight(cgroup: &Path) -> Option<String> {
        fs::read_to_string(cgroup.join("cpu.weight")).ok()
    }

    fn change() -> LimitsRequest {
        LimitsRequest {
            private_limit_bytes: Some(LIMIT_BYTES),
            cpu_share_millis: Some(500),
            ..LimitsRequest::default()
        }
    }

    /// Has somebody begin this, who does not wait for its end.
    async fn begin<T>(mut request: Pin<&mut impl Future<Output = T>>) {
        for _ in 0..3 {
            let mut context = Context::from_waker(Waker::noop());
            assert!(request.as_mut().poll(&mut context).is_pending());
            tokio::task::yield_now().await;
        }
    }

    /// Does this while looks at processes take their time, until what is sent.
    fn while_looks_take_long(test: impl AsyncFnOnce(mpsc::Sender<()>)) {
        let mut builder = runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let (go_on, waits) = mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || waits.recv());
            test(go_on).await;
            busy.await.unwrap().unwrap();
        });
    }

    #[test]
    fn a_change_that_has_begun_is_done_if_the_host_gives_up_and_one_that_waits_is_not() {
        while_looks_take_long(async |go_on| {
            let (entry, cgroup) = running();
            begin(pin!(entry.change_limits(change()))).await;
            let other = LimitsRequest { cpu_share_millis: Some(100), ..change() };
            begin(pin!(entry.change_limits(other))).await;
            assert!(entry.limits_can_change.try_lock().is_err(), "somebody else may change them");
            assert_eq!(weight(cgroup.path()), None);
            go_on.send(()).unwrap();
            drop(entry.limits_can_change.lock().await);
            assert_eq!(weight(cgroup.path()).as_deref(), Some("50"));
            assert_eq!(*entry.private_limit.borrow(), Some(LIMIT_BYTES));
        });
    }

    #[test]
    fn the_end_of_an_instance_comes_after_a_change_that_has_begun_and_before_others() {
        while_looks_take_long(async |go_on| {
            let (entry, cgroup) = running();
            begin(pin!(entry.change_limits(change()))).await;
            let mut end = pin!(entry.finish(ExitStatus::Exited(0)));
            begin(end.as_mut()).await;
            let mut late = pin!(entry.change_limits(LimitsRequest::default()));
            begin(late.as_mut()).await;
            go_on.send(()).unwrap();
            let refused = tokio::select! {
                () = end.as_mut() => panic!("its cgroup has files, and is gone"),
                late = late => late.unwrap_err(),
            };
            assert_eq!(refused.0.code, ErrorCode::Unavailable);
            assert_eq!(weight(cgroup.path()).as_deref(), Some("50"));
            // Those of the kernel go with it.
            for file in fs::read_dir(cgroup.path()).unwrap() {
                fs::remove_file(file.unwrap().path()).unwrap();
            }
            end.await;
            assert!(!entry.is_alive() && !cgroup.path().exists());
        });
    }
}
