//! Whatever goes wrong with a VM becomes a one-sentence error within seconds, never a hang, and
//! leaves nothing behind.

mod common;

use common::{alive, config, instance, signal, wait_until, wrapper};
use squeezy_vmm::{
    AcceleratorChoice, BootStep, PartitionLayout, QemuOptions, Vm, VmConfig, VmError, Vmm,
    memory::VirtioMem, probe_kvm,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How soon an error must be reported: within a second, but for a host that is busy with others.
const SOON: Duration = Duration::from_secs(20);

async fn start_error(config: VmConfig) -> VmError {
    match Vm::start(config).await {
        Ok(_) => panic!("the VM has started"),
        Err(error) => {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            error
        }
    }
}

#[tokio::test]
async fn a_vmm_that_is_not_installed_is_named_with_the_way_to_get_it() {
    let mut config = config("missing");
    config.vmm = Vmm::Qemu(QemuOptions { program: "no-such-qemu".into(), ..Default::default() });
    let text = start_error(config).await.to_string();
    assert!(text.contains("no-such-qemu") && text.contains("apt install"), "{text}");
}

#[tokio::test]
async fn a_vmm_that_dies_at_start_is_quoted() {
    let start = Instant::now();
    let mut config = config("no-kernel");
    config.kernel = "/etc/hostname".into();
    let error = start_error(config).await;
    assert!(matches!(&error, VmError::Start(said) if said.contains("kernel")), "{error}");
    assert!(start.elapsed() < SOON);
}

#[tokio::test]
async fn a_vmm_that_says_nothing_at_start_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config("silent");
    let program = wrapper(directory.path(), "exec sleep 1000");
    config.vmm = Vmm::Qemu(QemuOptions { program, ..Default::default() });
    config.timeouts.start = Duration::from_secs(1);
    let error = start_error(config).await;
    assert!(matches!(&error, VmError::Start(said) if said.contains("did not answer")), "{error}");
}

#[tokio::test]
async fn kvm_by_name_is_refused_where_it_does_not_work() {
    let mut config = config("kvm");
    config.accelerator = AcceleratorChoice::Kvm;
    config.agent = false;
    match (probe_kvm(), Vm::start(config).await) {
        (Ok(_), result) => drop(result.map_err(|e| panic!("{e}"))),
        (Err(reason), Err(error)) => {
            assert!(error.to_string().contains(reason.split(' ').next().unwrap()), "{error}")
        }
        (Err(reason), Ok(_)) => panic!("started with {reason}"),
    }
}

#[tokio::test]
async fn a_panic_at_boot_is_quoted() {
    let mut config = config("panic");
    config.command_line.push("rdinit=/none root=/dev/none".into());
    let error = start_error(config).await;
    assert!(
        matches!(&error, VmError::Panicked(line) if line.contains("VFS") || line.contains("init")),
        "{error}"
    );
}

/// Boots a VM whose VMM crashes so many times when its kernel has begun to. Returns whether it runs, how often it booted, and
/// how many crashes were reported.
async fn boot_with_crashes(name: &str, crashes: u32) -> (Result<Vm, VmError>, u32, u32) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("process");
    let script = format!("echo $$ >{}; exec qemu-system-x86_64 \"$@\"", file.display());
    let mut config = config(name);
    let program = wrapper(directory.path(), &script);
    config.vmm = Vmm::Qemu(QemuOptions { program, ..Default::default() });
    config.accelerator = AcceleratorChoice::Tcg;
    let (mut boots, mut reported) = (0, 0);
    let report = |step| {
        reported += u32::from(matches!(step, BootStep::Crashed(_)));
        if step == BootStep::Kernel {
            boots += 1;
            if boots <= crashes {
                let process = std::fs::read_to_string(&file).unwrap();
                signal(process.trim().parse().unwrap(), "SEGV");
            }
        }
    };
    let started = Vm::start_with(config, report).await;
    (started, boots, reported)
}

#[tokio::test]
async fn an_emulator_that_crashes_at_boot_is_started_once_more() {
    let (vm, boots, reported) = boot_with_crashes("crashes", 1).await;
    let vm = vm.unwrap();
    assert_eq!((boots, reported), (2, 1));
    vm.agent().unwrap().info().await.unwrap();
    vm.stop().await.unwrap();
}

#[tokio::test]
async fn an_emulator_that_crashes_at_each_boot_is_given_up() {
    let (vm, boots, reported) = boot_with_crashes("broken", u32::MAX).await;
    let error = vm.map(drop).unwrap_err();
    assert!(matches!(&error, VmError::Died { how, .. } if how.contains("signal 11")), "{error}");
    assert_eq!((boots, reported), (2, 1));
}

#[tokio::test]
async fn an_agent_that_does_not_come_is_given_up_with_the_last_line_of_the_console() {
    let mut config = config("late");
    config.command_line.push("rdinit=/bin/sleep -- 1000".into());
    config.timeouts.boot = Duration::from_secs(5);
    let error = start_error(config).await;
    assert!(matches!(error, VmError::AgentLate { .. }), "{error}");
}

#[tokio::test]
async fn a_guest_that_powers_off_is_noticed() {
    let vm = Vm::start(config("off")).await.unwrap();
    // As a guest would do it, not with Vm::stop.
    vm.agent().unwrap().shutdown().await.ok();
    let error = tokio::time::timeout(SOON, vm.wait()).await.unwrap();
    assert!(matches!(error, VmError::PoweredOff { what: "powered off", .. }), "{error}");
}

#[tokio::test]
async fn a_vmm_that_is_killed_ends_every_call_with_the_reason() {
    let vm = Vm::start(config("killed")).await.unwrap();
    let spec = instance("sleeper", &["/bin/sleep", "1000"]);
    let agent = vm.agent().unwrap().clone();
    agent.start(&spec).await.unwrap();
    let waiting = tokio::spawn(async move { agent.wait(&spec.id).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let start = Instant::now();
    signal(vm.process_id(), "KILL");
    let error = waiting.await.unwrap().unwrap_err();
    assert!(start.elapsed() < SOON);
    assert!(matches!(&error, VmError::Died { how, .. } if how.contains("signal 9")), "{error}");
    assert_eq!(vm.ended(), Some(error.clone()));
    assert_eq!(vm.memory().await.unwrap_err(), error);
    assert_eq!(vm.agent().unwrap().info().await.unwrap_err(), error);
    vm.stop().await.unwrap();
}

#[tokio::test]
async fn a_vmm_that_hangs_is_noticed_and_can_be_stopped() {
    let mut config = config("hung");
    config.timeouts.hang = Duration::from_secs(4);
    let vm = Vm::start(config).await.unwrap();
    let process = vm.process_id();
    let start = Instant::now();
    signal(process, "STOP");
    let error = vm.wait().await;
    assert!(start.elapsed() < 2 * SOON);
    assert!(matches!(error, VmError::Hung(_)), "{error}");
    assert!(!alive(process), "nobody can use it any more");
    vm.stop().await.unwrap();
}

#[tokio::test]
async fn a_vm_that_is_paused_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("monitor");
    let mut config = config("paused");
    // A second monitor, to pause the VM behind the library's back.
    let monitor = format!("unix:{},server=on,wait=off", socket.display());
    let arguments = vec!["-qmp".into(), monitor.into()];
    config.vmm = Vmm::Qemu(QemuOptions { arguments, ..Default::default() });
    let vm = Vm::start(config).await.unwrap();
    {
        use std::io::Write;
        let mut monitor = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        monitor.write_all(b"{\"execute\":\"qmp_capabilities\"}{\"execute\":\"stop\"}").unwrap();
        let error = tokio::time::timeout(SOON, vm.wait()).await.unwrap();
        assert!(matches!(&error, VmError::Paused(why) if why == "paused"), "{error}");
        assert!(!alive(vm.process_id()), "nobody can use it any more");
    }
    vm.stop().await.unwrap();
}

#[tokio::test]
async fn more_than_the_region_or_the_host_has_is_refused_before_it_is_tried() {
    let mut large = config("large");
    large.base_bytes = 1 << 42;
    assert!(matches!(start_error(large).await, VmError::HostMemory { .. }));

    let mut config = config("region");
    config.memory = Arc::new(VirtioMem { region_bytes: 256 << 20, initial_bytes: 0 });
    let vm = Vm::start(config).await.unwrap();
    let error = vm.resize(512 << 20).await.unwrap_err();
    assert!(matches!(error, VmError::RegionTooSmall { .. }), "{error}");
    vm.stop().await.unwrap();
}

#[tokio::test]
async fn partitions_that_the_kernel_does_not_have_are_an_error() {
    let mut config = config("stock");
    config.memory = Arc::new(PartitionLayout::new(128 << 20, 2, 0));
    // The last one counts, and is invalid.
    config.command_line.push("squeezy.partitions=0".into());
    let error = start_error(config).await;
    assert!(matches!(error, VmError::NoPartitions(_)), "{error}");
}

#[tokio::test]
async fn a_shrink_that_is_not_done_in_time_says_why_and_the_guest_can_grow_again() {
    let mut config = config("stuck");
    config.memory = Arc::new(VirtioMem { region_bytes: 512 << 20, initial_bytes: 0 });
    // It has to grow in this time, too.
    config.timeouts.resize = Duration::from_secs(15);
    let vm = Vm::start(config).await.unwrap();
    vm.resize(512 << 20).await.unwrap();
    let hog = instance("hog", &["/bin/memhog", "480M"]);
    vm.agent().unwrap().start(&hog).await.unwrap();
    let grown = async {
        loop {
            let memory = vm.agent().unwrap().memory().await.unwrap();
            if memory.meminfo_bytes["AnonPages"] > 470 << 20 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), grown).await.unwrap();
    let resident = vm.memory().await.unwrap().device_resident.resident_bytes;
    assert!(resident > 300 << 20, "{resident}");
    let error = vm.resize(0).await.unwrap_err();
    assert!(
        matches!(&error, VmError::Resize { reason, .. } if reason.contains("could not free")),
        "{error}"
    );
    vm.resize(512 << 20).await.unwrap();
    vm.stop().await.unwrap();
}

#[tokio::test]
async fn dropping_a_vm_ends_its_process() {
    let mut config = config("dropped");
    config.agent = false;
    let vm = Vm::start(config).await.unwrap();
    let process = vm.process_id();
    assert!(alive(process));
    drop(vm);
    assert!(wait_until(SOON, || !alive(process)));
}

#[tokio::test]
async fn a_start_that_is_given_up_ends_the_process() {
    let mut config = config("abandoned");
    config.command_line.push("rdinit=/bin/sleep -- 1000".into());
    let console = tempfile::NamedTempFile::new().unwrap();
    config.console_log = Some(console.path().into());
    let (seen, kernel) = tokio::sync::oneshot::channel();
    let mut seen = Some(seen);
    let starting = Vm::start_with(config, |step| {
        if step == BootStep::Kernel
            && let Some(seen) = seen.take()
        {
            let _ = seen.send(());
        }
    });
    tokio::select! {
        started = starting => panic!("it has ended: {:?}", started.err()),
        _ = kernel => {}
    }
    let name = b"abandoned,debug-threads=on";
    let running = || {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line.windows(name.len()).any(|w| w == name))
        })
    };
    assert!(wait_until(SOON, || !running()));
    assert!(console.path().metadata().unwrap().len() > 0);
}

/// Starts itself again as a child that has a VM, and kills that child.
#[test]
fn a_vm_does_not_outlive_the_program_that_started_it() {
    const CHILD: &str = "SQUEEZY_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        return runtime.block_on(async {
            let mut config = config("orphan");
            config.agent = false;
            let vm = Vm::start(config).await.unwrap();
            eprintln!("vmm {}", vm.process_id());
            vm.wait().await;
        });
    }
    use std::io::{BufRead, BufReader};
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_vm_does_not_outlive_the_program_that_started_it", "--nocapture"])
        .env(CHILD, "1")
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let vmm = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("vmm ").and_then(|id| id.parse::<u32>().ok()))
        .unwrap();
    assert!(alive(vmm));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(wait_until(SOON, || !alive(vmm)));
}
