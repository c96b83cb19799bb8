//! What the store costs a warm call.

use super::*;

/// Calls that are measured.
const CALLS: usize = 5000;

/// The most processor time that the database may add to a call, in microseconds: the target in `bench/targets.toml`.
const MOST_US: f64 = 200.0;

/// The processor time of this process, all threads.
fn used() -> Duration {
    // SAFETY: all zeros are valid, and getrusage writes to nothing else.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// One call after another, so that none shares its transaction: the dearest way.
#[tokio::test]
#[ignore = "holds for a build that is optimized, as `make stress` makes one"]
async fn the_database_adds_little_processor_time_to_a_call() {
    let mut sums = Vec::new();
    for (kind, is_on) in [("off", false), ("on, nobody waits", true), ("on, blocking", true)] {
        let is_heard = kind == "on, nobody waits";
        // As after some days: the oldest has to go for each that comes.
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), Limits { most: 10_000, ..LIMITS });
        if is_on {
            for number in 0..10_000 {
                let _ =
                    store.end(activation(&format!("{number:032}"), now_ms(), 2000)).wait().await;
            }
            until("all is written", async || store.health().unwritten == 0).await;
        }
        let (begin, from) = (Instant::now(), used());
        let mut longest = Duration::ZERO;
        for number in 0..CALLS {
            let id = format!("warm{number:028}");
            let call = running(&id, now_ms());
            let activation = activation(&id, call.start_ms, 2000);
            if is_on {
                let begin = Instant::now();
                if is_heard {
                    let _ = store.start(call).wait().await;
                } else {
                    store.start_unheard(call);
                }
                let _ = store.end(activation).wait().await;
                longest = longest.max(begin.elapsed());
            }
        }
        let (took, used) = (begin.elapsed(), used() - from);
        println!(
            "database {}: {:.1} µs of processor time and {:.1} µs for each of {CALLS} calls, {:.1} ms at most",
            kind,
            used.as_secs_f64() * 1e6 / CALLS as f64,
            took.as_secs_f64() * 1e6 / CALLS as f64,
            longest.as_secs_f64() * 1e3
        );
        sums.push(used.as_secs_f64() * 1e6 / CALLS as f64);
    }
    let [heard, blocking] = [1, 2].map(|kind: usize| sums[kind] - sums[0]);
    println!(
        "the database costs {blocking:.1} µs of processor time for each blocking call, {heard:.1} µs for one that is not waited for"
    );
    assert!(blocking.max(heard) <= MOST_US, "{blocking:.1} µs and {heard:.1} µs");
}
