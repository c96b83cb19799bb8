//! How fast memory is read and written over time.

use clap::Parser;
use squeezy_workloads::{Sample, samples, size};
use std::{
    hint::black_box,
    io,
    process::ExitCode,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Copies, scales, adds and triads arrays as STREAM does, on a thread for each processor, again and
/// again. An iteration is all four on all threads, and over when the last one is. Prints for each when
/// it was over, how long it took and how many bytes it has read and written:
/// `{"samples":[[END_NS,TOOK_NS,BYTES],...]}`.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Size of each of a thread's three arrays: bytes, or a number with K, M or G.
    #[arg(long, default_value = "4M", value_parser = size::parse)]
    size: usize,
    /// How long, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    duration: u64,
}

/// How many arrays copy, scale, add and triad read and write together.
const ARRAYS: usize = 2 + 2 + 3 + 3;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stream: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let processors = thread::available_parallelism()?.get();
    let duration = Duration::from_millis(arguments.duration);
    let length = (arguments.size / size_of::<u64>()).max(1);
    let amount = (processors * ARRAYS * length * size_of::<u64>()) as u64;
    let barrier = Barrier::new(processors);
    // The first thread says which iteration is the last, before it waits for the others.
    let last = AtomicU64::new(u64::MAX);
    let work = |processor| {
        let mut arrays = Arrays::new(length);
        barrier.wait();
        let begin = Instant::now();
        let mut ends = Vec::new();
        for iteration in 0.. {
            arrays.iterate();
            if processor == 0 && begin.elapsed() >= duration {
                last.store(iteration, Ordering::Relaxed);
            }
            barrier.wait();
            ends.push(begin.elapsed());
            if iteration >= last.load(Ordering::Relaxed) {
                break;
            }
        }
        ends
    };
    let all = samples::on_each_processor(processors, work)?;
    let ends = all.first().map_or(&[][..], Vec::as_slice);
    let starts = std::iter::once(&Duration::ZERO).chain(ends);
    let samples: Vec<_> =
        starts.zip(ends).map(|(&start, &end)| Sample { end, took: end - start, amount }).collect();
    println!("{}", samples::line(&samples));
    Ok(())
}

/// A thread's arrays. Of integers, because an emulated processor computes floating point in software.
struct Arrays {
    a: Vec<u64>,
    b: Vec<u64>,
    c: Vec<u64>,
}

impl Arrays {
    fn new(length: usize) -> Self {
        // Not zeroes, which would not be written.
        Self { a: vec![1; length], b: vec![2; length], c: vec![3; length] }
    }

    /// Copies, scales, adds and triads.
    fn iterate(&mut self) {
        const FACTOR: u64 = 3;
        let Self { a, b, c } = self;
        c.copy_from_slice(a);
        black_box(&mut *c);
        for (b, c) in b.iter_mut().zip(&*c) {
            *b = FACTOR.wrapping_mul(*c);
        }
        black_box(&mut *b);
        for ((c, a), b) in c.iter_mut().zip(&*a).zip(&*b) {
            *c = a.wrapping_add(*b);
        }
        black_box(&mut *c);
        for ((a, b), c) in a.iter_mut().zip(&*b).zip(&*c) {
            *a = b.wrapping_add(FACTOR.wrapping_mul(*c));
        }
        black_box(&mut *a);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iteration_computes_what_stream_does() {
        let mut arrays = Arrays::new(2);
        arrays.iterate();
        assert_eq!((arrays.a, arrays.b, arrays.c), (vec![15; 2], vec![3; 2], vec![4; 2]));
    }
}
