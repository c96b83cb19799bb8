//! Reads of files of the host that volumes are made of.
//!
//! One may never end, as of a file on an NFS server that is away, and then neither does its thread, of which a server has
//! so many for all that it does. A source that does not answer has one, however often it is tried, and all of them
//! together leave enough for other things.

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
    time::timeout,
};

/// How many reads there are at a time. tokio has 512 threads for what waits.
const AT_A_TIME: usize = 64;

/// The reads of one VM's server.
pub(super) struct Reads {
    free: Arc<Semaphore>,
    /// Those that were given up, by their sources.
    given_up: Mutex<HashMap<PathBuf, AbortHandle>>,
}

impl Default for Reads {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(AT_A_TIME)), given_up: Mutex::default() }
    }
}

impl Reads {
    /// Reads a source, which may take as long as [`HOST_LIMIT`], and as long until there is a thread for it.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        source: &Path,
        read: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if self.is_read_in_vain(source) {
            return Err(takes_long());
        }
        let one = timeout(HOST_LIMIT, self.free.clone().acquire_owned());
        let one = one.await.map_err(|_| takes_long())?.expect("it is never closed");
        let path = source.to_owned();
        let reading = spawn_blocking(move || {
            let _one = one;
            read(&path)
        });
        let thread = reading.abort_handle();
        match timeout(HOST_LIMIT, reading).await {
            Ok(done) => done.map_err(io::Error::other)?,
            Err(_) => {
                lock(&self.given_up).insert(source.to_owned(), thread);
                Err(takes_long())
            }
        }
    }

    /// Whether a thread still waits for this source, though nobody waits for the thread any more.
    fn is_read_in_vain(&self, source: &Path) -> bool {
        let mut given_up = lock(&self.given_up);
        given_up.retain(|_, thread| !thread.is_finished());
        given_up.contains_key(source)
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
        while reads.is_read_in_vain(source) {
            yield_now().await;
        }
        assert_eq!(reads.read(source, |_| Ok(2)).await.unwrap(), 2);
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
