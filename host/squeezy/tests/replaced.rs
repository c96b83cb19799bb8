//! VMs that can no longer give memory to instances: they are replaced, and no call is lost.

mod common;

use common::{Daemon, build, copy_of_html, serve, server, until, value, write_script};
use serde_json::json;
use squeezy_kernel_tests::{BELIEVED_PROCESSOR, MIB, Monitor, lose_count};
use squeezy_protocol::PartitionNumber;
use squeezy_vmm::PartitionLayout;
use std::{
    env,
    path::Path,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{net::UnixStream, runtime::Runtime};

/// The limit of a plug. A plug that cannot succeed fails sooner.
const RESIZE_LIMIT: Duration = Duration::from_secs(20);

/// A server that returns its request after a while. It uses most of its partition.
const ECHO: &str = r#"
import http.server, json, time

held = b"x" * (90 << 20)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        value = json.loads(self.rfile.read(int(self.headers["Content-Length"]))).get("value", {})
        time.sleep(value.get("seconds", 0))
        answer = {"echo": value.get("number")}
"#;

/// A daemon with the function `echo`; each of its VMs has a second monitor.
struct World {
    daemon: Daemon,
    layout: PartitionLayout,
    runtime: Runtime,
    directory: TempDir,
    _images: TempDir,
}

impl World {
    fn start(build: &Path, instances: u16, keep_alive_seconds: u32) -> Self {
        let (directory, images) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let echo = copy_of_html(build, images.path(), "echo", Some(&server(ECHO)));
        let echo = echo.replace("concurrency = 1", &format!("concurrency = {instances}"));
        let configuration = format!(
            "memory = \"2G\"\nshared_memory = \"64M\"\naccelerator = \"tcg\"\n{echo}\
             memory_limit = \"128M\"\nvcpus = 1\nkeep_alive_seconds = {keep_alive_seconds}\n"
        );
        let layout = PartitionLayout::new(128 * MIB, instances, 64 * MIB);
        let mut command = serve(directory.path(), build, &configuration, &[]);
        command.env("PATH", with_monitors(directory.path()));
        let daemon = Daemon::spawn(command, directory.path());
        Self { daemon, layout, runtime: Runtime::new().unwrap(), directory, _images: images }
    }

    /// Makes a call, and checks the response.
    fn call(&self, number: u32, seconds: f32) {
        let path = "/namespaces/_/actions/echo?blocking=true&result=true";
        let arguments = json!({ "number": number, "seconds": seconds });
        let (status, result) = self.daemon.ask("POST", path, Some(arguments));
        assert_eq!((status, &result["echo"]), (200, &json!(number)), "{result}");
    }

    /// The process id of the only VM, and its monitor.
    fn vm(&self) -> (u32, Monitor) {
        let vms = self.daemon.vm_processes();
        assert_eq!(vms.len(), 1);
        let socket = self.directory.path().join(format!("monitor.{}", vms[0]));
        let open = async { Monitor::open(UnixStream::connect(socket).await?).await };
        (vms[0], self.runtime.block_on(open).unwrap())
    }

    fn metric(&self, name: &str, labels: &str) -> f64 {
        let series = format!("squeezy_{name}{{function=\"echo\"{labels}}}");
        value(&self.daemon.metrics(), &series).unwrap_or_default()
    }

    /// The number of partitions in this state.
    fn partitions(&self, state: &str) -> f64 {
        self.metric("partitions", &format!(",state=\"{state}\""))
    }

    /// How many plugs or unplugs have failed for this reason.
    fn refused(&self, direction: &str, reason: &str) -> f64 {
        let labels = format!(",direction=\"{direction}\",reason=\"{reason}\"");
        self.metric("resizes_refused_total", &labels)
    }

    /// Asserts that the VM was replaced, and that no call was affected.
    fn assert_replaced(&self, earlier: u32) {
        assert_ne!(self.vm().0, earlier);
        assert_eq!(self.partitions("quarantined"), 0.0);
        assert_eq!(self.metric("calls_failed_total", ""), 0.0);
        for reason in ["start_failed", "vm_failed"] {
            assert_eq!(self.metric("calls_refused_total", &format!(",reason=\"{reason}\"")), 0.0);
        }
    }
}

/// A PATH in which QEMU gets a second monitor in this directory, named after its process id.
fn with_monitors(directory: &Path) -> String {
    let path = env::var("PATH").unwrap();
    let wrapper = directory.join("qemu-system-x86_64");
    let (processor, directory) = (BELIEVED_PROCESSOR.join(" "), directory.display());
    let script = format!(
        "PATH='{path}' exec qemu-system-x86_64 \"$@\" {processor} \
         -qmp unix:{directory}/monitor.$$,server=on,wait=off"
    );
    write_script(&wrapper, &script);
    format!("{directory}:{path}")
}

#[test]
fn a_vm_serves_beside_broken_memory_and_is_replaced_when_it_has_no_other() {
    let Some(build) = build() else { return };
    // Each instance has to be there until its memory is broken.
    let world = World::start(&build, 2, 5);
    let (mut number, mut vm) = (0, None);
    for lost in [1.0, 2.0] {
        number += 1;
        world.call(number, 0.0);
        let (process, mut monitor) = world.vm();
        assert_eq!(*vm.get_or_insert(process), process, "it still serves");
        until("what is left of its partitions", || {
            // On a busy host its keep-alive could be over before this is so.
            world.call(number, 0.0);
            let are = (world.partitions("assigned"), world.partitions("quarantined"));
            (are == (1.0, lost - 1.0)).then_some(())
        });
        let range = world.layout.range(PartitionNumber(lost as u16 - 1)).unwrap();
        let broken = monitor.break_page((range.start + range.end) / 2);
        world.runtime.block_on(broken).unwrap();
        until("its keep-alive to be over", || {
            (world.partitions("quarantined") == lost).then_some(())
        });
    }
    // The first one's memory was given up when the second one ended.
    assert_eq!(world.refused("unplug", "quarantined"), 1.0);

    world.call(number + 1, 0.0);
    world
        .daemon
        .says("is replaced after its last call: no partition is left for the instance: 2 of 2");
    assert_eq!(world.refused("plug", "quarantined"), 1.0);
    world.daemon.says("ended: it had to be replaced");
    world.assert_replaced(vm.unwrap());
}

#[test]
fn a_vm_whose_guest_and_device_disagree_is_replaced_while_calls_run() {
    let Some(build) = build() else { return };
    let world = World::start(&build, 3, 600);
    world.call(0, 0.0);
    let (process, mut monitor) = world.vm();
    let (last, used) = (PartitionNumber(2), PartitionNumber(0));
    let lost = lose_count(&mut monitor, process, world.layout, last, used);
    world.runtime.block_on(lost).unwrap();
    until("one partition too many", || (world.partitions("assigned") == 2.0).then_some(()));

    // These need two more instances at once. The guest counts one partition too many as plugged, so
    // the device never gets that far.
    let begin = Instant::now();
    let (said, elapsed) = std::thread::scope(|scope| {
        for caller in 1..=3 {
            let world = &world;
            scope.spawn(move || (0..5).for_each(|call| world.call(10 * caller + call, 0.3)));
        }
        (world.daemon.says("is replaced after its last call: "), begin.elapsed())
    });
    assert!(elapsed < RESIZE_LIMIT, "{elapsed:?}");
    let why = "disagree: 320.0 MiB are plugged, and the guest uses 448.0 MiB of them";
    assert!(said.contains(why), "{said}");
    assert!(world.refused("plug", "guest") >= 1.0);
    world.daemon.says("ended: it had to be replaced");
    world.call(99, 0.0);
    assert!(!world.daemon.has_said("is replaced after its last call"), "it is reported once");
    world.assert_replaced(process);
}
