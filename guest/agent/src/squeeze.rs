//! Makes an instance give back memory it does not use: first its runtime's garbage, which becomes free memory
//! of its partition, and then that free memory to the host.

use crate::{error::ApiError, instance::Entry, sysfs};
use squeezer::{Deadline, Process, Request, Squeezer};
use squeezy_protocol::{PartitionNumber, SQUEEZE_LIMIT, Squeezed, SqueezedHeap};
use std::rc::Rc;
use tokio::task::spawn_blocking;

/// The order of the smallest free blocks to give back: single pages. A runtime's pages were allocated one by
/// one, so what it frees is scattered; only a seventh of it is in blocks of 2 MiB
/// (`bench/results/squeeze/README.md`).
const SMALLEST_ORDER: u8 = 0;

/// Lets a frozen instance run while its runtime collects garbage, and freezes it again. A request that comes
/// in the meantime is passed on at once, and whatever is not done by then is skipped.
pub async fn squeeze(instance: &Rc<Entry>) -> Result<Squeezed, ApiError> {
    let awake = instance.wake().await?;
    let pid = instance.description().pid;
    let (heap, heap_problem) = or_why(finish(spawn_blocking(move || collect(pid))).await);
    drop(awake);
    let frozen = instance.freeze().await.map_err(|error| error.0.message);
    let reported = match instance.description().partition {
        None => Ok(0),
        Some(partition) => match frozen {
            Ok(_) => finish(spawn_blocking(move || report(partition))).await,
            Err(problem) => Err(problem),
        },
    };
    let (reported_bytes, report_problem) = or_why(reported);
    Ok(Squeezed {
        instance: instance.description(),
        heap,
        heap_problem,
        reported_bytes: reported_bytes.unwrap_or(0),
        report_problem,
    })
}

fn collect(pid: u32) -> Result<SqueezedHeap, String> {
    let deadline = Deadline::after(SQUEEZE_LIMIT / 2);
    let ask = || {
        let process = Process::open(pid)?;
        Squeezer::of(&process, deadline)?.squeeze(&Request::default(), deadline)
    };
    let answer = ask().map_err(|error| error.to_string())?;
    Ok(SqueezedHeap {
        before_bytes: answer.before_bytes,
        after_bytes: answer.after_bytes,
        live_bytes: answer.live_bytes,
        pause_ns: answer.pause_ns,
        cpu_ns: answer.cpu_ns,
    })
}

fn report(partition: PartitionNumber) -> Result<u64, String> {
    match sysfs::llfree_state() {
        // The host finds by itself what is free.
        Ok(Some(_)) => Ok(0),
        Ok(None) => sysfs::report(partition, SMALLEST_ORDER).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

async fn finish<T>(
    work: impl Future<Output = Result<Result<T, String>, tokio::task::JoinError>>,
) -> Result<T, String> {
    work.await.unwrap_or_else(|error| Err(error.to_string()))
}

fn or_why<T>(result: Result<T, String>) -> (Option<T>, Option<String>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(problem) => (None, Some(problem)),
    }
}
