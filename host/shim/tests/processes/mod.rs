//! Processes of the host as containers: without any isolation but the root, and without memory of their own.

use futures_util::future::BoxFuture;
use squeezy_protocol::TerminalSize;
use squeezy_shim::{
    Id, Name,
    error::{Error, ErrorKind, Result},
    spec::{self, Limits, Pod},
    vm::{Added, Container, Ended, Input, Listed, Output, Signal, Usage, Use, Vm},
};
use std::{
    collections::HashMap,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::Stdio,
    sync::{Mutex, MutexGuard},
};
use tokio::{
    io::BufReader,
    process::{Child, ChildStdin, Command},
    sync::watch,
};

#[derive(Default)]
pub struct Processes {
    containers: Mutex<HashMap<Id, Container>>,
    running: Mutex<HashMap<Name, Process>>,
}

struct Process {
    pid: u32,
    stdin: Option<ChildStdin>,
    ended: watch::Sender<Option<Ended>>,
}

impl Processes {
    fn running(&self) -> MutexGuard<'_, HashMap<Name, Process>> {
        self.running.lock().unwrap()
    }

    /// The root of a container: one layer has everything.
    fn root(&self, container: &Id) -> PathBuf {
        let containers = self.containers.lock().unwrap();
        containers[container].layers.last().expect("there is a layer").clone()
    }

    fn run(&self, name: &Name, process: &spec::Process, has_input: bool) -> Result<Output> {
        if process.terminal.is_some() {
            return Err(Error::new(ErrorKind::Unsupported, "these have no terminals"));
        }
        let mut child = Command::new("/usr/sbin/chroot")
            .arg(self.root(&name.task))
            .args(&process.arguments)
            .env_clear()
            .envs(&process.environment)
            .stdin(if has_input { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Error::new(ErrorKind::Failed, error))?;
        let running = Process {
            pid: child.id().expect("it has not been waited for"),
            stdin: child.stdin.take(),
            ended: watch::channel(None).0,
        };
        let output = Output {
            stdout: Box::new(BufReader::new(child.stdout.take().expect("it is piped"))),
            stderr: Box::new(BufReader::new(child.stderr.take().expect("it is piped"))),
        };
        tokio::spawn(wait(child, running.ended.clone()));
        self.running().insert(name.clone(), running);
        Ok(output)
    }

    /// Kills what was added to a container, as a VM does when it has ended.
    fn kill_added(&self, container: &Id) {
        let running = self.running();
        let added =
            running.iter().filter(|(name, _)| name.added.is_some() && name.task == *container);
        for (_, process) in added {
            let pid = rustix::process::Pid::from_raw(process.pid as i32).expect("it is a process");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

async fn wait(mut child: Child, ended: watch::Sender<Option<Ended>>) {
    let status = child.wait().await.expect("it can be waited for");
    let number =
        status.code().unwrap_or_else(|| 128 + status.signal().expect("it has one of them"));
    let status = u8::try_from(number).expect("a status is a byte");
    ended.send_replace(Some(Ended { status, out_of_memory: false }));
}

fn done<T: Send + 'static>(result: T) -> BoxFuture<'static, T> {
    Box::pin(async { result })
}

impl Vm for Processes {
    fn create_pod<'a>(&'a self, _: &'a Id, _: &'a Pod) -> BoxFuture<'a, Result<()>> {
        done(Ok(()))
    }

    fn end_pod<'a>(&'a self, _: &'a Id) -> BoxFuture<'a, Result<()>> {
        done(Ok(()))
    }

    fn delete_pod<'a>(&'a self, _: &'a Id) -> BoxFuture<'a, Result<()>> {
        done(Ok(()))
    }

    fn create<'a>(&'a self, id: &'a Id, container: &'a Container) -> BoxFuture<'a, Result<()>> {
        self.containers.lock().unwrap().insert(id.clone(), container.clone());
        done(Ok(()))
    }

    fn begin_use<'a>(&'a self, _: &'a Id) -> BoxFuture<'a, Result<Use>> {
        Box::pin(async { Ok(Box::new(()) as Use) })
    }

    fn start<'a>(&'a self, id: &'a Id, _: Use) -> BoxFuture<'a, Result<Output>> {
        Box::pin(async {
            let container = self.containers.lock().unwrap()[id].clone();
            self.run(&id.clone().into(), &container.spec.process, container.has_input)
        })
    }

    fn add<'a>(
        &'a self,
        name: &'a Name,
        added: &'a Added,
        _: Use,
    ) -> BoxFuture<'a, Result<Output>> {
        Box::pin(async { self.run(name, &added.process, added.has_input) })
    }

    fn input<'a>(&'a self, name: &'a Name, mut from: Input) -> BoxFuture<'a, Result<()>> {
        let stdin = self.running().get_mut(name).and_then(|process| process.stdin.take());
        Box::pin(async move {
            // Nobody may read it any more.
            let _ = tokio::io::copy(&mut from, &mut stdin.expect("it has an input")).await;
            Ok(())
        })
    }

    fn wait<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Ended>> {
        let mut ended = self.running()[name].ended.subscribe();
        Box::pin(async move {
            let ended = *ended.wait_for(Option::is_some).await.expect("it is there");
            if name.added.is_none() {
                self.kill_added(&name.task);
            }
            self.running().remove(name);
            Ok(ended.expect("it has ended"))
        })
    }

    fn signal<'a>(&'a self, name: &'a Name, signal: Signal, _: bool) -> BoxFuture<'a, Result<()>> {
        let pid = self.running().get(name).map(|process| process.pid);
        Box::pin(async move {
            let Some(pid) = pid else { return Ok(()) };
            Command::new("kill")
                .arg(format!("-{}", signal.number()))
                .arg(pid.to_string())
                .status()
                .await
                .expect("kill");
            Ok(())
        })
    }

    fn pause<'a>(&'a self, _: &'a Id) -> BoxFuture<'a, Result<()>> {
        done(Err(Error::new(ErrorKind::Unimplemented, "these are not paused")))
    }

    fn resume<'a>(&'a self, _: &'a Id) -> BoxFuture<'a, Result<()>> {
        done(Err(Error::new(ErrorKind::Unimplemented, "these are not paused")))
    }

    fn resize<'a>(&'a self, name: &'a Name, _: TerminalSize) -> BoxFuture<'a, Result<()>> {
        done(Err(Error::new(ErrorKind::Unimplemented, format_args!("{name} has no terminal"))))
    }

    fn delete<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        self.containers.lock().unwrap().remove(id);
        done(Ok(()))
    }

    fn processes<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Vec<Listed>>> {
        let running = self.running();
        let of = running.iter().filter(|(name, _)| name.task == *id);
        let listed =
            of.map(|(name, process)| Listed { pid: process.pid, added: name.added.clone() });
        done(Ok(listed.collect()))
    }

    fn usage<'a>(&'a self, _: &'a Id) -> BoxFuture<'a, Result<Usage>> {
        done(Ok(Usage {
            memory_bytes: 12_345_678,
            memory_limit_bytes: 128 << 20,
            cpu_us: 1000,
            processes: 1,
            ..Usage::default()
        }))
    }

    fn update<'a>(&'a self, _: &'a Id, _: Limits) -> BoxFuture<'a, Result<()>> {
        done(Ok(()))
    }

    fn ended(&self) -> BoxFuture<'_, String> {
        Box::pin(std::future::pending())
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
