//! Reads slices of the published traces, which are not in the repository: `SQUEEZY_TRACES` names the
//! directory that holds `azure2019/` and `azure2021_sample.csv`. `make test-fast` runs these tests if it is
//! set; otherwise cargo reports them as ignored.

use squeezy_load::{azure2019, azure2021, choose};
use std::{fs::File, io::BufReader, path::PathBuf};

fn open(name: &str) -> BufReader<File> {
    let directory = std::env::var_os("SQUEEZY_TRACES")
        .expect("SQUEEZY_TRACES must name the directory with the traces");
    let path = PathBuf::from(directory).join(name);
    BufReader::new(File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

#[test]
#[ignore = "needs the published traces in SQUEEZY_TRACES"]
fn the_2019_slice_is_read_whole() {
    let file = open("azure2019/invocations.csv");
    let trace = azure2019::Invocations::parse(file).unwrap();
    assert_eq!((trace.first_minute, trace.minutes, trace.functions.len()), (480, 480, 250));
    let candidates = trace.candidates();
    assert_eq!(candidates.iter().map(|c| c.invocations).sum::<u64>(), 567_403);
    let bursty = choose(&candidates, Some("6f9165a89bf7ef97"), 0).unwrap();
    let peak = candidates.iter().find(|c| c.hash == bursty).unwrap().peak_per_minute;
    assert_eq!(peak, 55);
    let load = trace.load(bursty, 1).unwrap();
    assert!(load.arrivals.is_sorted() && !load.arrivals.is_empty());

    let durations = azure2019::durations_ms(open("azure2019/durations.csv")).unwrap();
    let memory = azure2019::memory_mb(open("azure2019/memory.csv")).unwrap();
    assert_eq!(durations.len(), 250);
    assert!(!memory.is_empty());
}

#[test]
#[ignore = "needs the published traces in SQUEEZY_TRACES"]
fn the_2021_slice_is_read_whole() {
    let file = open("azure2021_sample.csv");
    let trace = azure2021::Invocations::parse(file).unwrap();
    assert_eq!(trace.functions.len(), 31);
    // The last line has no line break, but counts too.
    assert_eq!(trace.functions.values().map(Vec::len).sum::<usize>(), 199);
}
