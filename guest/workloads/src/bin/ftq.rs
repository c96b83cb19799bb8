//! How much work is done in fixed quanta of time.

use clap::Parser;
use squeezy_workloads::{Sample, samples};
use std::{
    hint::black_box,
    io,
    process::ExitCode,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

/// Counts the units of work that a thread on each processor does in each quantum of time, as FTQ does.
/// Prints for each quantum when it was over, its length and the units:
/// `{"samples":[[END_NS,TOOK_NS,UNITS],...]}`.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The length of a quantum, in microseconds.
    #[arg(long, value_name = "US", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    quantum: u64,
    /// How long, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    duration: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ftq: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let processors = thread::available_parallelism()?.get();
    let took = Duration::from_micros(arguments.quantum);
    let quanta = arguments.duration * 1000 / arguments.quantum;
    let barrier = Barrier::new(processors);
    let work = |_| {
        let mut samples = Vec::with_capacity(quanta as usize);
        barrier.wait();
        let begin = Instant::now();
        let mut end = Duration::ZERO;
        for _ in 0..quanta {
            end += took;
            let mut amount = 0;
            while begin.elapsed() < end {
                unit();
                amount += 1;
            }
            samples.push(Sample { end, took, amount });
        }
        samples
    };
    let all = samples::on_each_processor(processors, work)?;
    println!("{}", samples::line(&all.concat()));
    Ok(())
}

/// A unit of work: so much without memory that reading the clock hardly counts, which may take
/// microseconds in a VM.
fn unit() {
    const STEPS: u32 = 10_000;
    let mut word = 1_u64;
    for _ in 0..STEPS {
        // Otherwise the compiler would compute several steps in one.
        word = black_box(word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
    }
}
