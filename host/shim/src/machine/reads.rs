//! Reads of files of the host that volumes are made of.
//!
//! One may never end, as of a file on an NFS server that is away, and then neither does its thread, of which a server has
//! so many for all that it does. A source that does not answer has two at most, however often it is tried, and by however
//! many at once; and all of them together leave enough for other things.

use super::volumes::{HOST_LIMIT, takes_long};
use crate::mutex::lock;
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use tokio::{
    sync::Semaphore,
    task::{AbortHandle, spawn_blocking},
    time::{Instant, timeout},
};

/// How many reads there are at a time. tokio has 512 threads for what waits.
const AT_A_TIME: usize = 64;
/// How many there are of one source. Others wait, as they may come to their ends.
const OF_ONE_SOURCE: usize = 2;

/// The reads of one VM's server.
pub(super) struct Reads {
    free: Arc<Semaphore>,
    /// Those that are read, or that somebody waits to read.
    sources: Mutex<HashMap<PathBuf, Source>>,
}

impl Default for Reads {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(AT_A_TIME)), sources: Mutex::default() }
    }
}

/// The reads of one source.
struct Source {
    /// Whoever reads it, or waits for his turn, has it, too.
    turns: Arc<Semaphore>,
    /// The threads, and until when each may take.
    threads: Vec<(AbortHandle, Instant)>,
}

impl Default for Source {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(OF_ONE_SOURCE)), threads: Vec::new() }
    }
}

impl Source {
    /// Whether a thread still waits for it that nobody waits for any more.
    fn is_read_in_vain(&mut self) -> bool {
        self.threads.retain(|(thread, _)| !thread.is_finished());
        let now = Instant::now();
        self.threads.iter().any(|&(_, until)| until <= now)
    }
}

impl Reads {
    /// Reads a source, which may take as long as [`HOST_LIMIT`], and as long until there is a thread for it.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        source: &Path,
        read: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let turns = self.with(source, |source| source.turns.clone())?;
        let both = async {
            let turn = turns.acquire_owned().await.expect("it is never closed");
            (turn, self.free.clone().acquire_owned().await.expect("it is never closed"))
        };
        let both = timeout(HOST_LIMIT, both).await.map_err(|_| takes_long())?;
        let path = source.to_owned();
        let reading = self.with(source, |source| {
            let reading = spawn_blocking(move || {
                let _both = both;
                read(&path)
            });
            // Also if whoever waits for it goes away.
            source.threads.push((reading.abort_handle(), Instant::now() + HOST_LIMIT));
            reading
        })?;
        timeout(HOST_LIMIT, reading).await.map_err(|_| takes_long())?.map_err(io::Error::other)?
    }

    /// Does something with a source, unless it is read in vain.
    fn with<T>(&self, source: &Path, work: impl FnOnce(&mut Source) -> T) -> io::Result<T> {
        let mut sources = lock(&self.sources);
        sources.retain(|_, source| Arc::strong_count(&source.turns) > 1);
        let source = sources.entry(source.to_owned()).or_default();
        if source.is_read_in_vain() { Err(takes_long()) } else { Ok(work(source)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use std::{
        pin::pin,
        sync::mpsc::{Sender, channel},
    };
    use tokio::{select, task::yield_now, time::advance};

    /// A read without an end, until the sender is gone.
    fn endless() -> (Sender<()>, impl FnOnce(&Path) -> io::Result<()> + Send + 'static) {
        let (answers, waits) = channel();
        let read = move |_: &Path| {
            let _ = waits.recv();
            Ok(())
        };
        (answers, read)
    }

    /// Waits for something while time passes.
    async fn in_the_end<T>(work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            select! {
                biased;
                done = &mut work => return done,
                () = advance(HOST_LIMIT) => {}
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_does_not_answer_has_one_thread_and_is_read_again_when_it_does() {
        let (reads, source) = (Reads::default(), Path::new("/away"));
        let (answers, read) = endless();
        let given_up = in_the_end(reads.read(source, read)).await;
        assert_eq!(given_up.unwrap_err().kind(), io::ErrorKind::TimedOut);
        for _ in 0..2 {
            let again = reads.read(source, |_| -> io::Result<()> { panic!("it has two") }).await;
            assert_eq!(again.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(reads.read(Path::new("/other"), |_| Ok(1)).await.unwrap(), 1);
        drop(answers);
        while reads.with(source, |_| ()).is_err() {
            yield_now().await;
        }
        assert_eq!(reads.read(source, |_| Ok(2)).await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_does_not_answer_leaves_threads_for_others_that_are_read_at_once() {
        let (reads, source) = (Reads::default(), Path::new("/away"));
        let (answers, endless): (Vec<_>, Vec<_>) = (0..AT_A_TIME).map(|_| endless()).unzip();
        let mut all = pin!(join_all(endless.into_iter().map(|read| reads.read(source, read))));
        select! {
            biased;
            _ = &mut all => panic!("they have ended"),
            () = yield_now() => {}
        }
        assert_eq!(reads.free.available_permits(), AT_A_TIME - OF_ONE_SOURCE);
        select! {
            biased;
            _ = &mut all => panic!("they have ended"),
            other = reads.read(Path::new("/other"), |_| Ok(1)) => assert_eq!(other.unwrap(), 1),
        }
        assert!(in_the_end(all).await.iter().all(Result::is_err));
        drop(answers);
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_nobody_waits_for_any_more_counts() {
        let (reads, source) = (Reads::default(), Path::new("/away"));
        let (answers, read) = endless();
        select! {
            biased;
            _ = reads.read(source, read) => panic!("it has ended"),
            () = yield_now() => {}
        }
        advance(HOST_LIMIT).await;
        let again = reads.read(source, |_| -> io::Result<()> { panic!("it has two") }).await;
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(answers);
    }

    #[tokio::test(start_paused = true)]
    async fn sources_that_do_not_answer_leave_threads_for_other_things() {
        let reads = Reads::default();
        let (answers, endless): (Vec<_>, Vec<_>) = (0..AT_A_TIME).map(|_| endless()).unzip();
        let sources: Vec<PathBuf> =
            (0..AT_A_TIME).map(|number| number.to_string().into()).collect();
        let all = sources.iter().zip(endless).map(|(source, read)| reads.read(source, read));
        let given_up = in_the_end(join_all(all)).await;
        assert!(given_up.iter().all(Result::is_err));
        let one_more = Path::new("one more");
        let refused = in_the_end(reads.read(one_more, |_| Ok(()))).await;
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(spawn_blocking(|| 1).await.unwrap(), 1);
        drop(answers);
        reads.read(one_more, |_| Ok(())).await.unwrap();
    }
}
