//! The latest output of an instance, up to a limit.

use rustix::{
    fs::{MemfdFlags, memfd_create},
    pipe::{PipeFlags, pipe_with},
};
use std::{
    cell::Cell,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
    rc::Rc,
    time::Duration,
};
use tokio::{net::unix::pipe::Receiver, sync::watch};

/// How much output is kept per instance, in bytes. It is in a memfd, not in the agent's heap, whose size must
/// not depend on how much instances write.
const CAPACITY: usize = 256 << 10;
const _: () = assert!(CAPACITY <= squeezy_protocol::MAX_BODY_BYTES);
/// How long to continue reading after the last process has ended: the pipe may still hold 64 KiB.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads and keeps what an instance writes.
#[derive(Debug)]
pub struct Log {
    ring: Rc<Ring>,
    closed: watch::Receiver<bool>,
}

impl Log {
    /// Creates a log, and the pipe for the instance's standard output and error.
    pub fn start() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        let receiver = Receiver::from_owned_fd(reader)?;
        let ring = Rc::new(Ring::new()?);
        let (closing, closed) = watch::channel(false);
        let written = Rc::clone(&ring);
        tokio::task::spawn_local(async move {
            if let Err(error) = copy(&receiver, &written).await {
                crate::console!("reading an instance's output: {error}");
            }
            closing.send_replace(true);
        });
        Ok((Self { ring, closed }, writer))
    }

    /// Waits until everything that was written has been read.
    pub async fn drained(&self) {
        let mut closed = self.closed.clone();
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, closed.wait_for(|closed| *closed)).await;
    }

    /// The output from byte `from` on, as far as it is kept, and the offset after its last byte.
    pub fn read(&self, from: u64) -> io::Result<(Vec<u8>, u64)> {
        self.ring.read(from)
    }
}

async fn copy(from: &Receiver, to: &Ring) -> io::Result<()> {
    loop {
        from.readable().await?;
        // Not held across the wait, so that a silent instance costs no buffer.
        let mut buffer = [0; 4096];
        match from.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.append(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        // An instance that writes without end must not starve the others.
        tokio::task::yield_now().await;
    }
}

#[derive(Debug)]
struct Ring {
    file: File,
    /// Total bytes written; the next one goes to this position modulo the capacity.
    written: Cell<u64>,
}

impl Ring {
    fn new() -> io::Result<Self> {
        let file = memfd_create("instance-log", MemfdFlags::CLOEXEC)?.into();
        Ok(Self { file, written: Cell::new(0) })
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let at = (self.written.get() % CAPACITY as u64) as usize;
        let (first, second) = bytes.split_at(bytes.len().min(CAPACITY - at));
        self.file.write_all_at(first, at as u64)?;
        self.file.write_all_at(second, 0)?;
        self.written.set(self.written.get() + bytes.len() as u64);
        Ok(())
    }

    fn read(&self, from: u64) -> io::Result<(Vec<u8>, u64)> {
        let end = self.written.get();
        let from = from.clamp(end.saturating_sub(CAPACITY as u64), end);
        let length = (end - from) as usize;
        let mut bytes = vec![0; length];
        let at = (from % CAPACITY as u64) as usize;
        let (first, second) = bytes.split_at_mut(length.min(CAPACITY - at));
        self.file.read_exact_at(first, at as u64)?;
        self.file.read_exact_at(second, 0)?;
        Ok((bytes, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keeps_the_latest(
            chunks in prop::collection::vec((any::<u8>(), 1usize..4096), 0..200),
            from in 0usize..1 << 20,
        ) {
            let ring = Ring::new().unwrap();
            let mut all = Vec::new();
            for (byte, count) in chunks {
                let chunk = vec![byte; count];
                ring.append(&chunk).unwrap();
                all.extend_from_slice(&chunk);
            }
            let kept = all.len().saturating_sub(CAPACITY);
            let end = all.len() as u64;
            prop_assert_eq!(ring.read(0).unwrap(), (all[kept..].to_vec(), end));
            let rest = all[from.clamp(kept, all.len())..].to_vec();
            prop_assert_eq!(ring.read(from as u64).unwrap(), (rest, end));
        }
    }
}
