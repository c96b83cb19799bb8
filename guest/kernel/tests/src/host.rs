//! The host's side of the port over which a selftest has its VM resized (`host.h` in
//! `guest/kernel/tests/programs/support`): a line in, `ok NUMBER` or `error MESSAGE` out.

use crate::{
    Monitor,
    dead_host::{DeadHost, Relief},
};
use serde_json::json;
use squeezy_protocol::LlfreeState;
use squeezy_vmm::{Grain, Vm};
use std::{
    io,
    num::ParseIntError,
    path::Path,
    str::FromStr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::{Mutex, OwnedMutexGuard},
    task::{JoinHandle, spawn_blocking},
};

/// The device that selftests resize.
const DEVICE: &str = "/machine/peripheral/vmem0";

/// How often free memory is taken out of a guest.
const TAKE_INTERVAL: Duration = Duration::from_millis(20);

/// How often it is looked whether a migration has ended.
const MIGRATION_PAUSE: Duration = Duration::from_millis(5);

/// How long after a failure to take a VM ends that is the reason.
const END_LIMIT: Duration = Duration::from_secs(1);

pub(crate) struct Host {
    pub(crate) vm: Arc<Vm>,
    pub(crate) monitor: Monitor,
    /// Where an outgoing migration goes that never ends.
    pub(crate) sink: UnixListener,
    pub(crate) sink_path: std::path::PathBuf,
    /// How often the guest has said that it starts.
    pub(crate) boots: u64,
    /// What takes free memory out of the guest.
    pub(crate) taking: Option<Taking>,
    /// What it has taken.
    pub(crate) taken: Arc<Taken>,
    /// As long as this is there, it takes nothing.
    pub(crate) rest: Option<OwnedMutexGuard<()>>,
    /// Who has died while it worked on the guest's allocator.
    pub(crate) dead: Option<DeadHost>,
    /// Who comes next, by itself.
    pub(crate) relieving: Option<JoinHandle<io::Result<()>>>,
}

/// What came of taking free memory.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) bytes: AtomicU64,
    /// Why nothing is taken any more, though the VM has not ended.
    pub(crate) failure: OnceLock<String>,
    /// Held while something is taken.
    turn: Arc<Mutex<()>>,
}

/// Takes free memory all the time, until it is dropped.
pub(crate) struct Taking(JoinHandle<()>);

impl Taking {
    fn start(vm: Arc<Vm>, sum: Arc<Taken>) -> Self {
        Self(tokio::spawn(async move {
            // Whole areas most of the time, and single pages now and then.
            for grain in [Grain::Area, Grain::Area, Grain::Page].into_iter().cycle() {
                let turn = sum.turn.lock().await;
                let taken = vm.take_all_free(grain).await;
                drop(turn);
                match taken {
                    Ok(taken) => sum.bytes.fetch_add(taken.bytes, Relaxed),
                    Err(error) => {
                        if tokio::time::timeout(END_LIMIT, vm.wait()).await.is_err() {
                            let _ = sum.failure.set(error.to_string());
                        }
                        return;
                    }
                };
                tokio::time::sleep(TAKE_INTERVAL).await;
            }
        }))
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Host {
    /// Serves requests until the port closes.
    pub(crate) async fn serve(mut self, port: UnixStream) -> io::Result<()> {
        let mut port = BufReader::new(port);
        let mut line = String::new();
        while port.read_line(&mut line).await? > 0 {
            let answer = match self.answer(line.trim()).await {
                Ok(number) => format!("ok {number}\n"),
                Err(error) => format!("error {}\n", error.to_string().replace('\n', " ")),
            };
            port.get_mut().write_all(answer.as_bytes()).await?;
            line.clear();
        }
        Ok(())
    }

    async fn answer(&mut self, line: &str) -> io::Result<u64> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["request", bytes] => {
                let bytes: u64 = number(bytes)?;
                let arguments =
                    json!({ "path": DEVICE, "property": "requested-size", "value": bytes });
                self.monitor.run("qom-set", arguments).await.map(|_| 0)
            }
            ["size"] => {
                let size = self
                    .monitor
                    .run("qom-get", json!({ "path": DEVICE, "property": "size" }))
                    .await?;
                size.as_u64().ok_or_else(|| io::Error::other(format!("{size} is not a size")))
            }
            ["resident"] => {
                let memory = self.vm.memory().await.map_err(io::Error::other)?;
                Ok(memory.device_resident.resident_bytes)
            }
            ["base-resident"] => {
                let memory = self.vm.memory().await.map_err(io::Error::other)?;
                Ok(memory.resident.resident_bytes - memory.device_resident.resident_bytes)
            }
            ["device-cpu"] => {
                let times = self.vm.cpu_times().map_err(io::Error::other)?;
                Ok(times.devices_ns)
            }
            ["busy", "1"] => self.start_migration().await,
            ["busy", "0"] => self.end_migration().await,
            ["take", address, bytes] => {
                let state = state(address, bytes)?;
                self.vm.let_take_free(state).await.map_err(io::Error::other)?;
                self.taking = Some(Taking::start(self.vm.clone(), self.taken.clone()));
                Ok(0)
            }
            ["rest", rests @ ("0" | "1")] => {
                self.rest = None;
                if rests == "1" {
                    // What has begun ends.
                    self.rest = Some(self.taken.turn.clone().lock_owned().await);
                }
                Ok(0)
            }
            ["die", address, bytes, zone, kept, in_hand] => {
                let state = state(address, bytes)?;
                let areas = (number(kept)?, number(in_hand)?);
                let region = self.monitor.region().await?;
                self.dead = Some(DeadHost::die(&self.vm, region, state, zone, areas)?);
                Ok(0)
            }
            ["take-over", address, bytes, zone, kept] => {
                let state = state(address, bytes)?;
                let kept = number(kept)?;
                let region = self.monitor.region().await?;
                self.dead = None;
                DeadHost::take_over(&self.vm, region, state, zone, kept).map(|()| 0)
            }
            ["relieve", address, bytes, zone, left, kept, disturbed] => {
                let state = state(address, bytes)?;
                let (left, kept) = (number(left)?, number(kept)?);
                let disturbed = (disturbed != "nobody").then(|| disturbed.to_owned());
                let region = self.monitor.region().await?;
                let relief = Relief { region, state, zone: zone.to_owned(), left, kept, disturbed };
                let asked = relief.asked(&self.vm)?;
                let vm = self.vm.clone();
                self.relieving = Some(spawn_blocking(move || relief.give(&vm, &asked)));
                Ok(0)
            }
            ["relieved"] => match self.relieving.take() {
                Some(relieving) => relieving.await?.map(|()| 0),
                None => Err(io::Error::other("nobody is to be relieved")),
            },
            ["kept-used"] => match &self.dead {
                Some(dead) => Ok(dead.used_areas()),
                None => Err(io::Error::other("nobody has died")),
            },
            ["boot"] => {
                self.boots += 1;
                Ok(self.boots)
            }
            _ => Err(io::Error::other(format!("what is `{line}`?"))),
        }
    }

    /// While a migration runs a virtio-mem device answers every request with BUSY.
    async fn start_migration(&mut self) -> io::Result<u64> {
        self.monitor.run("migrate-set-parameters", json!({ "max-bandwidth": 1 })).await?;
        self.monitor.run("migrate", json!({ "uri": uri(&self.sink_path) })).await?;
        // Nobody reads: once the socket is full it stays where it is.
        let (stream, _) = self.sink.accept().await?;
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(600)).await;
            drop(stream);
        });
        Ok(0)
    }

    /// QEMU ends it in a thread of its own, and begins no other one before.
    async fn end_migration(&mut self) -> io::Result<u64> {
        self.monitor.run("migrate_cancel", json!({})).await?;
        while self.monitor.run("query-migrate", json!({})).await?["status"] == "cancelling" {
            tokio::time::sleep(MIGRATION_PAUSE).await;
        }
        Ok(0)
    }
}

fn number<T>(text: &str) -> io::Result<T>
where
    T: FromStr<Err = ParseIntError>,
{
    text.parse().map_err(io::Error::other)
}

/// Where the guest says that its allocator's state is.
fn state(address: &str, bytes: &str) -> io::Result<LlfreeState> {
    Ok(LlfreeState { address: number(address)?, bytes: number(bytes)? })
}

fn uri(path: &Path) -> String {
    format!("unix:{}", path.display())
}
