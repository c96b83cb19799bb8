//! A VM in which a C project is compiled, and how much host memory it has over time.

mod over_time;
mod reclaim;
mod watch;

pub(crate) use over_time::over_time;
pub(crate) use reclaim::{LEGEND, PERIOD, Reclaim, SHORT_PERIOD};
pub(crate) use watch::{Footprint, watch};

use super::{
    memhog_vm::{id, instance},
    prepare::prepare,
    program_vm::ProgramVm,
};
use crate::{
    error::{BenchError, Result},
    harness::Session,
    record::{Guest, Recorded},
};
use squeezy_protocol::{ImageNumber, InstanceState};
use squeezy_vmm::Vm;
use std::{collections::BTreeMap, time::Duration};

/// The image with the compiler and the project, by name.
const IMAGE: &str = "compile";
/// Builds the image, in a checkout.
const BUILD_SCRIPT: &str = "bench/src/rigs/compile_vm/build.sh";
/// The job's number among the VM's instances.
const JOB: u16 = 0;
/// Memory of the VM.
const VM_BYTES: u64 = 1 << 30;
/// How long compiling may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(1800);
/// Interval of looks at what the job has said.
const PAUSE: Duration = Duration::from_millis(100);

/// Removes what [`compile`] has made.
pub(crate) const CLEAN: &str = "rm -rf /tmp/out /tmp/messages";

/// A script that compiles libbpf and bpftool into this many directories, one after the other, with as many compilers at
/// a time as two processors and 1 GiB bear. What debuggers and the compiler's own steps want is kept: some 56 MiB in
/// each directory, in memory like all files there.
pub(crate) fn compile(directories: u32) -> String {
    let one = |number| {
        format!(
            "mkdir -p /tmp/out/{number} && make -s -j8 -C /function/tools/bpf/bpftool OUTPUT=/tmp/out/{number}/ \
             EXTRA_CFLAGS='-g3 -O0 -w -save-temps=obj' bootstrap >/tmp/messages 2>&1 \
             || {{ tail -5 /tmp/messages; exit 1; }}"
        )
    };
    (0..directories).map(one).collect::<Vec<_>>().join("; ")
}

/// A VM with one job in it.
pub(crate) struct CompileVm(ProgramVm);

impl CompileVm {
    /// Boots a VM whose memory is reclaimed like this. Builds its image first if it is missing.
    pub(crate) async fn start<F: Recorded>(session: &Session<F>, reclaim: Reclaim) -> Result<Self> {
        let image = session.files.image(IMAGE);
        prepare(session.files.path(), [image.clone()], BUILD_SCRIPT, &session.progress).await?;
        let started = ProgramVm::start(session, reclaim.kernel(), |config| {
            config.base_bytes = VM_BYTES;
            config.images = vec![image];
            reclaim.configure(config);
        });
        Ok(Self(started.await?))
    }

    pub(crate) fn vm(&self) -> &Vm {
        self.0.vm()
    }

    pub(crate) fn guest(&self) -> &Guest {
        self.0.guest()
    }

    /// Starts a shell with this script.
    pub(crate) async fn begin(&self, script: &str) -> Result {
        let command = ["/bin/sh", "-c", script].map(str::to_owned);
        let mut spec = instance(JOB, command.to_vec())?;
        spec.image = Some(ImageNumber(0));
        spec.working_directory = "/tmp".to_owned();
        spec.environment = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        self.vm().agent()?.start(&spec).await?;
        Ok(())
    }

    /// Waits until the script has printed a line of this one word.
    pub(crate) async fn said(&self, word: &str, limit: Duration) -> Result {
        let fail =
            |reason: String| BenchError::Workload { program: "compiling".to_owned(), reason };
        let job = &id(JOB)?;
        let agent = self.vm().agent()?;
        let wait = async {
            loop {
                let log = agent.log(job).await?;
                if log.lines().any(|line| line == word) {
                    return Ok(());
                }
                if let InstanceState::Ended(reason) = agent.instance(job).await?.state {
                    let log = log.trim().replace('\n', "; ");
                    return Err(fail(format!("it ended ({reason:?}): {log}")));
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let late = || fail(format!("it took longer than {} s", limit.as_secs()));
        tokio::time::timeout(limit, wait).await.map_err(|_| late())?
    }

    /// Ends the VM.
    pub(crate) async fn stop(self) -> Result {
        self.0.stop().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_is_compiled_into_by_itself() {
        let script = compile(2);
        assert_eq!(script.matches("exit 1; }").count(), 2, "{script}");
        assert!(script.contains("OUTPUT=/tmp/out/0/ ") && script.contains("OUTPUT=/tmp/out/1/ "));
        assert!(!compile(1).contains("/out/1"));
    }
}
