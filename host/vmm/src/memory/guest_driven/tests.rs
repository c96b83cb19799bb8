//! A device without a guest: it changes its size as told.

use super::*;
use crate::backend::DeviceRequests;
use proptest::{collection::vec, prelude::*};
use std::sync::Mutex as StdMutex;

const MAX_BYTES: u64 = 1 << 30;
const LONG: Duration = Duration::from_secs(20);

/// A device, and how its guest behaves.
struct FakeDevice {
    kind: Device,
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
    looks: u32,
    refuses: bool,
}

impl FakeDevice {
    fn new(reports: bool, step: u64) -> Arc<Self> {
        Self::of(Device::VirtioMem(0), reports, step)
    }

    fn of(kind: Device, reports: bool, step: u64) -> Arc<Self> {
        let changes = broadcast::Sender::new(64);
        Arc::new(Self { kind, state: StdMutex::default(), changes, reports, step })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Devices for FakeDevice {
    fn request(&self, device: Device, bytes: u64) -> BoxFuture<'_, Result<()>> {
        assert_eq!(device, self.kind);
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
        state.looks += 1;
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
    GuestDriven::new(&vm, device.kind, MAX_BYTES, 0, 0)
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
async fn a_size_that_was_reached_is_known() {
    let device = FakeDevice::new(true, 0);
    let elastic = elastic(&device);
    elastic.resize(&|| 512, LONG, None).await.unwrap();
    let looks = device.state().looks;
    let done = elastic.resize(&|| 256, LONG, None).await.unwrap();
    assert_eq!((done.before_bytes, done.plugged_bytes), (512, 256));
    assert_eq!(device.state().looks, looks, "the device was asked");
}

#[tokio::test]
async fn a_device_that_has_less_for_a_moment_grows_again() {
    let device = FakeDevice::new(false, 100);
    let elastic = elastic(&device);
    elastic.resize(&|| 300, LONG, None).await.unwrap();
    device.state().size = 100;
    let (again, more) = tokio::join!(elastic.resize(&|| 300, LONG, None), async {
        tokio::task::yield_now().await;
        elastic.resize(&|| 500, LONG, None).await
    });
    // Passing by is enough, whatever is requested meanwhile.
    assert_eq!(again.unwrap().before_bytes, 100);
    assert_eq!(more.unwrap().plugged_bytes, 500);
}

#[tokio::test]
async fn a_size_that_was_not_waited_for_is_asked_for() {
    let device = FakeDevice::new(false, 100);
    let elastic = elastic(&device);
    elastic.resize(&|| 100, LONG, None).await.unwrap();
    elastic.request(&|| 1000).await.unwrap();
    // It has 100, and grows to what the request before asks for less of.
    let done = elastic.resize(&|| 500, LONG, None).await.unwrap();
    assert_eq!((done.before_bytes, done.plugged_bytes), (100, 500));
}

#[tokio::test]
async fn a_request_that_the_vmm_refuses_is_not_taken_for_a_size() {
    let device = FakeDevice::new(false, 100);
    let elastic = elastic(&device);
    elastic.request(&|| 300).await.unwrap();
    device.state().refuses = true;
    assert!(elastic.resize(&|| 100, LONG, None).await.is_err());
    device.state().refuses = false;
    let done = elastic.resize(&|| 200, LONG, None).await.unwrap();
    assert_eq!((done.before_bytes, done.plugged_bytes), (100, 200));
}

#[tokio::test]
async fn a_balloon_is_asked_for_its_size_each_time() {
    let device = FakeDevice::of(Device::Balloon, false, 1000);
    let elastic = elastic(&device);
    elastic.resize(&|| 1000, LONG, None).await.unwrap();
    // The guest has taken out of it what it has not been told to.
    device.state().size = 1500;
    device.state().target = 1500;
    let done = elastic.resize(&|| 1200, LONG, None).await.unwrap();
    assert_eq!((done.before_bytes, done.plugged_bytes), (1500, 1200));
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

    /// Whatever the order of requests: all of them complete, a resize that nobody interferes with is done when it says so,
    /// and the size is the one requested last.
    #[test]
    fn of_several_resizes_the_last_request_is_what_comes_true(
        rounds in vec(vec(0..MAX_BYTES, 1..8), 1..5),
        reports: bool,
        step in 1 << 24..MAX_BYTES,
    ) {
        block_on(async {
            let device = FakeDevice::new(reports, step);
            let elastic = elastic(&device);
            for sizes in rounds {
                let targets: Vec<_> = sizes.iter().map(|&bytes| move || bytes).collect();
                let all = targets.iter().map(|target| elastic.resize(target, LONG, None));
                let done = futures_util::future::join_all(all).await;
                prop_assert!(done.iter().all(Result::is_ok), "{done:?}");
                let (requested, target) = (elastic.requested_bytes(), device.state().target);
                prop_assert_eq!(requested, target);
                prop_assert!(sizes.contains(&requested));
                if sizes.len() == 1 {
                    prop_assert_eq!(device.state().size, requested);
                }
            }
            let requested = elastic.requested_bytes();
            let last = elastic.resize(&|| requested, LONG, None).await.unwrap();
            prop_assert_eq!(last.plugged_bytes, requested);
            Ok(())
        })?;
    }
}
