//! How fast page faults, new processes and calls that allocate kernel memory are, as lines of JSON.

use clap::{Parser, ValueEnum};
use squeezy_workloads::{Mapping, Pages, mapping::PAGE_BYTES, size};
use std::{
    ffi::CString,
    fs::File,
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::{fd::AsRawFd, unix::net::UnixStream},
    process::ExitCode,
    time::{Duration, Instant},
};

/// Measures how fast the kernel serves page faults, process creation and calls that allocate memory
/// of its own, and prints one line of JSON a trial and test: {"test":T,"trial":N,"operations":O,"elapsed_ns":E,"bytes":B}.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Which tests; all when none is named.
    #[arg(value_enum)]
    tests: Vec<Test>,
    /// Memory to fault in over and over: bytes, or a number with K, M or G.
    #[arg(long, default_value = "64M", value_parser = size::parse)]
    size: usize,
    /// How long a trial of one test lasts at least, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 500)]
    duration: u64,
    /// Trials of each test; those of different tests take turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    trials: u32,
    /// For this program's own use: end at once.
    #[arg(long, hide = true)]
    end: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Test {
    /// First writes to 4 KiB pages; an operation is a page.
    FaultSmall,
    /// First writes to 2 MiB pages where they fit; an operation is 4 KiB of them.
    FaultHuge,
    /// First reads of 4 KiB pages (the zero page); an operation is a page.
    FaultRead,
    /// Writes to pages shared with a forked child (copy on write); an operation is a page.
    FaultCow,
    /// fork, exit and wait of a process with 4 MiB; an operation is a child.
    Fork,
    /// The same with an execve of this program in between.
    Exec,
    /// open and close of a directory.
    Open,
    /// poll of 256 files, the last of which is ready.
    Poll,
    /// 4 KiB sent and received over a pair of Unix sockets.
    SendUnix,
    /// 4 KiB sent and received over a TCP connection to itself.
    SendTcp,
    /// A TCP connection to itself: connect, accept and close.
    Connect,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.end {
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faultbench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let all = Test::value_variants();
    let tests = if arguments.tests.is_empty() { all } else { arguments.tests.as_slice() };
    let duration = Duration::from_millis(arguments.duration);
    for trial in 0..arguments.trials {
        for test in tests {
            let begin = Instant::now();
            let (mut operations, mut elapsed) = (0, Duration::ZERO);
            while begin.elapsed() < duration {
                let (more, time) = round(*test, arguments.size)?;
                operations += more;
                elapsed += time;
            }
            let line = serde_json::json!({
                "test": test,
                "trial": trial,
                "operations": operations,
                "elapsed_ns": elapsed.as_nanos() as u64,
                "bytes": arguments.size,
            });
            println!("{line}");
        }
    }
    Ok(())
}

/// One round of a test: operations, and the time of them alone.
fn round(test: Test, bytes: usize) -> io::Result<(usize, Duration)> {
    match test {
        Test::FaultSmall => faults(bytes, Pages::Small, |mapping| mapping.touch(1)),
        Test::FaultHuge => faults(bytes, Pages::Huge, |mapping| mapping.touch(1)),
        Test::FaultRead => faults(bytes, Pages::Small, Mapping::read),
        Test::FaultCow => copy_on_write(bytes),
        Test::Fork => children(false),
        Test::Exec => children(true),
        Test::Open => repeated(|| File::open("/").map(drop)),
        Test::Poll => polls(),
        Test::SendUnix => {
            let (sender, receiver) = UnixStream::pair()?;
            transfers(sender, receiver)
        }
        Test::SendTcp => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let sender = TcpStream::connect(listener.local_addr()?)?;
            transfers(sender, listener.accept()?.0)
        }
        Test::Connect => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let address = listener.local_addr()?;
            repeated(|| {
                let _sender = TcpStream::connect(address)?;
                listener.accept().map(drop)
            })
        }
    }
}

/// A call, often.
fn repeated(mut call: impl FnMut() -> io::Result<()>) -> io::Result<(usize, Duration)> {
    const CALLS: usize = 200;
    let begin = Instant::now();
    for _ in 0..CALLS {
        call()?;
    }
    Ok((CALLS, begin.elapsed()))
}

fn transfers(mut sender: impl Write, mut receiver: impl Read) -> io::Result<(usize, Duration)> {
    let mut bytes = [1; 4096];
    repeated(|| {
        sender.write_all(&bytes)?;
        receiver.read_exact(&mut bytes)
    })
}

/// Those that are not ready have the kernel take a place in a queue each.
fn polls() -> io::Result<(usize, Duration)> {
    const FILES: usize = 256;
    let (reader, writer) = io::pipe()?;
    let wanted = |fd, events| libc::pollfd { fd, events, revents: 0 };
    let mut files = vec![wanted(reader.as_raw_fd(), libc::POLLIN); FILES - 1];
    files.push(wanted(writer.as_raw_fd(), libc::POLLOUT));
    repeated(|| {
        // SAFETY: `files` has as many entries, ours to be written to.
        match unsafe { libc::poll(files.as_mut_ptr(), FILES as libc::nfds_t, -1) } {
            1 => Ok(()),
            -1 => Err(io::Error::last_os_error()),
            ready => Err(io::Error::other(format!("{ready} files are ready, not one"))),
        }
    })
}

fn faults(bytes: usize, pages: Pages, touch: impl Fn(&Mapping)) -> io::Result<(usize, Duration)> {
    let mapping = Mapping::new(bytes, pages)?;
    let begin = Instant::now();
    touch(&mapping);
    Ok((mapping.bytes() / PAGE_BYTES, begin.elapsed()))
}

fn copy_on_write(bytes: usize) -> io::Result<(usize, Duration)> {
    let mapping = Mapping::new(bytes, Pages::Small)?;
    mapping.touch(1);
    // The child holds the pages, so that the parent's writes copy them, until the pipe closes.
    let (child, pipe) = holder()?;
    let begin = Instant::now();
    mapping.touch(2);
    let elapsed = begin.elapsed();
    drop(pipe);
    reap(child)?;
    Ok((mapping.bytes() / PAGE_BYTES, elapsed))
}

/// A child that does nothing until the returned end of a pipe is dropped.
fn holder() -> io::Result<(libc::pid_t, io::PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    // SAFETY: this program has one thread, and the child does system calls only.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: closes the child's own copy of a file, reads into a byte of its own stack
            // and ends.
            unsafe {
                libc::close(writer.as_raw_fd());
                let mut byte = 0u8;
                libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1);
                libc::_exit(0)
            }
        }
        child => Ok((child, writer)),
    }
}

/// Children one after the other.
fn children(execute: bool) -> io::Result<(usize, Duration)> {
    const CHILDREN: usize = 20;
    /// As large as a small interpreter.
    const PARENT_BYTES: usize = 4 << 20;
    let mapping = Mapping::new(PARENT_BYTES, Pages::Small)?;
    mapping.touch(1);
    let program = CString::new("/proc/self/exe").expect("no zero byte");
    let option = CString::new("--end").expect("no zero byte");
    let arguments = [program.as_ptr(), option.as_ptr(), std::ptr::null()];
    let environment = [std::ptr::null()];
    let begin = Instant::now();
    for _ in 0..CHILDREN {
        // SAFETY: this program has one thread; the child does system calls only, on strings that
        // were made before.
        let child = unsafe { libc::fork() };
        match child {
            -1 => return Err(io::Error::last_os_error()),
            // SAFETY: as above.
            0 => unsafe {
                if execute {
                    libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                    libc::_exit(1)
                }
                libc::_exit(0)
            },
            child => reap(child)?,
        }
    }
    Ok((CHILDREN, begin.elapsed()))
}

fn reap(child: libc::pid_t) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: `status` is ours to be written to.
    if unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    if status != 0 {
        return Err(io::Error::other(format!("a child ended with wait status {status}")));
    }
    Ok(())
}
