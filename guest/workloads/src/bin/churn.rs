//! A long life of processes that come and go, and how many huge pages there are afterwards.

use clap::Parser;
use squeezy_workloads::{Mapping, Pages, mapping::HUGE_PAGE_BYTES, mapping::PAGE_BYTES, size};
use std::{
    fs,
    io::{self, PipeReader, PipeWriter, Read, Write},
    process::ExitCode,
    time::{Duration, Instant},
};

/// Starts processes that take anonymous memory, files in memory and buffers of pipes, of random
/// sizes and for a random number of rounds, until so much memory is free as is to be kept. Then only
/// those that live long are left. Asks for three quarters of what is free then, 2 MiB at a time, and
/// prints how much of that the kernel has in huge pages, and how much if it may move others' pages for
/// them, as a line of JSON: {"asked_bytes":A,"huge_bytes":H,"compacted_bytes":C,"at_once":T,"compacted":T}.
/// T is for how many 2 MiB one fault was enough, how long these took, and the same of all others:
/// {"huge_count":N,"huge_ns":E,"small_count":N,"small_ns":E}. The kernel has to be booted with
/// transparent_hugepage=always.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// How many rounds.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// How much memory is to stay free: bytes, or a number with K, M or G.
    #[arg(long, default_value = "192M", value_parser = size::parse)]
    keep_free: usize,
    /// Where the random numbers begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The part of the processes that live long, in percent.
const LONG_LIVED: u64 = 12;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("churn: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let mut random = Random(arguments.seed);
    let mut living: Vec<Life> = Vec::new();
    for round in 0..arguments.rounds {
        living.retain_mut(|life| !life.ends_at(round));
        while field("/proc/meminfo", "MemFree:")? > arguments.keep_free {
            living.push(Life::start(round, &mut random)?);
        }
    }
    living.retain_mut(|life| !life.ends_at(arguments.rounds + 3));
    let free = field("/proc/meminfo", "MemFree:")?;
    let asked = free - free / 4;
    let (huge_bytes, at_once) = ask(asked, Pages::Default)?;
    let (compacted_bytes, compacted) = ask(asked, Pages::Huge)?;
    let line = serde_json::json!({
        "asked_bytes": asked,
        "huge_bytes": huge_bytes,
        "compacted_bytes": compacted_bytes,
        "at_once": at_once,
        "compacted": compacted,
    });
    println!("{line}");
    Ok(())
}

/// SplitMix64: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A process; it ends when this is dropped.
struct Life {
    process: libc::pid_t,
    last_round: u32,
    /// It ends when this closes.
    _pipe: PipeWriter,
}

impl Life {
    fn start(round: u32, random: &mut Random) -> io::Result<Self> {
        let is_long = random.below(100) < LONG_LIVED;
        let rounds = if is_long { 10 + random.below(40) } else { 1 + random.below(2) };
        let holding = Holding::random(random);
        let (mut ready, told) = io::pipe()?;
        let (end, pipe) = io::pipe()?;
        // SAFETY: this program has one thread.
        let process = unsafe { libc::fork() };
        match process {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                drop((ready, pipe));
                let code = i32::from(holding.hold(told, end).is_err());
                // SAFETY: ends this process at once; what it holds needs no tidying.
                unsafe { libc::_exit(code) }
            }
            _ => {}
        }
        drop((told, end));
        let life = Self { process, last_round: round + rounds as u32, _pipe: pipe };
        let mut byte = [0];
        if ready.read(&mut byte)? == 0 {
            return Err(io::Error::other("a process ended before it had its memory"));
        }
        Ok(life)
    }

    fn ends_at(&self, round: u32) -> bool {
        self.last_round < round
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // SAFETY: a child of this process that nobody has waited for.
        unsafe {
            libc::kill(self.process, libc::SIGKILL);
            libc::waitpid(self.process, std::ptr::null_mut(), 0);
        }
    }
}

/// What a process holds.
struct Holding {
    anonymous_bytes: usize,
    file_bytes: usize,
    pipes: usize,
}

impl Holding {
    fn random(random: &mut Random) -> Self {
        Self {
            anonymous_bytes: (random.below(16 * 256) as usize + 64) * PAGE_BYTES,
            file_bytes: random.below(2 * 256) as usize * PAGE_BYTES,
            pipes: random.below(8) as usize,
        }
    }

    /// Takes it, says so, and keeps it until the other end of `end` closes.
    fn hold(&self, mut told: PipeWriter, mut end: PipeReader) -> io::Result<()> {
        const BUFFER_BYTES: usize = 16 * PAGE_BYTES;
        let mapping = Mapping::new(self.anonymous_bytes, Pages::Small)?;
        let mut file = memory_file()?;
        let chunk = vec![1; PAGE_BYTES];
        let mut pipes = Vec::new();
        // Taken in turns, so that they lie side by side.
        let turns = self.pipes.max(1);
        for _ in 0..self.pipes {
            let (reader, mut writer) = io::pipe()?;
            for _ in 0..BUFFER_BYTES / PAGE_BYTES {
                writer.write_all(&chunk)?;
            }
            pipes.push((reader, writer));
            for _ in 0..self.file_bytes / PAGE_BYTES / turns {
                file.write_all(&chunk)?;
            }
        }
        mapping.touch(1);
        told.write_all(&[1])?;
        drop(told);
        end.read_to_end(&mut Vec::new()).map(drop)
    }
}

fn memory_file() -> io::Result<fs::File> {
    use std::os::fd::FromRawFd;
    // SAFETY: the name is a string that ends in zero; a descriptor that is returned is ours.
    unsafe {
        match libc::memfd_create(c"churn".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(fs::File::from_raw_fd(descriptor)),
        }
    }
}

/// The value of a line "NAME N kB", in bytes.
fn field(path: &str, name: &str) -> io::Result<usize> {
    let text = fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    number.map(|kib| kib << 10).ok_or_else(|| io::Error::other(format!("{path} has no {name}")))
}

/// How long it took to write to 2 MiB for the first time.
#[derive(Default, serde::Serialize)]
struct Faults {
    /// With one fault, which has made it a huge page.
    huge_count: u64,
    huge_ns: u64,
    /// With more.
    small_count: u64,
    small_ns: u64,
}

impl Faults {
    fn add(&mut self, faults: i64, took: Duration) {
        let (count, sum) = match faults {
            1 => (&mut self.huge_count, &mut self.huge_ns),
            _ => (&mut self.small_count, &mut self.small_ns),
        };
        *count += 1;
        *sum += took.as_nanos() as u64;
    }
}

/// How much of so much memory the kernel has in huge pages, and how long it took to have all of it.
fn ask(bytes: usize, pages: Pages) -> io::Result<(usize, Faults)> {
    let mut faults = Faults::default();
    let mut mappings = Vec::new();
    for _ in 0..bytes / HUGE_PAGE_BYTES {
        let mapping = Mapping::new(HUGE_PAGE_BYTES, pages)?;
        let (before, begin) = (faults_so_far()?, Instant::now());
        mapping.touch(1);
        let took = begin.elapsed();
        faults.add(faults_so_far()? - before, took);
        mappings.push(mapping);
    }
    Ok((field("/proc/self/smaps_rollup", "AnonHugePages:")?, faults))
}

/// Faults of this process that needed nothing from a disk.
fn faults_so_far() -> io::Result<i64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: it writes all of `usage` unless it fails.
    unsafe {
        match libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) {
            0 => Ok(usage.assume_init().ru_minflt),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
