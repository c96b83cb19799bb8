//! What one instance can do to another in the same VM, through a daemon: nothing.

mod common;

use common::{Daemon, build, until};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

/// Creates a function of this name that runs the Python program in each call.
fn told(build: &Path, directory: &Path, name: &str) -> PathBuf {
    let image = directory.join(name).with_extension("erofs");
    symlink(build.join("images/html.erofs"), &image).unwrap();
    let definition = include_str!("told/function.toml").replace("NAME", name);
    fs::write(image.with_extension("toml"), definition).unwrap();
    image
}

/// The same, without a filter of system calls.
fn unconfined(build: &Path, directory: &Path, name: &str) -> PathBuf {
    let image = told(build, directory, name);
    let definition = image.with_extension("toml");
    let text = fs::read_to_string(&definition).unwrap();
    fs::write(definition, text.replacen("port = ", "seccomp = \"unconfined\"\nport = ", 1))
        .unwrap();
    image
}

/// A daemon with two such functions, `one` and `two`, whose instances share a VM.
fn one_and_two(build: &Path, directory: &Path) -> Daemon {
    sharing_a_vm(build, directory, &["one", "two"].map(|name| told(build, directory, name)))
}

/// A daemon with these functions in one VM.
fn sharing_a_vm(build: &Path, directory: &Path, images: &[PathBuf]) -> Daemon {
    let mut configuration = "memory = \"3G\"\n".to_owned();
    for image in images {
        configuration += &format!("[[functions]]\npath = {image:?}\nvm = \"both\"\n");
    }
    Daemon::start_in(directory, build, &configuration, &[])
}

/// Has a function run this program; returns the status and the whole activation.
fn tell(daemon: &Daemon, function: &str, program: &str) -> (u16, Value) {
    let call = format!("/namespaces/_/actions/{function}?blocking=true");
    daemon.ask("POST", &call, Some(json!({ "program": program })))
}

/// The program's result, which must not be an error.
fn result(daemon: &Daemon, function: &str, program: &str) -> Value {
    let (status, mut activation) = tell(daemon, function, program);
    assert_eq!(status, 200, "{activation}");
    activation["response"]["result"]["result"].take()
}

/// Waits until `count` instances are busy.
fn busy(daemon: &Daemon, function: &str, count: u32) {
    let series = format!("squeezy_instances{{function=\"{function}\",state=\"busy\"}} {count}");
    until(&series, || daemon.metrics().lines().any(|line| line == series).then_some(()));
}

#[test]
fn an_instance_that_exceeds_its_memory_is_told_so_and_its_neighbour_works_on() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let image = told(&build, directory.path(), "told");
    let daemon = Daemon::start_in(directory.path(), &build, "memory = \"3G\"\n", &[&image]);
    // It works for longer than another instance takes to start: otherwise its own would get the next call.
    let neighbour = "import time\nkept = b'x' * (16 << 20)\ntime.sleep(20)\nresult = len(kept)";
    // In steps, because Linux immediately refuses an allocation larger than all memory.
    let hoard = "hoard = [b'x' * (size + (1 << 20)) for size in range(1000)]";
    let mut invoke = daemon.client_command(&["invoke", "told", "--param", "program", neighbour]);
    let works = invoke.stdout(Stdio::piped()).spawn().unwrap();
    busy(&daemon, "told", 1);
    let (status, activation) = tell(&daemon, "told", hoard);
    let error = &activation["response"]["result"]["error"];
    assert_eq!(status, 502, "{activation}");
    assert!(error.as_str().unwrap().contains("exceeded its memory"), "{activation}");
    let answer = works.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!(answer["result"], 16 << 20);
    // The neighbour is the remaining instance, and still has its data.
    assert_eq!(result(&daemon, "told", "result = len(kept)"), 16 << 20);
    assert_eq!(daemon.vms(), 1);
}

#[test]
fn limits_of_an_action_are_those_of_its_instances() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let image = told(&build, directory.path(), "told");
    let daemon = Daemon::start_in(directory.path(), &build, "memory = \"3G\"\n", &[&image]);
    let program = "print('here', flush=True)\nkept = b'x' * (80 << 20)\nresult = len(kept)";
    let (status, activation) = tell(&daemon, "told", program);
    assert_eq!(status, 200, "{activation}");
    assert!(activation["logs"].to_string().contains("stdout: here"), "{activation}");
    // On a slow machine it takes a while to exceed the memory, too.
    let limits = json!({ "limits": { "memory": 64, "logs": 0, "timeout": 10_000 } });
    let path = "/namespaces/_/actions/told?overwrite=true";
    assert_eq!(daemon.ask("PUT", path, Some(limits)).0, 200);
    for (program, part, least_ms) in
        [(program, "exceeded its memory", 0), ("while True: pass", "not answered", 10_000)]
    {
        let (status, activation) = tell(&daemon, "told", program);
        assert_eq!((status, &activation["logs"]), (502, &json!([])), "{activation}");
        assert!(activation["response"].to_string().contains(part), "{activation}");
        assert!(activation["duration"].as_u64() >= Some(least_ms), "{activation}");
    }
}

/// Leaves behind everything that another instance might get at.
const LEAVE: &str = r#"
import ctypes, os, socket, subprocess
for place in ["/tmp", "/dev/shm", "/var/tmp", "/"]:
    try:
        with open(place + "/secret-file", "w") as file:
            file.write("secret")
    except OSError:
        pass
os.environ["SECRET"] = "secret"
child = subprocess.Popen(["/usr/bin/python3", "-c", "import time; time.sleep(3600)", "secret"])
listener = socket.socket(socket.AF_UNIX)
listener.bind("\0secret")
listener.listen()
tcp = socket.create_server(("127.0.0.1", 8081))
shared = ctypes.CDLL(None).shmget(0x5ec, 4096, 0o1666)
result = [child.poll() is None, shared >= 0, os.path.exists("/tmp/secret-file")]
"#;

/// Tries to get at it, and to end it; returns what succeeded.
const ATTACK: &str = r#"
import ctypes, mmap, os, signal, socket
found = []
def attempt(name, what):
    try:
        if what():
            found.append(name)
    except OSError:
        pass
own = {1, os.getpid(), os.getppid()}
processes = [int(name) for name in os.listdir("/proc") if name.isdigit()]
found += [f"process {pid}" for pid in processes if pid not in own]
for pid in set(range(1, 5000)) - own:
    attempt(f"signal to {pid}", lambda: os.kill(pid, signal.SIGKILL) is None)
    attempt(f"memory of {pid}", lambda: open(f"/proc/{pid}/mem", "rb"))
attempt("signal to all", lambda: os.kill(-1, signal.SIGKILL) is None)
attempt("signal to the group", lambda: os.kill(0, 0) is None and len(processes) > 2)
for top in ["/tmp", "/dev", "/var", "/run", "/function", "/"]:
    attempt("file in " + top, lambda: "secret-file" in os.listdir(top))
for directory, _, files in os.walk("/proc/1/root/tmp"):
    found += [file for file in files if "secret" in file]
def connect(family, address):
    with socket.socket(family) as client:
        client.connect(address)
    return True
attempt("socket", lambda: connect(socket.AF_UNIX, "\0secret"))
attempt("port", lambda: connect(socket.AF_INET, ("127.0.0.1", 8081)))
attempt("shared memory", lambda: ctypes.CDLL(None).shmget(0x5ec, 4096, 0) >= 0)
for device in ["mem", "kmem", "port", "vda", "vport0p1", "vport1p1", "kmsg"]:
    attempt("device " + device, lambda: open("/dev/" + device, "rb+"))
attempt("mount", lambda: ctypes.CDLL(None).mount(b"proc", b"/mnt", b"proc", 0, None) == 0)
attempt("namespaces", lambda: open("/proc/1/ns/pid") and os.readlink("/proc/1/ns/pid") != os.readlink("/proc/self/ns/pid"))
for name in ["kmsg", "kallsyms", "kpagecount", "kpagecgroup", "kpageflags", "slabinfo", "vmallocinfo", "pagetypeinfo", "buddyinfo", "zoneinfo"]:
    attempt("/proc/" + name, lambda: open("/proc/" + name, "rb").read(1))
for name in ["mm/squeezy", "debug", "tracing", "slab"]:
    attempt("/sys/kernel/" + name, lambda: os.listdir("/sys/kernel/" + name))
call = ctypes.CDLL(None).syscall
for name, *arguments in [("io_uring_setup", 425, 1, ctypes.create_string_buffer(120)), ("add_key", 248, b"user", b"x", b"x", 1, -5),
        ("unshare user", 272, 0x10000000), ("perf_event_open", 298, ctypes.create_string_buffer(120), 0, -1, -1, 0),
        ("userfaultfd", 323, 1), ("syslog", 103, 10, None, 0), ("io_setup", 206, 1, ctypes.byref(ctypes.c_ulong()))]:
    attempt(name, lambda: call(*arguments) >= 0)
attempt("huge pages", lambda: mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000))
attempt("vsock", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM))
attempt("netlink to others", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2))
result = found
"#;

#[test]
fn a_function_cannot_see_or_end_what_another_one_in_its_vm_has() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let daemon = one_and_two(&build, directory.path());
    assert_eq!(result(&daemon, "one", LEAVE), json!([true, true, true]));
    assert_eq!(result(&daemon, "two", ATTACK), json!([]));
    assert_eq!(daemon.vms(), 1, "they share one");
    // Everything is unchanged, and the same attempts find it from inside.
    let here =
        "result = [child.poll() is None, os.environ['SECRET'], open('/tmp/secret-file').read()]";
    assert_eq!(result(&daemon, "one", here), json!([true, "secret", "secret"]));
    let own = ATTACK.replace("signal.SIGKILL", "0");
    let found = result(&daemon, "one", &own).to_string();
    for part in ["process ", "signal to ", "file in /tmp", "socket", "port", "shared memory"] {
        assert!(found.contains(part), "{part} is not found where it is: {found}");
    }
}

/// Takes as much as possible of what Linux counts per user or for the whole machine, and keeps it.
const EXHAUST: &str = r#"
import ctypes, fcntl, os, resource, socket
libc = ctypes.CDLL(None)
held = []
def all_there_is(take, most):
    for _ in range(most):
        try:
            held.append(take())
        except OSError:
            return
def one(call, *arguments):
    answer = call(*arguments)
    if answer < 0:
        raise OSError
    return answer
resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536))
all_there_is(lambda: one(libc.inotify_init), 1000)
all_there_is(lambda: one(libc.timer_create, 1, None, ctypes.byref(ctypes.c_void_p())), 10000)
def full_pipe():
    ends = os.pipe()
    fcntl.fcntl(ends[0], fcntl.F_SETPIPE_SZ, 1 << 20)
    return ends
all_there_is(full_pipe, 100)
all_there_is(os.pipe, 1000)
sent = os.eventfd(0)
def in_flight():
    ends = socket.socketpair()
    socket.send_fds(ends[0], [b"x"], [sent] * 250)
    return ends
all_there_is(in_flight, 300)
all_there_is(lambda: one(libc.mq_open, b"/q%d" % len(held), os.O_CREAT | os.O_RDWR, 0o600, None), 300)
result = len(held)
"#;

/// Opens more files, in six processes, than Linux by default allows on a machine of this size.
const MANY_FILES: &str = r#"
import os, resource, time
for _ in range(6):
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536))
        held = [os.eventfd(0) for _ in range(10000)]
        time.sleep(3600)
while True:
    time.sleep(1)
"#;

/// Which of the same resources cannot be had.
const NEED: &str = r#"
import ctypes, fcntl, os, select, socket, threading
libc = ctypes.CDLL(None)
missing = []
def need(name, what):
    try:
        if not what():
            missing.append(name)
    except OSError as error:
        missing.append(f"{name}: {error}")
def closed(file):
    if file >= 0:
        os.close(file)
    return file >= 0
def pipe():
    ends = os.pipe()
    size = fcntl.fcntl(ends[0], fcntl.F_GETPIPE_SZ)
    return all([closed(end) for end in ends]) and size == 65536
need("files", lambda: all([closed(file) for file in [os.eventfd(0) for _ in range(100)]]))
need("a file of /proc", lambda: open("/proc/self/stat").close() is None)
need("inotify", lambda: closed(libc.inotify_init()))
need("timers", lambda: libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p())) == 0)
need("pipes", pipe)
def sent():
    ends = socket.socketpair()
    socket.send_fds(ends[0], [b"x"], [0])
    _, files, _, _ = socket.recv_fds(ends[1], 1, 1)
    return all([closed(file) for file in files])
def watched():
    with select.epoll() as watch:
        watch.register(file := os.eventfd(0))
        return closed(file)
need("descriptors in flight", sent)
need("epoll watches", watched)
need("message queues", lambda: closed(libc.mq_open(b"/need", os.O_CREAT | os.O_RDWR, 0o600, None)))
thread = threading.Thread(target=lambda: None)
thread.start()
thread.join()
result = missing
"#;

/// Sets up `COUNT` contexts of 30,000 asynchronous requests each; returns how many succeeded.
const REQUESTS: &str = r#"
import ctypes
libc = ctypes.CDLL(None)
contexts = [ctypes.c_ulong() for _ in range(COUNT)]
result = [libc.syscall(206, 30000, ctypes.byref(context)) for context in contexts].count(0)
"#;

#[test]
fn what_an_instance_uses_up_its_neighbour_still_has() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut images = ["one", "two"].map(|name| told(&build, directory.path(), name)).to_vec();
    images.push(unconfined(&build, directory.path(), "free"));
    let daemon = sharing_a_vm(&build, directory.path(), &images);
    assert_eq!(result(&daemon, "two", "result = 1"), 1);
    // Files are kernel memory, of which each instance has a share: one that takes more is killed,
    // alone.
    let mut invoke = daemon.client_command(&["invoke", "one", "--param", "program", MANY_FILES]);
    let mut attack = invoke.stdout(Stdio::piped()).spawn().unwrap();
    while attack.try_wait().unwrap().is_none() {
        assert_eq!(result(&daemon, "two", NEED), json!([]));
    }
    let said = String::from_utf8(attack.wait_with_output().unwrap().stdout).unwrap();
    assert!(said.contains("exceeded its memory"), "{said}");
    let held = result(&daemon, "one", EXHAUST);
    assert!(held.as_u64() > Some(1000), "{held}");
    let begin = Instant::now();
    assert_eq!(result(&daemon, "two", NEED), json!([]));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    // A new instance can have them too while the first one exists.
    let waits = "import time\ntime.sleep(8)\nresult = 1";
    let mut invoke = daemon.client_command(&["invoke", "two", "--param", "program", waits]);
    let works = invoke.stdout(Stdio::piped()).spawn().unwrap();
    busy(&daemon, "two", 1);
    assert_eq!(result(&daemon, "two", NEED), json!([]));
    assert!(works.wait_with_output().unwrap().status.success());
    assert_eq!(result(&daemon, "one", "result = len(held)"), held, "it is still there");
    // More than Linux allows in total by default; here memory is the limit.
    assert_eq!(result(&daemon, "free", &REQUESTS.replace("COUNT", "3")), 3);
    let (status, activation) = tell(&daemon, "free", &REQUESTS.replace("COUNT", "1000"));
    assert_eq!(status, 502, "{activation}");
    assert!(activation["response"].to_string().contains("exceeded its memory"), "{activation}");
    assert_eq!(daemon.vms(), 1);
}

#[test]
fn an_instance_that_aborts_or_babbles_is_told_so() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let image = told(&build, directory.path(), "told");
    let daemon = Daemon::start_in(directory.path(), &build, "memory = \"3G\"\n", &[&image]);
    let error_of = |program| {
        let (status, activation) = tell(&daemon, "told", program);
        assert_eq!(status, 502, "{activation}");
        activation["response"]["result"]["error"].as_str().unwrap().to_owned()
    };
    for (program, signal) in
        [("import os\nos.abort()", 6), ("import os\nos.kill(os.getpid(), 11)", 11)]
    {
        let error = error_of(program);
        assert!(error.contains(&format!("was killed by signal {signal}")), "{error}");
    }
    // The response has no length.
    let endless = "\
        import sys\n\
        answer = sys._getframe(1).f_locals['self'].wfile\n\
        answer.write(b'HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n')\n\
        while True: answer.write(b'100000\\r\\n' + b' ' * (1 << 20) + b'\\r\\n')";
    let error = error_of(endless);
    assert!(error.contains("exceeded the allowed length: more than 8388608 > "), "{error}");
    // The longest response that is allowed does not exhaust what an instance has outside its
    // partition.
    let long = result(&daemon, "told", "result = 'x' * 5_000_000");
    assert_eq!(long.as_str().map(str::len), Some(5_000_000));
    let babble = "\
        import gc, http.server\n\
        [server] = [o for o in gc.get_objects() if isinstance(o, http.server.HTTPServer)]\n\
        server.RequestHandlerClass.wbufsize = 0\n\
        server.RequestHandlerClass.send_response = lambda self, _: self.wfile.write(b'nonsense\\n')\n\
        result = 1";
    let error = error_of(babble);
    assert!(error.contains("did not answer in HTTP") && !error.contains("agent"), "{error}");
}
