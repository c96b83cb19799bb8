//! Reads or generates the load of a run.

use super::{args::Args, error::RunError};
use squeezy_load::{Load, Synthetic, TraceError, azure2019, azure2021, choose};
use squeezy_node::function::Function;
use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    time::Duration,
};

/// Without `--function`, only functions with at most this many invocations in their busiest minute
/// are considered: more is too much for one VM.
const PEAK_PER_MINUTE: u64 = 120;

/// How much of a trace is replayed by default.
const TRACE_LENGTH: Duration = Duration::from_secs(60);

/// Length of the synthetic load, in times that the first instance took to answer. Most of its
/// instances start at once, and should be up before its largest burst has ebbed away.
const FIRST_ANSWERS: u32 = 14;

/// The minimum length of the synthetic load, unless the command line sets its length: a shorter one
/// would be over before anything can be seen.
const LEAST_SYNTHETIC: Duration = Duration::from_secs(20);

/// The maximum length of the synthetic load.
const MOST_SYNTHETIC: Duration = Duration::from_secs(120);

/// A load, and the keep-alive to use with it.
pub struct LoadInput {
    /// When requests arrive.
    pub load: Load,
    /// How long requests are sent.
    pub length: Duration,
    /// How long an instance without a request is kept.
    pub keep_alive: Duration,
}

/// Reads the trace named on the command line, if any.
pub fn read_trace(args: &Args, function: &Function) -> Result<Option<LoadInput>, RunError> {
    let Some(path) = &args.trace else { return Ok(None) };
    let length = args.duration.unwrap_or(TRACE_LENGTH);
    let load = window(&parse_trace(path, args)?, args, length)?;
    let keep_alive = args.keep_alive.unwrap_or(function.keep_alive);
    Ok(Some(LoadInput { load, length, keep_alive }))
}

/// Generates a load with `burst` requests at once, for a function whose first instance took
/// `first_answer` to answer its first request.
pub fn make_up(args: &Args, burst: u32, first_answer: Duration) -> Result<LoadInput, RunError> {
    let fitting = (first_answer * FIRST_ANSWERS).clamp(LEAST_SYNTHETIC, MOST_SYNTHETIC);
    // Whole seconds read better.
    let length = args.duration.unwrap_or(Duration::from_secs(fitting.as_secs()));
    let load = synthetic(length, burst).load(args.seed)?;
    let keep_alive = args.keep_alive.unwrap_or(length / 6);
    Ok(LoadInput { load, length, keep_alive })
}

/// A burst that ebbs away, so that some instances end while others continue, and a smaller one
/// later.
fn synthetic(length: Duration, requests: u32) -> Synthetic {
    let burst =
        |at: f64, part: f64| (length.mul_f64(at), (f64::from(requests) * part).ceil() as u32);
    Synthetic {
        length,
        bursts: vec![
            burst(0.04, 1.0),
            burst(0.36, 0.75),
            burst(0.48, 0.5),
            burst(0.60, 0.25),
            burst(0.88, 0.5),
        ],
        // All at once: each request of a burst needs an instance of its own.
        burst_length: Duration::from_millis(100),
        trickle_gap: length / 5,
    }
}

fn parse_trace(path: &Path, args: &Args) -> Result<Load, RunError> {
    let trace_error = |error| RunError::Trace { path: path.to_owned(), error };
    let file = File::open(path).map_err(|error| RunError::File { path: path.to_owned(), error })?;
    let mut reader = BufReader::new(file);
    let start =
        reader.fill_buf().map_err(|error| trace_error(TraceError::Read { line: 1, error }))?;
    let choice = |candidates: &[_]| {
        choose(candidates, args.trace_function.as_deref(), PEAK_PER_MINUTE)
            .map(str::to_owned)
            .map_err(|error| RunError::Choice { path: path.to_owned(), error })
    };
    let load = if start.starts_with(b"app,func,") {
        let trace = azure2021::Invocations::parse(reader).map_err(trace_error)?;
        let function = choice(&trace.candidates())?;
        trace.load(&function)
    } else {
        let trace = azure2019::Invocations::parse(reader).map_err(trace_error)?;
        let function = choice(&trace.candidates())?;
        trace.load(&function, args.seed)
    };
    // The function was just chosen from the trace.
    Ok(load.unwrap_or(Load { source: String::new(), arrivals: Vec::new() }))
}

fn window(load: &Load, args: &Args, length: Duration) -> Result<Load, RunError> {
    let length = length.mul_f64(args.speed);
    let from = args.from.unwrap_or_else(|| load.busiest_window(length));
    let mut window = load.window(from, length, args.speed);
    if window.arrivals.is_empty() {
        return Err(RunError::EmptyWindow {
            from_seconds: from.as_secs_f64(),
            length_seconds: length.as_secs_f64(),
        });
    }
    window.source = format!(
        "{}, {} s from second {} on at {} times its speed",
        window.source,
        length.as_secs_f64(),
        from.as_secs_f64(),
        args.speed
    );
    Ok(window)
}
