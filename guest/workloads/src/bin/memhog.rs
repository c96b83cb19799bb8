//! Takes an amount of anonymous memory and keeps it.

use clap::Parser;
use squeezy_workloads::{Children, Mapping, Pages, size};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::ExitCode,
    time::{Duration, Instant},
};

/// How long the first thread may take to end.
const FIRST_THREAD_END: Duration = Duration::from_millis(200);

/// Takes SIZE bytes of anonymous memory, which is private unless said otherwise, writes to every page, and keeps them until it is
/// killed. When it holds them it prints a line of JSON: {"ready":true,"bytes":B,"touch_ns":T}.
#[derive(Clone, Copy, Parser)]
#[command(version)]
struct Arguments {
    /// How much to take: bytes, or a number with K, M or G.
    #[arg(value_parser = size::parse)]
    size: usize,
    /// Which pages to ask the kernel for.
    #[arg(long, value_enum, default_value = "small")]
    pages: Pages,
    /// When ready, give back all pages but the first of every so many, and go on with those.
    #[arg(long, value_name = "COUNT")]
    keep_every: Option<usize>,
    /// Write to every page again, again and again with pauses of so many milliseconds.
    #[arg(long, value_name = "MS")]
    retouch: Option<u64>,
    /// Check first that every byte is zero, as the kernel promises, and before each write that
    /// what was written before is still there; print a line and exit with status 3 if not.
    #[arg(long)]
    check: bool,
    /// When ready, answer every HTTP request on this TCP port of 127.0.0.1 with that line.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Give everything back and end after so many milliseconds.
    #[arg(long, value_name = "MS")]
    exit_after: Option<u64>,
    /// Take memory that children share.
    #[arg(long)]
    shared: bool,
    /// When ready, start children, again and again.
    #[arg(long, value_enum)]
    children: Option<Children>,
    /// Do all this on another thread, when the first one has ended.
    #[arg(long)]
    without_first_thread: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.without_first_thread {
        std::thread::spawn(move || {
            std::thread::sleep(FIRST_THREAD_END);
            std::process::exit(status(&arguments).into());
        });
        // SAFETY: it ends this thread, of which nobody else has anything.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    status(&arguments).into()
}

/// Does all, and returns the status to end with.
fn status(arguments: &Arguments) -> u8 {
    run(arguments).unwrap_or_else(|error| {
        eprintln!("memhog: {error}");
        1
    })
}

fn run(arguments: &Arguments) -> std::io::Result<u8> {
    let begin = Instant::now();
    let map = if arguments.shared { Mapping::shared } else { Mapping::new };
    let mut mapping = map(arguments.size, arguments.pages)?;
    if arguments.check
        && let Some(page) = mapping.first_page_not_zero()
    {
        return Ok(wrong(page, "is not zero at first"));
    }
    mapping.touch(1);
    if let Some(step) = arguments.keep_every {
        mapping.thin(step)?;
    }
    let line = serde_json::json!({
        "ready": true,
        "bytes": mapping.bytes(),
        "touch_ns": begin.elapsed().as_nanos() as u64,
    })
    .to_string();
    println!("{line}");

    if let Some(port) = arguments.port {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes away early is no reason to end.
                let _ = answer(stream, &line);
            }
        });
    }
    let end = arguments.exit_after.map(|ms| begin + Duration::from_millis(ms));
    if let Some(children) = arguments.children {
        while end.is_none_or(|end| Instant::now() < end) {
            children.start()?;
        }
        return Ok(0);
    }
    let mut round = 1;
    loop {
        let pause = arguments.retouch.map_or(Duration::from_secs(3600), Duration::from_millis);
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        std::thread::sleep(left.map_or(pause, |left| left.min(pause)));
        if left.is_some_and(|left| left <= pause) {
            return Ok(0);
        }
        if arguments.check
            && let Some(page) = mapping.first_wrong_page(round)
        {
            return Ok(wrong(page, "has lost what was written"));
        }
        round += 1;
        mapping.touch(round);
    }
}

fn wrong(page: usize, what: &str) -> u8 {
    println!("memhog: page {page} {what}");
    3
}

fn answer(mut stream: TcpStream, line: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut request = Vec::new();
    let mut chunk = [0; 512];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < 16 << 10 {
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            count => request.extend_from_slice(&chunk[..count]),
        }
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{line}",
        line.len()
    )
}
