use super::*;
use crate::error::ErrorKind;
use rustix::fs::{CWD, Mode, mkfifoat};
use std::{fs::File, io::Read, os::unix::fs::OpenOptionsExt, thread};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, BufReader, duplex, repeat},
    task::JoinHandle,
    time::timeout,
};

/// How long the guest may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The deadline of a process that has just ended.
fn just_ended() -> Deadline {
    watch::channel(Some(Instant::now() + LIMIT)).1
}

fn fifo(directory: &TempDir) -> String {
    let path = directory.path().join("stdout");
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Reads to the end in a thread, as containerd does, which begins when somebody has opened the other end.
fn reader(path: &str) -> thread::JoinHandle<Vec<u8>> {
    let path = path.to_owned();
    thread::spawn(move || {
        let mut text = Vec::new();
        File::open(path).unwrap().read_to_end(&mut text).unwrap();
        text
    })
}

/// Copies what a process that has ended already has written.
fn copied(text: Vec<u8>, to: Option<Fifo>) -> JoinHandle<()> {
    let deadline = just_ended();
    tokio::spawn(async move { copy(text.as_slice(), to, deadline).await })
}

#[tokio::test]
async fn a_short_process_loses_no_output_though_the_reader_comes_late() {
    for _ in 0..20 {
        let directory = TempDir::new().unwrap();
        let path = fifo(&directory);
        let late = {
            let path = path.clone();
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                reader(&path).join().unwrap()
            })
        };
        let opened = Fifo::open(&path).await.unwrap();
        copied(b"hello\n".to_vec(), opened).await.unwrap();
        assert_eq!(late.join().unwrap(), b"hello\n");
    }
}

#[tokio::test]
async fn the_reader_sees_the_end_as_soon_as_everything_is_written() {
    let directory = TempDir::new().unwrap();
    let path = fifo(&directory);
    let reader = reader(&path);
    let text: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let opened = Fifo::open(&path).await.unwrap();
    copied(text.clone(), opened).await.unwrap();
    let read = tokio::task::spawn_blocking(|| reader.join().unwrap());
    assert!(
        timeout(Duration::from_secs(10), read).await.expect("the end is seen").unwrap() == text
    );
}

#[tokio::test]
async fn output_goes_on_after_containerd_has_restarted() {
    let directory = TempDir::new().unwrap();
    let path = fifo(&directory);
    let open = || File::options().read(true).custom_flags(libc_nonblock()).open(&path).unwrap();
    let before = open();
    let opened = Fifo::open(&path).await.unwrap();
    let (mut process, output) = duplex(64);
    let (tell, deadline) = watch::channel(None);
    let copying = tokio::spawn(copy(BufReader::new(output), opened, deadline));
    drop(before);
    process.write_all(b"nobody reads this yet").await.unwrap();
    let after = reader(&path);
    drop(process);
    tell.send_replace(Some(Instant::now() + LIMIT));
    copying.await.unwrap();
    let read = tokio::task::spawn_blocking(|| after.join().unwrap()).await.unwrap();
    assert_eq!(read, b"nobody reads this yet");
}

fn libc_nonblock() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits() as i32
}

#[tokio::test(start_paused = true)]
async fn nobody_who_reads_nothing_holds_up_the_end() {
    let directory = TempDir::new().unwrap();
    let path = fifo(&directory);
    let _silent = File::options().read(true).custom_flags(libc_nonblock()).open(&path).unwrap();
    let opened = Fifo::open(&path).await.unwrap();
    let begin = Instant::now();
    copied(vec![b'x'; 1 << 20], opened).await.unwrap();
    assert!(
        begin.elapsed() >= STALL_LIMIT && begin.elapsed() < 2 * STALL_LIMIT,
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn while_the_process_runs_a_slow_reader_is_waited_for() {
    let directory = TempDir::new().unwrap();
    let path = fifo(&directory);
    let _silent = File::options().read(true).custom_flags(libc_nonblock()).open(&path).unwrap();
    let opened = Fifo::open(&path).await.unwrap();
    let (_tell, deadline) = watch::channel(None);
    let text = vec![b'x'; 1 << 20];
    let copying = copy(text.as_slice(), opened, deadline);
    assert!(timeout(Duration::from_secs(3600), copying).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_is_late_is_waited_for_until_the_deadline() {
    for (late, expected) in [(LIMIT / 2, &b"late"[..]), (LIMIT * 2, b"")] {
        let directory = TempDir::new().unwrap();
        let path = fifo(&directory);
        let mut reader =
            File::options().read(true).custom_flags(libc_nonblock()).open(&path).unwrap();
        let opened = Fifo::open(&path).await.unwrap();
        let (mut guest, output) = duplex(64);
        let copying = tokio::spawn(copy(BufReader::new(output), opened, just_ended()));
        sleep(late).await;
        let _ = guest.write_all(b"late").await;
        drop(guest);
        copying.await.unwrap();
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        assert_eq!(text, expected, "{late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_has_something_now_and_then_does_not_hold_up_the_end() {
    let (mut guest, output) = duplex(64);
    tokio::spawn(async move {
        while guest.write_all(b"x").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    });
    let begin = Instant::now();
    timeout(10 * LIMIT, copy(BufReader::new(output), None, just_ended())).await.expect("it ends");
    assert!(begin.elapsed() >= LIMIT, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_guest_that_always_has_something_does_not_hold_up_the_end() {
    let deadline = watch::channel(Some(Instant::now())).1;
    let copying = tokio::spawn(copy(BufReader::new(repeat(b'x')), None, deadline));
    timeout(LIMIT, copying).await.expect("it ends").unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_has_come_in_time_can_be_read_though_the_rest_is_given_up() {
    let directory = TempDir::new().unwrap();
    let path = fifo(&directory);
    let mut reader = File::options().read(true).custom_flags(libc_nonblock()).open(&path).unwrap();
    let opened = Fifo::open(&path).await.unwrap();
    let (mut guest, output) = duplex(64);
    guest.write_all(b"in time").await.unwrap();
    let copying = tokio::spawn(copy(BufReader::new(output), opened, just_ended()));
    sleep(LIMIT + STALL_LIMIT / 2).await;
    assert!(!copying.is_finished(), "it is not read yet");
    let mut text = [0; 64];
    let length = reader.read(&mut text).unwrap();
    assert_eq!(&text[..length], b"in time");
    copying.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fifo_that_nobody_opens_is_an_error_in_time() {
    let directory = TempDir::new().unwrap();
    let begin = Instant::now();
    let error = Fifo::open(&fifo(&directory)).await.unwrap_err();
    assert!(error.message.contains("nobody reads from it within 10s"), "{error}");
    assert!(begin.elapsed() < 2 * OPEN_LIMIT);
}

#[tokio::test]
async fn what_is_no_fifo_is_refused() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(Fifo::open("").await.unwrap().is_none());
    for name in ["binary:///bin/logger", "file:///tmp/log", "stdout"] {
        assert_eq!(Fifo::open(name).await.unwrap_err().kind, ErrorKind::Unsupported);
    }
    for name in [file.to_str().unwrap(), "/nowhere/at/all"] {
        assert!(Fifo::open(name).await.unwrap_err().message.contains("cannot open"), "{name}");
    }
}

#[tokio::test]
async fn input_ends_when_containerd_says_so_and_not_with_its_first_writer() {
    let directory = TempDir::new().unwrap();
    let path = fifo(&directory);
    let InputFifo { mut reader, keep } = InputFifo::open(&path).unwrap().unwrap();
    let mut text = Vec::new();
    let reading = tokio::spawn(async move {
        reader.read_to_end(&mut text).await.unwrap();
        text
    });
    for part in ["one ", "two"] {
        let path = path.clone();
        tokio::task::spawn_blocking(move || std::fs::write(path, part).unwrap()).await.unwrap();
        sleep(Duration::from_millis(50)).await;
        assert!(!reading.is_finished());
    }
    drop(keep);
    assert_eq!(timeout(Duration::from_secs(10), reading).await.unwrap().unwrap(), b"one two");
}

#[tokio::test]
async fn input_that_was_ended_before_anybody_read_is_there_to_its_end() {
    let directory = TempDir::new().unwrap();
    let path = fifo(&directory);
    let InputFifo { mut reader, keep } = InputFifo::open(&path).unwrap().unwrap();
    std::fs::write(&path, "early").unwrap();
    drop(keep);
    let mut text = Vec::new();
    timeout(Duration::from_secs(10), reader.read_to_end(&mut text)).await.unwrap().unwrap();
    assert_eq!(text, b"early");
}

#[tokio::test]
async fn what_is_no_input_is_refused() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(InputFifo::open("").unwrap().is_none());
    assert_eq!(InputFifo::open("stdin").unwrap_err().kind, ErrorKind::Unsupported);
    for name in [file.to_str().unwrap(), "/nowhere/at/all"] {
        assert!(InputFifo::open(name).unwrap_err().message.contains("cannot open"), "{name}");
    }
}
