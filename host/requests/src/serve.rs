//! Answers servers of VMs, one request for a connection.

use crate::{api::Api, change, cluster::Cluster};
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
/// Most connections at a time for pods of one namespace, so that its tenant does not have all of them.
const MAX_CONNECTIONS_OF_NAMESPACE: usize = 32;

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

/// How many connections there are for pods of each namespace.
#[derive(Default)]
struct Namespaces(Mutex<HashMap<String, usize>>);

/// A connection for a pod of this namespace.
struct OfNamespace<'a> {
    namespaces: &'a Namespaces,
    name: &'a str,
}

impl Namespaces {
    /// One more for a pod of this one, unless there are as many as there may be.
    fn enter<'a>(&'a self, name: &'a str) -> Option<OfNamespace<'a>> {
        let mut all = self.all();
        let connections = all.entry(name.to_owned()).or_default();
        if *connections >= MAX_CONNECTIONS_OF_NAMESPACE {
            return None;
        }
        *connections += 1;
        Some(OfNamespace { namespaces: self, name })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OfNamespace<'_> {
    fn drop(&mut self) {
        let mut all = self.namespaces.all();
        if let Some(connections) = all.get_mut(self.name) {
            *connections -= 1;
        }
        all.retain(|_, connections| *connections > 0);
    }
}

/// Answers whoever connects, for ever; returns why it cannot.
pub fn serve(listener: &UnixListener, api: &Api) -> io::Error {
    let (turns, namespaces) = (Turns::default(), Namespaces::default());
    let connections = AtomicUsize::new(0);
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
            let (turns, namespaces, connections) = (&turns, &namespaces, &connections);
            scope.spawn(move || {
                if let Err(error) = answer(&stream, api, turns, namespaces) {
                    tracing::warn!("a request was not answered: {error}");
                }
                connections.fetch_sub(1, Ordering::Relaxed);
            });
        }
    })
}

fn answer(
    mut stream: &UnixStream,
    cluster: &impl Cluster,
    turns: &Turns,
    namespaces: &Namespaces,
) -> io::Result<()> {
    let until = Instant::now() + LIMIT;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_MESSAGE_BYTES as u64)).read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    let namespace = request.pod.namespace.as_str();
    let answer = match namespaces.enter(namespace) {
        Some(_connection) => turns.take(request.pod.uid.as_str(), || {
            // Whoever has gone may have asked for something else since.
            let goes_on = || is_there(stream);
            goes_on().then(|| change::answer(&request, cluster, until, goes_on))
        }),
        // Nobody has been asked, which is nothing that would let it run.
        None => Some(Answer::Refused {
            why: format!(
                "{MAX_CONNECTIONS_OF_NAMESPACE} pods of namespace {namespace} are asked for already"
            ),
        }),
    };
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
    use crate::{
        cluster::{Denied, Problem},
        pod::Pod,
    };
    use serde_json::Value;
    use squeezy_requests::PodName;
    use std::sync::Barrier;

    /// A cluster without pods.
    struct Empty;

    impl Cluster for Empty {
        fn pod(&self, _: &PodName, _: Instant) -> Result<Pod, Problem> {
            Err(Problem::Gone)
        }

        fn resize(&self, _: &PodName, _: &Value, _: Instant) -> Result<(), Denied> {
            unreachable!("nothing is changed that is not there")
        }
    }

    /// What is answered to a server that asks for a pod of this namespace.
    fn answered(namespace: &str, namespaces: &Namespaces) -> Answer {
        let name = |text: &str| text.parse().unwrap();
        let pod = PodName { namespace: name(namespace), name: name("web"), uid: name("1") };
        let (here, mut there) = UnixStream::pair().unwrap();
        let mut line = serde_json::to_string(&Request { pod, occupied_bytes: None }).unwrap();
        line.push('\n');
        there.write_all(line.as_bytes()).unwrap();
        answer(&here, &Empty, &Turns::default(), namespaces).unwrap();
        drop(here);
        serde_json::from_reader(there).unwrap()
    }

    #[test]
    fn a_namespace_has_a_part_of_the_connections_and_is_told_so() {
        let namespaces = Namespaces::default();
        let all = 0..MAX_CONNECTIONS_OF_NAMESPACE;
        let mut connections: Vec<_> =
            all.map(|_| namespaces.enter("busy").expect("there is one more")).collect();
        let too_many = answered("busy", &namespaces);
        assert!(matches!(too_many, Answer::Refused { why } if why.contains("namespace busy")));
        assert_eq!(answered("other", &namespaces), Answer::Done);
        drop(connections.pop());
        assert_eq!(answered("busy", &namespaces), Answer::Done);
        drop(connections);
        assert!(namespaces.all().is_empty(), "nobody is left");
    }

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
