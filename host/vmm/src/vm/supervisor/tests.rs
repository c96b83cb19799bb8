//! What ends a VM whose VMM is well.

use super::*;
use crate::{
    Accelerator, AcceleratorKind, BoxFuture, Console, Result, VmConfig,
    backend::{Backend, unused_devices},
    console::tests::events,
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
    sync::{Notify, Semaphore},
    time::{sleep, timeout},
};

/// A VMM that says that its VM runs; or, if `pauses` is there, that it is paused, each time that is notified.
struct Well {
    process: Process,
    pauses: Option<Arc<Notify>>,
}

impl Well {
    fn start(pauses: Option<Arc<Notify>>) -> Self {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let process = Process::spawn(command, Vec::new(), || Ok(()), "").unwrap().process;
        Self { process, pauses }
    }
}

impl Backend for Well {
    fn version(&self) -> &str {
        unreachable!()
    }

    fn process(&self) -> &Process {
        &self.process
    }

    fn said(&self) -> String {
        String::new()
    }

    fn run_state(&self, _: Duration) -> BoxFuture<'_, Result<RunState>> {
        Box::pin(async {
            let Some(pauses) = &self.pauses else { return Ok(RunState::Running) };
            pauses.notified().await;
            Ok(RunState::Paused)
        })
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
    shared_of(reclaimer, Well::start(None))
}

fn shared_of(reclaimer: Arc<Reclaimer>, vmm: Well) -> Arc<Shared> {
    let (kind, reason) = (AcceleratorKind::Tcg, String::new());
    Arc::new(Shared {
        config: VmConfig::new("a", "/dev/null", "/dev/null"),
        accelerator: Accelerator { kind, reason },
        backend: Arc::new(vmm),
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

#[tokio::test]
async fn an_answer_from_before_a_vm_was_let_run_again_does_not_end_it() {
    let guest = Guest::new();
    guest.boot();
    let pauses = Arc::new(Notify::new());
    let vmm = Well::start(Some(pauses.clone()));
    let shared = shared_of(Arc::new(guest.reclaimer()), vmm);
    shared.paused.send_replace(true);
    let resume = async {
        shared.paused.send_replace(false);
        pauses.notify_one();
    };
    tokio::join!(shared.look(None), resume);
    assert!(!shared.fate.is_sealed());
    // Nobody has asked for this pause.
    pauses.notify_one();
    shared.look(None).await;
    assert!(shared.fate.is_sealed());
    shared.backend.process().kill();
}

#[tokio::test]
async fn the_last_lines_of_a_vm_are_said_unless_somebody_has_stopped_it() {
    for (reason, count) in [(VmError::Hung(WATCH_INTERVAL), 1), (VmError::Stopped, 0)] {
        let guest = Guest::new();
        guest.boot();
        let shared = shared(Arc::new(guest.reclaimer()));
        let said = events("info", async {
            shared.console.clone().follow("a".to_owned(), b"last\n".as_slice(), None).await;
            shared.fate.seal(reason);
            let (_more, events) = mpsc::channel(1);
            supervise(shared.clone(), events, watch::Sender::new(false)).await;
        })
        .await;
        assert_eq!(said.lines().count(), count, "{said}");
    }
}
