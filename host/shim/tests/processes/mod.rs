//! Processes of the host as containers: without any isolation but the root, and without memory of their own.

use futures_util::future::BoxFuture;
use squeezy_shim::{
    Id,
    error::{Error, Result},
    spec::Pod,
    vm::{Container, Ended, Limits, Output, Signal, Usage, Vm},
};
use std::{
    collections::HashMap,
    os::unix::process::ExitStatusExt,
    process::Stdio,
    sync::{Mutex, MutexGuard},
};
use tokio::{
    process::{Child, Command},
    sync::watch,
};

#[derive(Default)]
pub struct Processes {
    containers: Mutex<HashMap<Id, Process>>,
}

struct Process {
    container: Container,
    pid: Option<u32>,
    ended: watch::Sender<Option<Ended>>,
}

impl Processes {
    fn containers(&self) -> MutexGuard<'_, HashMap<Id, Process>> {
        self.containers.lock().unwrap()
    }

    fn start_process(&self, id: &Id) -> std::io::Result<Output> {
        let mut containers = self.containers();
        let process = containers.get_mut(id).expect("it was created");
        let container = &process.container;
        // One layer has everything.
        let mut child = Command::new("/usr/sbin/chroot")
            .arg(container.layers.last().expect("there is a layer"))
            .args(&container.process.arguments)
            .env_clear()
            .envs(&container.process.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        process.pid = child.id();
        let output = Output {
            stdout: Box::new(child.stdout.take().expect("it is piped")),
            stderr: Box::new(child.stderr.take().expect("it is piped")),
        };
        tokio::spawn(wait(child, process.ended.clone()));
        Ok(output)
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

    fn delete_pod<'a>(&'a self, _: &'a Id) -> BoxFuture<'a, Result<()>> {
        done(Ok(()))
    }

    fn create<'a>(&'a self, id: &'a Id, container: &'a Container) -> BoxFuture<'a, Result<()>> {
        let process =
            Process { container: container.clone(), pid: None, ended: watch::channel(None).0 };
        self.containers().insert(id.clone(), process);
        done(Ok(()))
    }

    fn start<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Output>> {
        Box::pin(async {
            self.start_process(id)
                .map_err(|error| Error::new(squeezy_shim::error::ErrorKind::Failed, error))
        })
    }

    fn wait<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Ended>> {
        let mut ended = self.containers()[id].ended.subscribe();
        Box::pin(async move {
            Ok(ended.wait_for(Option::is_some).await.expect("it is there").expect("it has ended"))
        })
    }

    fn signal<'a>(&'a self, id: &'a Id, signal: Signal, _: bool) -> BoxFuture<'a, Result<()>> {
        let pid = self.containers()[id].pid.expect("it was started");
        Box::pin(async move {
            Command::new("kill")
                .arg(format!("-{}", signal.number()))
                .arg(pid.to_string())
                .status()
                .await
                .expect("kill");
            Ok(())
        })
    }

    fn delete<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        self.containers().remove(id);
        done(Ok(()))
    }

    fn usage<'a>(&'a self, _: &'a Id) -> BoxFuture<'a, Result<Usage>> {
        done(Ok(Usage {
            memory_bytes: 12_345_678,
            memory_limit_bytes: 128 << 20,
            cpu_us: 1000,
            processes: 1,
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
