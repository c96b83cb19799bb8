//! Answers servers of VMs, one request for a connection.

use crate::{api::Api, change};
use rustix::{
    fs::{Mode, chmod},
    net::{RecvFlags, recv},
};
use squeezy_requests::{Answer, MAX_MESSAGE_BYTES, Request};
use std::{
    collections::HashMap,
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How long a request may take. A server waits a little longer.
const LIMIT: Duration = Duration::from_millis(4500);
/// Most connections at a time: as many pods as a node has by default, and some more.
const MAX_CONNECTIONS: usize = 256;

/// Listens there, for the owner of the file only. What a predecessor has left there goes.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let listener = UnixListener::bind(path)?;
    chmod(path, Mode::RUSR | Mode::WUSR)?;
    Ok(listener)
}

/// Whose turn it is, for each pod.
#[derive(Default)]
struct Turns(Mutex<HashMap<String, Arc<Mutex<()>>>>);

impl Turns {
    /// Does something for a pod when nobody else does.
    fn take<R>(&self, uid: &str, act: impl FnOnce() -> R) -> R {
        let turn = self.all().entry(uid.to_owned()).or_default().clone();
        let done = {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            act()
        };
        drop(turn);
        self.all().retain(|_, turn| Arc::strong_count(turn) > 1);
        done
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Mutex<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers whoever connects, for ever; returns why it cannot.
pub fn serve(listener: &UnixListener, api: &Api) -> io::Error {
    let (turns, connections) = (Turns::default(), AtomicUsize::new(0));
    thread::scope(|scope| {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return error,
            };
            if connections.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
                // Whoever is turned away asks again.
                connections.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (turns, connections) = (&turns, &connections);
            scope.spawn(move || {
                if let Err(error) = answer(&stream, api, turns) {
                    tracing::warn!("a request was not answered: {error}");
                }
                connections.fetch_sub(1, Ordering::Relaxed);
            });
        }
    })
}

fn answer(mut stream: &UnixStream, api: &Api, turns: &Turns) -> io::Result<()> {
    let until = Instant::now() + LIMIT;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_MESSAGE_BYTES as u64)).read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    let answer = turns.take(request.pod.uid.as_str(), || {
        // Whoever has gone may have asked for something else since.
        let goes_on = || is_there(stream);
        goes_on().then(|| change::answer(&request, api, until, goes_on))
    });
    let Some(answer) = answer else { return Ok(()) };
    match &answer {
        Answer::Done => {}
        Answer::Refused { why } => tracing::info!("{request}: refused: {why}"),
        Answer::Failed { why } => tracing::warn!("{request}: {why}"),
    }
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    stream.write_all(text.as_bytes())
}

fn is_there(stream: &UnixStream) -> bool {
    let looked = recv(stream, &mut [0; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    !matches!(looked, Ok((_, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn a_pod_has_one_turn_at_a_time_and_others_do_not_wait_for_it() {
        let (turns, inside) = (Turns::default(), AtomicUsize::new(0));
        let both = Barrier::new(2);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    turns.take("one", || {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        thread::sleep(Duration::from_millis(2));
                        inside.fetch_sub(1, Ordering::SeqCst);
                    });
                });
            }
            // They would wait for each other for ever.
            scope.spawn(|| turns.take("other", || both.wait()));
            scope.spawn(|| turns.take("third", || both.wait()));
        });
        assert!(turns.all().is_empty(), "nobody is left");
    }

    #[test]
    fn whoever_has_gone_is_not_there() {
        let (here, there) = UnixStream::pair().unwrap();
        assert!(is_there(&here));
        drop(there);
        assert!(!is_there(&here));
    }
}
