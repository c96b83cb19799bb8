//! The most memory that a VM may have on the host: what it needs besides its pods, and for each pod what that may have.
//!
//! It is raised before the guest has the memory of one more pod, and lowered after that is the host's again.

use super::{Cgroup, Group};
use crate::error::{Error, Result};
use std::{io, sync::Arc, time::Duration};
use tokio::{sync::Mutex, task::spawn_blocking, time::timeout};

/// How long it may take to raise it. That is a write which waits for nothing, but maybe for one that lowers it.
const RAISE_LIMIT: Duration = Duration::from_secs(10);
/// How far above what is in use it stays when it is lowered, in bytes, but for clean page cache. Linux takes back memory,
/// and with version 2 kills, until no more is in use than it is told, even if it is told of more meanwhile. So it is told
/// of no less than what takes it nothing but to forget page cache. Of that this leaves what is in use just now, programs
/// above all, and it is room for what is taken meanwhile.
const SLACK_BYTES: u64 = 256 << 20;

/// The most memory that a VM may have.
#[derive(Debug)]
pub struct Bound {
    /// Nothing where memory cannot be bounded.
    group: Option<Arc<Group>>,
    besides_bytes: u64,
    pod_bytes: u64,
    /// For how many pods a VM has room.
    most_pods: u64,
    inside: Arc<Mutex<Inside>>,
}

#[derive(Debug, Default)]
struct Inside {
    /// How many pods have memory, with what was never given back.
    pods: u64,
    /// What the kernel was told; nothing before the first pod, and where it does not bound memory any more.
    bytes: Option<u64>,
    /// Whether the log says the latter.
    is_lost: bool,
}

impl Inside {
    /// Keeps in mind what the kernel was told, or that there is nobody to tell any more: whoever runs the node has taken
    /// the controller away, and no pod is to be refused for it.
    ///
    /// # Errors
    /// It refuses to be told.
    fn keep(&mut self, told: io::Result<u64>) -> io::Result<()> {
        match told {
            Ok(bytes) => {
                self.bytes = Some(bytes);
                self.is_lost = false;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.bytes = None;
                if !std::mem::replace(&mut self.is_lost, true) {
                    tracing::warn!("the memory of the VM has no bound any more: {error}");
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Bound {
    /// A bound on the memory of this control group, if there is one: so much, in bytes, besides pods, and for each of
    /// the pods, of which the VM has room for so many.
    pub fn new(
        cgroup: Option<&Cgroup>,
        besides_bytes: u64,
        pod_bytes: u64,
        most_pods: u16,
    ) -> Self {
        Self {
            group: cgroup.and_then(|cgroup| cgroup.memory.clone()),
            besides_bytes,
            pod_bytes,
            most_pods: most_pods.into(),
            inside: Arc::default(),
        }
    }

    /// Lets the VM have the memory of one more pod.
    ///
    /// # Errors
    /// It may not, as far as is known: the kernel has refused it, or does not answer.
    pub async fn raise(&self) -> Result<()> {
        let Some(group) = self.group.clone() else { return Ok(()) };
        let raise = async {
            let mut inside = self.inside.clone().lock_owned().await;
            let bytes = self.bytes_with(inside.pods + 1);
            // Locked by whoever writes, also if nobody waits for him any more: what is written last is what is known.
            let raise = move || {
                let raised = if inside.bytes.is_some_and(|told| told >= bytes) {
                    Ok(())
                } else {
                    inside.keep(group.bound_memory(bytes).map(|()| bytes))
                };
                raised.map(|()| inside)
            };
            let raised = spawn_blocking(raise).await.map_err(io::Error::other)?;
            // Whoever was refused meanwhile has no pod that would count.
            raised.map(|mut inside| inside.pods += 1)
        };
        let late = |_| Err(io::Error::other(format!("it takes longer than {RAISE_LIMIT:?}")));
        timeout(RAISE_LIMIT, raise).await.unwrap_or_else(late).map_err(|error| {
            Error::failed(format_args!(
                "the bound on the memory of the VM cannot be raised for one more pod: {error}"
            ))
        })
    }

    /// The memory of a pod is the host's again. Nobody waits for what comes of that: where the bound cannot be lowered
    /// now, or not as far, it is when the next pod gives back its own.
    pub fn lower(self: &Arc<Self>) {
        let bound = self.clone();
        tokio::spawn(async move {
            if let Err(error) = bound.lower_now().await {
                tracing::warn!(
                    "the bound on the memory of the VM is higher than it need be: {error}"
                );
            }
        });
    }

    async fn lower_now(&self) -> io::Result<()> {
        let Some(group) = self.group.clone() else { return Ok(()) };
        let mut inside = self.inside.clone().lock_owned().await;
        inside.pods = inside.pods.saturating_sub(1);
        let least = self.bytes_with(inside.pods);
        let Some(told) = inside.bytes.filter(|told| *told > least) else { return Ok(()) };
        let lower = move || {
            let lowered = group.kept_memory_bytes().and_then(|kept| {
                let bytes = least.max(kept.saturating_add(SLACK_BYTES));
                if bytes >= told {
                    return Ok(told);
                }
                group.bound_memory(bytes).map(|()| bytes)
            });
            inside.keep(lowered)
        };
        spawn_blocking(lower).await.map_err(io::Error::other)?
    }

    fn bytes_with(&self, pods: u64) -> u64 {
        let pods_bytes = self.pod_bytes.saturating_mul(pods.min(self.most_pods));
        self.besides_bytes.saturating_add(pods_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::{
        Version,
        tests::{Host, enter},
    };
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::fs;

    const BESIDES: u64 = 1000 << 20;
    const POD: u64 = 100 << 20;
    const MOST_PODS: u16 = 3;

    /// A bound on what is in this host's only control group, and the names of its files.
    fn bound(host: &Host, kind: &str) -> (Arc<Bound>, [&'static str; 2]) {
        let mounts =
            host.mounted("/", "memory", kind, "memory") + &host.mounted("/", "cpu", kind, "cpu");
        let cgroup = enter(&mounts, "2:memory:/\n1:cpu:/\n0::/\n", "kubepods").unwrap();
        let files = match cgroup.memory.as_ref().unwrap().version {
            Version::One => [
                "memory/kubepods/squeezy-ab-0-7/memory.limit_in_bytes",
                "memory/kubepods/squeezy-ab-0-7/memory.usage_in_bytes",
            ],
            Version::Two => [
                "cpu/kubepods/squeezy-ab-0-7/memory.max",
                "cpu/kubepods/squeezy-ab-0-7/memory.current",
            ],
        };
        (Arc::new(Bound::new(Some(&cgroup), BESIDES, POD, MOST_PODS)), files)
    }

    fn host() -> Host {
        Host::with(&["cpu/kubepods", "memory/kubepods"])
    }

    /// So much is in use, in bytes.
    fn uses(host: &Host, file: &str, bytes: u64) {
        uses_with_cache(host, file, bytes, 0);
    }

    /// The same, of which so much is clean page cache.
    fn uses_with_cache(host: &Host, file: &str, bytes: u64, cache: u64) {
        let file = host.path(file);
        fs::write(&file, format!("{bytes}\n")).unwrap();
        let stat = format!("total_cache {cache}\nfile {cache}\n");
        fs::write(file.with_file_name("memory.stat"), stat).unwrap();
    }

    #[tokio::test]
    async fn it_is_what_the_pods_may_have_and_what_the_vm_needs_besides() {
        for (kind, none) in [("cgroup", "-1"), ("cgroup2", "max")] {
            let host = host();
            let (bound, [most, used]) = bound(&host, kind);
            assert_eq!(host.text(most), none, "before the first pod");
            uses(&host, used, 600 << 20);
            bound.raise().await.unwrap();
            assert_eq!(host.text(most), (BESIDES + POD).to_string(), "{kind}");
            bound.raise().await.unwrap();
            assert_eq!(host.text(most), (BESIDES + 2 * POD).to_string(), "{kind}");
            bound.lower_now().await.unwrap();
            assert_eq!(host.text(most), (BESIDES + POD).to_string(), "{kind}");
        }
    }

    #[tokio::test]
    async fn what_is_in_use_stays_below_it_until_the_next_pod_gives_back_its_memory() {
        let host = host();
        let (bound, [most, used]) = bound(&host, "cgroup");
        for _ in 0..MOST_PODS {
            bound.raise().await.unwrap();
        }
        uses(&host, used, BESIDES + 2 * POD);
        bound.lower_now().await.unwrap();
        assert_eq!(host.text(most), (BESIDES + 3 * POD).to_string(), "not raised by it");
        let bytes = BESIDES - SLACK_BYTES + POD + POD / 2;
        uses(&host, used, bytes);
        bound.lower_now().await.unwrap();
        assert_eq!(host.text(most), (bytes + SLACK_BYTES).to_string());
        bound.raise().await.unwrap();
        assert_eq!(host.text(most), (BESIDES + 2 * POD).to_string());
        bound.lower_now().await.unwrap();
        assert_eq!(host.text(most), (bytes + SLACK_BYTES).to_string());
        uses(&host, used, 0);
        bound.lower_now().await.unwrap();
        assert_eq!(host.text(most), BESIDES.to_string());
    }

    #[tokio::test]
    async fn page_cache_does_not_keep_it_high() {
        for kind in ["cgroup", "cgroup2"] {
            let host = host();
            let (bound, [most, used]) = bound(&host, kind);
            for _ in 0..2 {
                bound.raise().await.unwrap();
            }
            uses_with_cache(&host, used, BESIDES + 2 * POD, SLACK_BYTES + POD);
            bound.lower_now().await.unwrap();
            assert_eq!(host.text(most), (BESIDES + POD).to_string(), "{kind}");
        }
    }

    #[tokio::test]
    async fn it_is_not_raised_beyond_a_vm_that_is_full() {
        let host = host();
        let (bound, [most, _]) = bound(&host, "cgroup");
        // Of the first two, one has never given back its memory.
        for _ in 0..=MOST_PODS {
            bound.raise().await.unwrap();
        }
        assert_eq!(host.text(most), (BESIDES + 3 * POD).to_string());
    }

    #[tokio::test]
    async fn what_could_not_be_raised_was_not_raised() {
        let host = host();
        let (bound, [most, used]) = bound(&host, "cgroup");
        bound.raise().await.unwrap();
        // Nobody can write to a directory.
        let refuse = || {
            fs::remove_file(host.path(most)).unwrap();
            fs::create_dir(host.path(most)).unwrap();
        };
        refuse();
        let error = bound.raise().await.unwrap_err();
        assert!(error.message.contains("for one more pod"), "{error}");
        let accept = || {
            fs::remove_dir(host.path(most)).unwrap();
            fs::write(host.path(most), "").unwrap();
        };
        accept();
        bound.raise().await.unwrap();
        assert_eq!(host.text(most), (BESIDES + 2 * POD).to_string());
        // The same when it is lowered: the next one does it.
        uses(&host, used, 0);
        refuse();
        bound.lower_now().await.unwrap_err();
        accept();
        bound.lower_now().await.unwrap();
        assert_eq!(host.text(most), BESIDES.to_string());
    }

    #[tokio::test]
    async fn no_pod_is_refused_because_memory_cannot_be_bounded_any_more() {
        let host = host();
        let (bound, [most, used]) = bound(&host, "cgroup");
        uses(&host, used, 0);
        bound.raise().await.unwrap();
        fs::remove_file(host.path(most)).unwrap();
        for _ in 0..2 {
            bound.raise().await.unwrap();
            assert!(!host.path(most).exists());
        }
        bound.lower_now().await.unwrap();
        assert!(!host.path(most).exists());
        // With all that there are, when it can be again.
        fs::write(host.path(most), "max").unwrap();
        bound.raise().await.unwrap();
        assert_eq!(host.text(most), (BESIDES + 3 * POD).to_string());
        fs::remove_file(host.path(most)).unwrap();
        bound.lower_now().await.unwrap();
        assert!(!host.path(most).exists());
    }

    #[tokio::test]
    async fn a_pod_that_was_refused_because_the_kernel_is_slow_does_not_count() {
        let host = host();
        let (bound, [most, used]) = bound(&host, "cgroup");
        bound.raise().await.unwrap();
        let path = host.path(most);
        fs::remove_file(&path).unwrap();
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        // Nobody waits for it any more once it writes, which takes until somebody reads.
        timeout(Duration::ZERO, bound.raise()).await.unwrap_err();
        let reader = path.clone();
        let read = spawn_blocking(move || fs::read_to_string(reader));
        assert_eq!(read.await.unwrap().unwrap(), (BESIDES + 2 * POD).to_string());
        drop(bound.inside.lock().await);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        uses(&host, used, 0);
        bound.lower_now().await.unwrap();
        assert_eq!(host.text(most), BESIDES.to_string());
    }

    #[tokio::test]
    async fn where_memory_cannot_be_bounded_every_pod_has_its_own() {
        let host = Host::with(&["cpu/kubepods"]);
        let cgroup = enter(&host.mounted("/", "cpu", "cgroup", "cpu"), "1:cpu:/\n", "kubepods");
        let cgroup = cgroup.unwrap();
        for cgroup in [None, Some(&cgroup)] {
            let bound = Bound::new(cgroup, BESIDES, POD, MOST_PODS);
            bound.raise().await.unwrap();
            bound.lower_now().await.unwrap();
        }
        assert!(!host.path("cpu/kubepods/squeezy-ab-0-7/memory.limit_in_bytes").exists());
    }
}
