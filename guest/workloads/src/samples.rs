//! How much was done when, by threads that each have a processor.

use std::{io, time::Duration};

/// A piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was done, since the work began.
    pub end: Duration,
    /// How long it took.
    pub took: Duration,
    /// How much it was, in the program's own unit.
    pub amount: u64,
}

/// Samples as a line of JSON: `{"samples":[[END_NS,TOOK_NS,AMOUNT],...]}`.
pub fn line(samples: &[Sample]) -> String {
    let ns = |time: Duration| time.as_nanos() as u64;
    let numbers = |sample: &Sample| [ns(sample.end), ns(sample.took), sample.amount];
    let samples: Vec<_> = samples.iter().map(numbers).collect();
    serde_json::json!({ "samples": samples }).to_string()
}

/// Runs `work` on each of so many processors at the same time, on a thread that is bound to it, and
/// returns what each returned. `work` is given the processor's number.
pub fn on_each_processor<T: Send>(
    processors: usize,
    work: impl Fn(usize) -> T + Sync,
) -> io::Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processors)
            .map(|processor| {
                scope.spawn(move || {
                    // A thread that ended here would leave the others waiting for it.
                    let bound = bind(processor);
                    let result = work(processor);
                    bound.map(|()| result)
                })
            })
            .collect();
        let failed = |_| io::Error::other("a thread has failed");
        threads.into_iter().map(|thread| thread.join().map_err(failed)?).collect()
    })
}

/// Binds this thread to a processor.
fn bind(processor: usize) -> io::Result<()> {
    // SAFETY: a set of zeroes is an empty one, and the call reads it.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_numbers_of_each_sample() {
        let ms = Duration::from_millis;
        let sample = Sample { end: ms(30), took: ms(10), amount: 7 };
        assert_eq!(
            line(&[sample; 2]),
            r#"{"samples":[[30000000,10000000,7],[30000000,10000000,7]]}"#
        );
    }

    #[test]
    fn each_processor_works_once() {
        assert_eq!(on_each_processor(1, |processor| processor + 5).unwrap(), [5]);
    }
}
