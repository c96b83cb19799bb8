//! A device without a guest: it changes its size as told.

use super::*;
use crate::backend::DeviceRequests;
use proptest::{collection::vec, prelude::*};
use std::sync::Mutex as StdMutex;

const DEVICE: Device = Device::VirtioMem(0);
const MAX_BYTES: u64 = 1 << 30;
const LONG: Duration = Duration::from_secs(20);

/// A device, and how its guest behaves.
struct FakeDevice {
    state: StdMutex<State>,
    changes: broadcast::Sender<SizeChange>,
    /// Whether a change is reported; otherwise it has to be polled for.
    reports: bool,
    /// How much the size changes with each poll, in bytes; all at once if changes are reported.
    step: u64,
}

#[derive(Default)]
struct State {
    target: u64,
    size: u64,
    requests: u32,
    refuses: bool,
}

impl FakeDevice {
    fn new(reports: bool, step: u64) -> Arc<Self> {
        let changes = broadcast::Sender::new(64);
        Arc::new(Self { state: StdMutex::default(), changes, reports, step })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Devices for FakeDevice {
    fn request(&self, device: Device, bytes: u64) -> BoxFuture<'_, Result<()>> {
        assert_eq!(device, DEVICE);
        let mut state = self.state();
        state.requests += 1;
        if state.refuses {
            let error = VmError::Command { command: "resize".into(), reason: "no".into() };
            return Box::pin(async { Err(error) });
        }
        state.target = bytes;
        if self.reports {
            state.size = bytes;
            self.changes.send(SizeChange { device, bytes }).ok();
        }
        Box::pin(async { Ok(()) })
    }

    fn size(&self, _: Device) -> BoxFuture<'_, Result<u64>> {
        let mut state = self.state();
        let now = state.size;
        let distance = now.abs_diff(state.target).min(self.step);
        state.size = if now < state.target { now + distance } else { now - distance };
        Box::pin(async move { Ok(now) })
    }

    fn size_changes(&self) -> broadcast::Receiver<SizeChange> {
        self.changes.subscribe()
    }

    fn reports_at_once(&self, _: Device) -> bool {
        self.reports
    }

    fn device_requests(&self, _: Device) -> BoxFuture<'_, Option<DeviceRequests>> {
        let plug = self.state().requests.into();
        Box::pin(async move { Some(DeviceRequests { plug, ..Default::default() }) })
    }
}

fn elastic(device: &Arc<FakeDevice>) -> GuestDriven {
    let vm = Running { devices: device.clone(), reclaimer: Arc::default() };
    GuestDriven::new(&vm, DEVICE, MAX_BYTES, 0, 0)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[tokio::test]
async fn a_change_that_is_reported_is_not_looked_for() {
    let device = FakeDevice::new(true, 0);
    let done = elastic(&device).resize(&|| 512, LONG, None).await.unwrap();
    assert_eq!((done.before_bytes, done.requested_bytes, done.plugged_bytes), (0, 512, 512));
    assert_eq!((done.polls, done.device.unwrap().plug), (0, 1));
}

#[tokio::test]
async fn a_change_that_is_not_reported_is_looked_for_until_it_is_done() {
    let device = FakeDevice::new(false, 100);
    let done = elastic(&device).resize(&|| 250, LONG, None).await.unwrap();
    // The poll before the request does not count, and the last one finds it done.
    assert_eq!((done.plugged_bytes, done.polls), (250, 4));
}

#[tokio::test]
async fn a_guest_that_does_not_follow_is_an_error_and_the_request_stands() {
    let device = FakeDevice::new(false, 0);
    let elastic = elastic(&device);
    let error = elastic.resize(&|| 4096, Duration::from_millis(20), None).await.unwrap_err();
    assert!(
        matches!(&error, VmError::Resize { requested: 4096, plugged: 0, reason, .. }
            if reason.contains("no agent")),
        "{error}"
    );
    assert_eq!((elastic.requested_bytes(), device.state().target), (4096, 4096));
}

#[tokio::test]
async fn what_the_vmm_refuses_has_not_been_asked_for() {
    let device = FakeDevice::new(false, 1);
    let elastic = elastic(&device);
    elastic.request(&|| 10).await.unwrap();
    device.state().refuses = true;
    assert!(elastic.request(&|| 20).await.is_err());
    assert_eq!(elastic.requested_bytes(), 10);
    device.state().refuses = false;
    elastic.request(&|| 10).await.unwrap();
    assert_eq!(device.state().requests, 2, "it was requested already");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..Default::default() })]

    /// Whatever the order of requests: all of them complete, and the size is the one requested
    /// last.
    #[test]
    fn of_several_resizes_the_last_request_is_what_comes_true(
        sizes in vec(0..MAX_BYTES, 1..8),
        reports: bool,
        step in 1 << 24..MAX_BYTES,
    ) {
        block_on(async {
            let device = FakeDevice::new(reports, step);
            let elastic = elastic(&device);
            let targets: Vec<_> = sizes.iter().map(|&bytes| move || bytes).collect();
            let all = targets.iter().map(|target| elastic.resize(target, LONG, None));
            let done = futures_util::future::join_all(all).await;
            prop_assert!(done.iter().all(Result::is_ok), "{done:?}");
            let (requested, target) = (elastic.requested_bytes(), device.state().target);
            prop_assert_eq!(requested, target);
            prop_assert!(sizes.contains(&requested));
            let last = elastic.resize(&|| requested, LONG, None).await.unwrap();
            prop_assert_eq!(last.plugged_bytes, requested);
            Ok(())
        })?;
    }
}
