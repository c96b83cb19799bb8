//! What ends a VM whose VMM is well.

use super::*;
use crate::{
    Accelerator, AcceleratorKind, BoxFuture, Console, Result, VmConfig,
    backend::{Backend, unused_devices},
    fate::Fate,
    host_memory::HostMemory,
    hyperalloc::{Reclaimer, tests::Guest},
    measure::ThreadRole,
    process::Process,
    vm::{MOST_HANDS, swept::Swept},
};
use squeezy_llfree::PageFailed;
use std::{process::Command, time::Instant};
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};

/// A VMM that says that its VM runs.
struct Well(Process);

impl Well {
    fn start() -> Self {
        let mut command = Command::new("sleep");
        command.arg("1000");
        Self(Process::spawn(command, Vec::new(), || Ok(()), "").unwrap().process)
    }
}

impl Backend for Well {
    fn version(&self) -> &str {
        unreachable!()
    }

    fn process(&self) -> &Process {
        &self.0
    }

    fn said(&self) -> String {
        String::new()
    }

    fn run_state(&self, _: Duration) -> BoxFuture<'_, Result<RunState>> {
        Box::pin(async { Ok(RunState::Running) })
    }

    fn guest_end(&self, _: ExitStatus, _: Option<GuestEnd>) -> Option<GuestEnd> {
        None
    }

    fn thread_role(&self, _: &str) -> ThreadRole {
        unreachable!()
    }

    fn pause(&self) -> BoxFuture<'_, Result<()>> {
        unreachable!()
    }

    fn resume(&self) -> BoxFuture<'_, Result<()>> {
        unreachable!()
    }

    fn quit(&self) -> BoxFuture<'_, Result<()>> {
        unreachable!()
    }
}

unused_devices!(Well);

/// A VM with this reclaimer.
pub(in crate::vm) fn shared(reclaimer: Arc<Reclaimer>) -> Arc<Shared> {
    let (kind, reason) = (AcceleratorKind::Tcg, String::new());
    Arc::new(Shared {
        config: VmConfig::new("a", "/dev/null", "/dev/null"),
        accelerator: Accelerator { kind, reason },
        backend: Arc::new(Well::start()),
        host_memory: HostMemory::default(),
        reclaimer: Arc::new(reclaimer.into()),
        elastic: Vec::new(),
        console: Console::new(),
        fate: Fate::new(),
        stopping: false.into(),
        paused: watch::Sender::new(false),
        condemned: Arc::default(),
        started: Instant::now(),
        swept: Swept::default(),
        hands: Arc::new(Semaphore::new(MOST_HANDS)),
    })
}

/// Nobody takes memory meanwhile, who would find it out.
#[tokio::test(start_paused = true)]
async fn a_page_of_the_state_that_fails_ends_the_vm_within_a_second() {
    let guest = Guest::new();
    guest.boot();
    let reclaimer = Arc::new(guest.reclaimer());
    let shared = shared(reclaimer.clone());
    let (_more, events) = mpsc::channel(1);
    let watched = tokio::spawn(supervise(shared.clone(), events, watch::Sender::new(false)));
    // Between two looks, so that the next one is less than an interval away.
    sleep(10 * WATCH_INTERVAL + WATCH_INTERVAL / 2).await;
    assert!(!shared.fate.is_sealed(), "nothing has failed yet");
    reclaimer.fail(0);
    timeout(WATCH_INTERVAL, shared.fate.sealed()).await.expect("somebody looks each second");

    watched.await.unwrap();
    assert_eq!(shared.fate.known(), Some(VmError::MemoryFailed(PageFailed)));
    assert_eq!(shared.backend.process().exited().await.signal(), Some(9));
}
