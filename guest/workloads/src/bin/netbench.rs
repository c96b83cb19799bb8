//! How fast a server is reached.

use clap::Parser;
use serde::Serialize;
use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddrV4, TcpStream},
    process::ExitCode,
    time::{Duration, Instant},
};

/// Measures connections to a server that does what the first byte of a connection says: echo each byte, count all
/// bytes until they end and answer with 8 bytes, the number, or send without end. Prints medians and rates as JSON:
/// `{"connect_ns":N,"round_trip_ns":N,"sent_bytes_per_second":N,"received_bytes_per_second":N}`.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The server's address and port.
    server: SocketAddrV4,
    /// How many connections to open for their median.
    #[arg(long, value_name = "N", default_value_t = 40)]
    connections: usize,
    /// How many bytes to have echoed for their median.
    #[arg(long, value_name = "N", default_value_t = 400)]
    round_trips: usize,
    /// How long to send and to receive, each in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 3000)]
    duration: u64,
}

/// What the server is to do.
const ECHO: &[u8] = b"e";
const COUNT: &[u8] = b"c";
const SEND: &[u8] = b"s";

/// Bytes of a read or a write.
const BLOCK: usize = 64 << 10;

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Result {
    connect_ns: u64,
    round_trip_ns: u64,
    sent_bytes_per_second: f64,
    received_bytes_per_second: f64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(result) => {
            println!("{}", serde_json::to_string(&result).expect("numbers serialize"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("netbench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<Result> {
    let Arguments { server, connections, round_trips, duration } = *arguments;
    let duration = Duration::from_millis(duration);
    Ok(Result {
        connect_ns: median(connections, || connect(server).map(drop))?,
        round_trip_ns: {
            let mut stream = connect(server)?;
            stream.write_all(ECHO)?;
            median(round_trips, || {
                stream.write_all(b"x")?;
                stream.read_exact(&mut [0])
            })?
        },
        sent_bytes_per_second: send(connect(server)?, duration)?,
        received_bytes_per_second: receive(connect(server)?, duration)?,
    })
}

fn connect(server: SocketAddrV4) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server.into(), PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn median(count: usize, mut what: impl FnMut() -> io::Result<()>) -> io::Result<u64> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        what()?;
        times.push(begin.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    times.get(count / 2).copied().ok_or_else(|| io::Error::other("nothing was to be measured"))
}

/// What the server has got of what was sent in this time, by the time until it says so.
fn send(mut stream: TcpStream, duration: Duration) -> io::Result<f64> {
    let block = vec![0; BLOCK];
    stream.write_all(COUNT)?;
    let begin = Instant::now();
    while begin.elapsed() < duration {
        stream.write_all(&block)?;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut count = [0; 8];
    stream.read_exact(&mut count)?;
    Ok(u64::from_le_bytes(count) as f64 / begin.elapsed().as_secs_f64())
}

fn receive(mut stream: TcpStream, duration: Duration) -> io::Result<f64> {
    let mut block = vec![0; BLOCK];
    stream.write_all(SEND)?;
    let begin = Instant::now();
    let mut received = 0;
    while begin.elapsed() < duration {
        match stream.read(&mut block)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => received += length,
        }
    }
    Ok(received as f64 / begin.elapsed().as_secs_f64())
}
