use super::*;
use crate::{error::Error, mutex::lock};
use futures_util::future::join_all;
use proptest::{collection::vec, prelude::*};
use std::sync::MutexGuard;
use tokio::{task::JoinHandle, time::timeout};

const AFTER: Duration = Duration::from_secs(8);
/// How long it takes to freeze or thaw it.
const LATENCY: Duration = Duration::from_millis(300);
/// Until what has nothing to do is frozen: there may be a look just before.
const FROZEN_AFTER: Duration = Duration::from_millis(10_400);

/// What is frozen and thawed: a number of things.
#[derive(Default)]
struct Fake {
    inside: std::sync::Mutex<Inside>,
    traffic: Notify,
}

#[derive(Default)]
struct Inside {
    /// How many run, and how many of them are frozen.
    things: u32,
    frozen: u32,
    had_traffic: bool,
    worked: Duration,
    is_gone: bool,
    /// How many calls fail from now on.
    failures: u32,
    /// Of those who were told that it runs.
    uses: u32,
    freezes: u32,
}

impl Fake {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        lock(&self.inside)
    }

    fn send(&self) {
        self.inside().had_traffic = true;
        self.traffic.notify_one();
    }

    fn fail(&self) -> Result<()> {
        let mut inside = self.inside();
        if inside.failures == 0 {
            return Ok(());
        }
        inside.failures -= 1;
        Err(Error::failed("the guest does not answer"))
    }
}

impl Freezable for Fake {
    type Frozen = u32;

    fn freeze<'a>(
        &'a self,
        frozen: &'a mut u32,
        wanted: &'a (dyn Fn() -> bool + Sync),
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            assert_eq!(*frozen, 0, "it is frozen twice");
            let things = self.inside().things;
            for _ in 0..things {
                if wanted() {
                    break;
                }
                *frozen += 1;
                sleep(LATENCY / 2).await;
                let mut inside = self.inside();
                assert_eq!(inside.uses, 0, "it is frozen while it is used");
                inside.frozen = *frozen;
                inside.freezes += 1;
                drop(inside);
                self.fail()?;
            }
            Ok(())
        })
    }

    fn thaw<'a>(&'a self, _: &'a u32) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            sleep(LATENCY).await;
            self.fail()?;
            self.inside().frozen = 0;
            Ok(())
        })
    }

    fn take_traffic(&self) -> io::Result<bool> {
        let mut inside = self.inside();
        if inside.is_gone {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(std::mem::take(&mut inside.had_traffic))
    }

    fn traffic(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            while !self.take_traffic()? {
                self.traffic.notified().await;
            }
            Ok(())
        })
    }

    fn busy(&self) -> BoxFuture<'_, Result<Duration>> {
        Box::pin(async move {
            self.fail()?;
            Ok(self.inside().worked)
        })
    }
}

struct Bench {
    freezer: Arc<Freezer<Fake>>,
    watcher: JoinHandle<io::Result<()>>,
}

impl Bench {
    fn new(things: u32) -> Self {
        let fake = Fake::default();
        fake.inside().things = things;
        let freezer = Freezer::new(fake, "pod".parse().unwrap(), AFTER);
        let watched = freezer.clone();
        Self { freezer, watcher: tokio::spawn(async move { watched.watch().await }) }
    }

    fn fake(&self) -> MutexGuard<'_, Inside> {
        self.freezer.what.inside()
    }

    fn frozen(&self) -> u32 {
        self.fake().frozen
    }

    async fn begin_use(&self) -> Result<Use<Fake>> {
        let begun = self.freezer.begin_use().await?;
        let mut inside = self.fake();
        assert_eq!(inside.frozen, 0, "whoever uses it finds it frozen");
        inside.uses += 1;
        drop(inside);
        Ok(begun)
    }

    fn end_use(&self, one: Use<Fake>) {
        self.fake().uses -= 1;
        drop(one);
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_nothing_to_do_is_frozen_until_there_is_traffic() {
    let bench = Bench::new(2);
    sleep(AFTER - LATENCY).await;
    assert_eq!(bench.frozen(), 0);
    sleep(FROZEN_AFTER - AFTER + LATENCY).await;
    assert_eq!(bench.frozen(), 2);
    sleep(100 * AFTER).await;
    assert_eq!((bench.frozen(), bench.fake().freezes), (2, 2));
    bench.freezer.what.send();
    sleep(2 * LATENCY).await;
    assert_eq!(bench.frozen(), 0);
    for _ in 0..20 {
        sleep(AFTER / 2).await;
        bench.freezer.what.send();
        assert_eq!(bench.frozen(), 0);
    }
    sleep(FROZEN_AFTER).await;
    assert_eq!(bench.frozen(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_computes_is_not_frozen() {
    let bench = Bench::new(1);
    for _ in 0..100 {
        sleep(AFTER / 8).await;
        bench.fake().worked += AFTER / 8 / 19;
        assert_eq!(bench.frozen(), 0);
    }
    for _ in 0..11 {
        sleep(AFTER / 8).await;
        bench.fake().worked += AFTER / 8 / 21;
    }
    assert_eq!(bench.frozen(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_it_has_computed_for_traffic_does_not_count() {
    let bench = Bench::new(1);
    // Between the first and the second look.
    sleep(AFTER * 3 / 8).await;
    bench.fake().worked = AFTER;
    bench.freezer.what.send();
    sleep(FROZEN_AFTER).await;
    assert_eq!(bench.frozen(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_it_is_being_frozen_thaws_it() {
    // In the last step; and before the second one, which is not frozen then.
    for things in [1, 2] {
        let bench = Bench::new(things);
        sleep(AFTER + LATENCY / 4).await;
        bench.freezer.what.send();
        sleep(3 * LATENCY).await;
        assert_eq!((bench.frozen(), bench.fake().freezes), (0, 1), "of {things}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_uses_it_thaws_it_and_finds_it_running_until_he_is_done() {
    let bench = Bench::new(2);
    sleep(FROZEN_AFTER).await;
    assert_eq!(bench.frozen(), 2);
    let first = bench.begin_use().await.unwrap();
    let second = bench.begin_use().await.unwrap();
    sleep(10 * AFTER).await;
    bench.end_use(first);
    sleep(10 * AFTER).await;
    bench.end_use(second);
    sleep(AFTER - LATENCY).await;
    assert_eq!(bench.frozen(), 0);
    sleep(FROZEN_AFTER).await;
    assert_eq!(bench.frozen(), 2);
}

#[tokio::test(start_paused = true)]
async fn whoever_wakes_it_finds_it_running_in_a_moment() {
    // While it runs, when it is frozen, and in the middle of that.
    for after in [Duration::ZERO, FROZEN_AFTER, AFTER + LATENCY / 4] {
        let bench = Bench::new(2);
        sleep(after).await;
        let woken = bench.freezer.wake();
        sleep(4 * LATENCY).await;
        assert_eq!(bench.frozen(), 0, "{after:?}");
        sleep(10 * AFTER).await;
        assert_eq!(bench.frozen(), 0, "{after:?}");
        drop(woken);
        sleep(2 * FROZEN_AFTER).await;
        assert_eq!(bench.frozen(), 2, "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_not_frozen_any_further_once_somebody_waits_for_it() {
    let bench = Bench::new(20);
    sleep(AFTER + LATENCY).await;
    let one = bench.begin_use().await.unwrap();
    assert!(bench.fake().freezes < 5, "{}", bench.fake().freezes);
    bench.end_use(one);
}

#[tokio::test(start_paused = true)]
async fn what_is_frozen_in_part_is_thawed_however_often_that_fails() {
    let bench = Bench::new(3);
    sleep(AFTER + LATENCY / 4).await;
    // One of freezing, the others of thawing.
    bench.fake().failures = 5;
    sleep(LATENCY * 3 / 4).await;
    assert_eq!(bench.frozen(), 1);
    let one = bench.begin_use().await.unwrap();
    assert_eq!((bench.frozen(), bench.fake().failures), (0, 0));
    bench.end_use(one);
    sleep(2 * FROZEN_AFTER).await;
    assert_eq!(bench.frozen(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_use_waits_for_what_cannot_be_thawed_at_once() {
    let bench = Bench::new(1);
    sleep(FROZEN_AFTER).await;
    bench.fake().failures = 1;
    let begin = Instant::now();
    let one = bench.begin_use().await.unwrap();
    assert!(begin.elapsed() < 3 * LATENCY, "it has waited for {:?}", begin.elapsed());
    bench.end_use(one);
}

#[tokio::test(start_paused = true)]
async fn what_is_being_thawed_is_so_to_its_end_though_nobody_waits_any_more() {
    let bench = Bench::new(2);
    sleep(FROZEN_AFTER).await;
    assert_eq!(bench.frozen(), 2);
    assert!(timeout(LATENCY / 2, bench.begin_use()).await.is_err(), "it has not waited");
    sleep(LATENCY).await;
    assert_eq!(bench.frozen(), 0);
    // Nobody uses it.
    sleep(2 * FROZEN_AFTER).await;
    assert_eq!(bench.frozen(), 2);
}

#[tokio::test(start_paused = true)]
async fn whoever_gives_up_before_his_turn_has_tried_nothing() {
    let bench = Bench::new(1);
    sleep(FROZEN_AFTER).await;
    bench.fake().failures = u32::MAX;
    let uses = (0..100).map(|_| timeout(LATENCY / 2, bench.begin_use()));
    for given_up in join_all(uses).await {
        assert!(given_up.is_err(), "it has not waited");
    }
    sleep(100 * LATENCY).await;
    // Those of whoever watches it, which become rarer, and of the first.
    let attempts = u32::MAX - bench.fake().failures;
    assert!((1..20).contains(&attempts), "{attempts} attempts");
}

#[tokio::test(start_paused = true)]
async fn what_uses_could_not_thaw_in_time_is_thawed_without_them() {
    let bench = Bench::new(1);
    sleep(FROZEN_AFTER).await;
    bench.fake().failures = u32::MAX;
    let begin = Instant::now();
    let (one, another) = tokio::join!(bench.begin_use(), bench.begin_use());
    assert!(one.is_err() && another.is_err());
    let waited = begin.elapsed();
    assert!(
        (PATIENCE..PATIENCE + 6 * LATENCY).contains(&waited),
        "they have waited for {waited:?}"
    );
    // Waiting costs no attempts.
    assert!(bench.fake().failures > u32::MAX - 20, "it was tried all the time");
    bench.fake().failures = 0;
    let limit = Instant::now() + MAX_RETRY_INTERVAL + 2 * LATENCY;
    while bench.frozen() > 0 {
        assert!(Instant::now() < limit, "nobody has thawed it");
        sleep(LATENCY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_only_keeps_it_does_not_wait_and_nothing_is_frozen_meanwhile() {
    let bench = Bench::new(1);
    sleep(FROZEN_AFTER).await;
    let kept = bench.freezer.keep();
    sleep(AFTER).await;
    assert_eq!(bench.frozen(), 1);
    bench.freezer.what.send();
    sleep(10 * AFTER).await;
    assert_eq!(bench.frozen(), 0);
    drop(kept);
    sleep(FROZEN_AFTER).await;
    assert_eq!(bench.frozen(), 1);
}

#[tokio::test(start_paused = true)]
async fn it_is_watched_though_nothing_ran_at_first() {
    let bench = Bench::new(0);
    sleep(10 * AFTER).await;
    let start = bench.begin_use().await.unwrap();
    bench.fake().things = 1;
    bench.end_use(start);
    sleep(FROZEN_AFTER).await;
    assert_eq!(bench.frozen(), 1);
}

#[tokio::test(start_paused = true)]
async fn it_runs_once_its_traffic_is_not_seen_any_more() {
    let bench = Bench::new(1);
    sleep(FROZEN_AFTER).await;
    bench.fake().is_gone = true;
    bench.fake().failures = 1;
    bench.freezer.what.traffic.notify_one();
    assert!(bench.watcher.await.unwrap().is_err());
    assert_eq!(bench.freezer.what.inside().frozen, 0);
}

#[derive(Clone, Debug)]
enum Step {
    Traffic,
    BeginUse,
    EndUse,
    Things(u32),
    Fail(u32),
    Work(u64),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pass_ms = prop_oneof![0..700_u64, 1_000..12_000_u64];
    vec(
        prop_oneof![
            1 => Just(Step::Traffic),
            1 => Just(Step::BeginUse),
            1 => Just(Step::EndUse),
            1 => (0..3_u32).prop_map(Step::Things),
            1 => (0..4_u32).prop_map(Step::Fail),
            1 => (0..1_000_u64).prop_map(Step::Work),
            5 => pass_ms.prop_map(Step::Pass),
        ],
        0..60,
    )
}

async fn check(steps: Vec<Step>) {
    let bench = Arc::new(Bench::new(1));
    let mut uses = Vec::new();
    for step in steps {
        match step {
            Step::Traffic => bench.freezer.what.send(),
            // Not waited for: others come meanwhile.
            Step::BeginUse => {
                let bench = bench.clone();
                uses.push(tokio::spawn(async move { bench.begin_use().await }));
            }
            Step::EndUse => {
                if let Some(at) = uses.iter().position(JoinHandle::is_finished)
                    && let Ok(begun) = uses.swap_remove(at).await.unwrap()
                {
                    bench.end_use(begun);
                }
            }
            // What is frozen does neither start nor end.
            Step::Things(things) => {
                if let Ok(start) = bench.begin_use().await {
                    bench.fake().things = things;
                    bench.end_use(start);
                }
            }
            Step::Fail(times) => bench.fake().failures = times,
            Step::Work(ms) => bench.fake().worked += Duration::from_millis(ms),
            Step::Pass(ms) => sleep(Duration::from_millis(ms)).await,
        }
        let inside = bench.fake();
        assert!(inside.uses == 0 || inside.frozen == 0, "it is used and frozen");
    }
    // What is left to be done is done, whatever has happened.
    for begun in uses {
        if let Ok(begun) = begun.await.unwrap() {
            bench.end_use(begun);
        }
    }
    bench.fake().failures = 0;
    bench.freezer.what.send();
    let limit = Instant::now() + MAX_RETRY_INTERVAL + 4 * LATENCY;
    // If it runs, what comes now is too late for the next look.
    sleep(2 * LATENCY).await;
    while bench.frozen() > 0 {
        assert!(Instant::now() < limit, "traffic has not thawed it");
        sleep(LATENCY).await;
    }
    sleep(FROZEN_AFTER).await;
    let things = bench.fake().things;
    assert_eq!(bench.frozen(), things, "it has nothing to do and is not frozen");
    let one = bench.begin_use().await.unwrap();
    bench.end_use(one);
    assert!(!bench.watcher.is_finished(), "nobody watches it any more");
}

proptest! {
    #[test]
    fn it_runs_while_it_is_used_and_is_frozen_and_thawed_after_whatever_came(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(check(steps));
    }
}
