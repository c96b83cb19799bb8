use super::*;
use crate::{executable::write_script, group::Group, registry::Place, tasks::tests::fake::FakeVm};
use containerd_shim_protos::{
    api,
    protobuf::{Message, MessageField, well_known_types::any::Any},
    shim_async::{Client, TaskClient},
    ttrpc::{self, Code, context},
};
use serde_json::json;
use std::fs;
use tempfile::TempDir;
use tokio::task::JoinHandle;

#[test]
fn a_server_reads_what_start_has_written() {
    let assignment = Assignment {
        state: "/run/squeezy/shim".into(),
        containerd: "/run/containerd/containerd.sock".to_owned(),
        namespace: "k8s.io".parse().unwrap(),
        server: ServerName::parse("0123456789abcdef-0").unwrap(),
        events: "/run/containerd/containerd.sock.ttrpc".to_owned(),
        partition_bytes: 256 << 20,
        cgroup_of_pods: Some("kubepods.slice".into()),
        settings: Settings { idle_seconds: 7, ..Settings::default() },
    };
    let without = Assignment { cgroup_of_pods: None, ..assignment.clone() };
    for assignment in [without, assignment.clone()] {
        let arguments = assignment.arguments();
        assert_eq!(Assignment::parse(arguments[1..].iter().cloned()), Ok(assignment));
    }
    let arguments = assignment.arguments();
    for cut in 1..arguments.len() {
        assert!(Assignment::parse(arguments[1..cut].iter().cloned()).is_err());
    }
}

/// What a server in this directory is for, which waits so long for the next pod, and where it listens. The pod `one` has a
/// place in it.
fn assigned(directory: &Path, idle_seconds: u64) -> (Assignment, UnixListener) {
    let namespace: Id = "default".parse().unwrap();
    let containerd = "/run/containerd/containerd.sock";
    let group = Group::of_namespace("", 128 << 20);
    let registry = Registry::lock(directory, containerd, &namespace).unwrap();
    let Place::New(server, listener) =
        registry.reserve(&"one".parse().unwrap(), &group, &[]).unwrap()
    else {
        panic!("there is none yet");
    };
    let assignment = Assignment {
        state: directory.to_owned(),
        containerd: containerd.to_owned(),
        namespace,
        server,
        events: directory.join("nobody.sock").display().to_string(),
        partition_bytes: group.partition_bytes,
        cgroup_of_pods: None,
        settings: Settings { idle_seconds, ..Settings::default() },
    };
    (assignment, listener)
}

/// A server over a fake VM, with a place for the pod `one`.
pub(crate) struct Running {
    pub(crate) directory: TempDir,
    pub(crate) assignment: Assignment,
    pub(crate) vm: Arc<FakeVm>,
    pub(crate) server: JoinHandle<Result<()>>,
    client: Client,
}

impl Running {
    pub(crate) async fn new() -> Self {
        Self::that_waits(0).await
    }

    /// One that waits so long for the next pod.
    async fn that_waits(idle_seconds: u64) -> Self {
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        // What a holder does, without this program.
        write_script(&path("holder"), "echo\nexec cat >/dev/null");
        let spec = json!({
            "process": {"args": ["sh"], "cwd": "/"},
            "linux": {
                "resources": {"memory": {"limit": 134_217_728}},
                "namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "network"}]
            }
        });
        fs::write(path("config.json"), spec.to_string()).unwrap();
        let (assignment, listener) = assigned(directory.path(), idle_seconds);
        let socket = assignment.registry().unwrap().socket(&assignment.server);
        let vm = FakeVm::new();
        let server = tokio::spawn(serve(assignment.clone(), listener, vm.clone(), path("holder")));
        let client = Client::connect(&format!("unix://{}", socket.display())).await.unwrap();
        Self { directory, assignment, vm, server, client }
    }

    pub(crate) fn task(&self) -> TaskClient {
        TaskClient::new(self.client.clone())
    }

    pub(crate) fn create(&self) -> api::CreateTaskRequest {
        let layer = api::Mount {
            type_: "overlay".to_owned(),
            options: vec!["lowerdir=/layer".to_owned()],
            ..Default::default()
        };
        api::CreateTaskRequest {
            id: "one".to_owned(),
            bundle: self.directory.path().display().to_string(),
            rootfs: vec![layer],
            ..Default::default()
        }
    }

    fn is_found(&self) -> bool {
        self.assignment.registry().unwrap().socket(&self.assignment.server).exists()
    }
}

pub(crate) fn limit() -> context::Context {
    context::with_duration(Duration::from_secs(30))
}

fn named(id: &str) -> String {
    id.to_owned()
}

fn code_of<T: std::fmt::Debug>(result: ttrpc::Result<T>) -> Code {
    match result.unwrap_err() {
        ttrpc::Error::RpcStatus(status) => status.code(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_task_lives_through_the_api_and_the_server_ends_after_it() {
    let running = Running::new().await;
    let task = running.task();
    let pid = task.create(limit(), &running.create()).await.unwrap().pid;
    let pids = api::PidsRequest { id: named("one"), ..Default::default() };
    assert_eq!(task.pids(limit(), &pids).await.unwrap().processes[0].pid, pid);
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "it stands for the task");
    let start = api::StartRequest { id: named("one"), ..Default::default() };
    assert_eq!(task.start(limit(), &start).await.unwrap().pid, pid);
    let state = api::StateRequest { id: named("one"), ..Default::default() };
    assert_eq!(task.state(limit(), &state).await.unwrap().status(), api::Status::RUNNING);
    let pids = api::PidsRequest { id: named("one"), ..Default::default() };
    assert_eq!(task.pids(limit(), &pids).await.unwrap().processes[0].pid, 2);
    let connect = api::ConnectRequest { id: named("one"), ..Default::default() };
    let connected = task.connect(limit(), &connect).await.unwrap();
    assert_eq!((connected.shim_pid, connected.task_pid), (std::process::id(), pid));
    let stats = api::StatsRequest { id: named("one"), ..Default::default() };
    assert_eq!(
        task.stats(limit(), &stats).await.unwrap().stats.type_url,
        "io.containerd.cgroups.v2.Metrics"
    );

    // It is not told to end while it has a task, and does not.
    let shutdown = api::ShutdownRequest { id: named("one"), ..Default::default() };
    task.shutdown(limit(), &shutdown).await.unwrap();
    let waiting = {
        let task = running.task();
        let wait = api::WaitRequest { id: named("one"), ..Default::default() };
        tokio::spawn(async move { task.wait(limit(), &wait).await })
    };
    let kill = api::KillRequest { id: named("one"), signal: 9, all: true, ..Default::default() };
    task.kill(limit(), &kill).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().exit_status, 137);
    assert_eq!(code_of(task.kill(limit(), &kill).await), Code::NOT_FOUND);
    let delete = api::DeleteRequest { id: named("one"), ..Default::default() };
    assert_eq!(task.delete(limit(), &delete).await.unwrap().exit_status, 137);
    timeout(Duration::from_secs(30), until_ended(pid)).await.expect("its holder ends");
    assert_eq!(code_of(task.state(limit(), &state).await), Code::NOT_FOUND);

    let _ = task.shutdown(limit(), &shutdown).await;
    timeout(Duration::from_secs(30), running.server).await.expect("it ends").unwrap().unwrap();
    let registry = running.assignment.registry().unwrap();
    assert!(!registry.socket(&running.assignment.server).exists());
    assert!(registry.is_empty(&running.assignment.server).unwrap());
    assert_eq!(running.vm.left(), (0, 0));
}

#[tokio::test]
async fn a_server_waits_for_the_next_pod_as_long_as_it_is_told() {
    // It looks now and then, and may not have seen a pod.
    let begin = Instant::now();
    let running = Running::that_waits(3).await;
    let task = running.task();
    task.create(limit(), &running.create()).await.unwrap();
    let delete = api::DeleteRequest { id: named("one"), ..Default::default() };
    task.delete(limit(), &delete).await.unwrap();
    let shutdown = api::ShutdownRequest { id: named("one"), ..Default::default() };
    task.shutdown(limit(), &shutdown).await.unwrap();
    assert!(running.is_found());
    timeout(Duration::from_secs(30), running.server).await.expect("it ends").unwrap().unwrap();
    let waited = begin.elapsed();
    assert!(waited >= Duration::from_secs(3), "it has waited for {waited:?}");
}

#[tokio::test]
async fn others_are_answered_while_the_registry_is_waited_for() {
    // Its end would give back all places.
    let running = Running::that_waits(3600).await;
    let task = running.task();
    task.create(limit(), &running.create()).await.unwrap();
    let registry = running.assignment.registry().unwrap();
    let deleting = {
        let task = running.task();
        let delete = api::DeleteRequest { id: named("one"), ..Default::default() };
        tokio::spawn(async move { task.delete(limit(), &delete).await })
    };
    // It is gone before its place is given back.
    let state = api::StateRequest { id: named("one"), ..Default::default() };
    while task.state(limit(), &state).await.is_ok() {
        sleep(Duration::from_millis(5)).await;
    }
    let one: Id = "one".parse().unwrap();
    assert!(registry.server_of(&one).is_ok());
    drop(registry);
    deleting.await.unwrap().unwrap();
    let is_given_back = async {
        while running.assignment.registry().unwrap().server_of(&one).is_ok() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), is_given_back).await.expect("its place is given back");
}

#[tokio::test(start_paused = true)]
async fn a_place_that_cannot_be_given_back_is_tried_again() {
    let directory = TempDir::new().unwrap();
    let (assignment, _listener) = assigned(directory.path(), 0);
    let socket = assignment.registry().unwrap().socket(&assignment.server);
    let place = socket.parent().unwrap().with_file_name("pods").join("one");
    fs::remove_file(&place).unwrap();
    // What is no file cannot be removed.
    fs::create_dir(&place).unwrap();
    let entry = Entry { assignment, program: PathBuf::new(), is_found: AtomicBool::new(true) };
    let releasing = tokio::spawn(Arc::new(entry).release("one".parse().unwrap()));
    sleep(RELEASE_INTERVAL / 2).await;
    assert!(!releasing.is_finished());
    fs::remove_dir(&place).unwrap();
    releasing.await.unwrap();
}

#[tokio::test]
async fn a_pod_gets_another_server_after_a_vm_had_no_room_for_it_beside_others() {
    let running = Running::that_waits(3600).await;
    let (server, group) = (&running.assignment.server, Group::of_namespace("", 128 << 20));
    // As `start` does.
    running.assignment.registry().unwrap().admit(server, &group, 32, 1).unwrap();
    running.vm.crowd();
    let created = running.task().create(limit(), &running.create()).await;
    assert_eq!(code_of(created), Code::RESOURCE_EXHAUSTED);
    let registry = running.assignment.registry().unwrap();
    let place = registry.reserve(&"one".parse().unwrap(), &group, &[]).unwrap();
    assert!(matches!(place, Place::New(ref other, _) if other != server));
}

#[tokio::test]
async fn a_process_is_added_through_the_api() {
    let running = Running::new().await;
    let task = running.task();
    let pid = task.create(limit(), &running.create()).await.unwrap().pid;
    let process = json!({"args": ["sh"], "cwd": "/", "user": {"uid": 1, "gid": 1}});
    let spec = Any { value: process.to_string().into_bytes(), ..Default::default() };
    let exec = api::ExecProcessRequest {
        id: named("one"),
        exec_id: named("more"),
        spec: MessageField::some(spec),
        ..Default::default()
    };
    // Its container does not run yet.
    assert_eq!(code_of(task.exec(limit(), &exec).await), Code::FAILED_PRECONDITION);
    let start = api::StartRequest { id: named("one"), ..Default::default() };
    task.start(limit(), &start).await.unwrap();
    task.exec(limit(), &exec).await.unwrap();
    assert_eq!(code_of(task.exec(limit(), &exec).await), Code::ALREADY_EXISTS);
    let start = api::StartRequest { exec_id: named("more"), ..start };
    assert_eq!(task.start(limit(), &start).await.unwrap().pid, pid);
    let pids = api::PidsRequest { id: named("one"), ..Default::default() };
    let listed = task.pids(limit(), &pids).await.unwrap().processes;
    let names: Vec<_> = listed.iter().map(|process| process.info.type_url.as_str()).collect();
    assert_eq!(names, ["", "containerd.runc.v1.ProcessDetails"]);
    let state =
        api::StateRequest { id: named("one"), exec_id: named("more"), ..Default::default() };
    let found = task.state(limit(), &state).await.unwrap();
    assert_eq!((found.status(), found.exec_id.as_str()), (api::Status::RUNNING, "more"));
    let close = api::CloseIORequest {
        id: named("one"),
        exec_id: named("more"),
        stdin: true,
        ..Default::default()
    };
    task.close_io(limit(), &close).await.unwrap();
    let kill = api::KillRequest {
        id: named("one"),
        exec_id: named("more"),
        signal: 15,
        ..Default::default()
    };
    task.kill(limit(), &kill).await.unwrap();
    let wait = api::WaitRequest { id: named("one"), exec_id: named("more"), ..Default::default() };
    assert_eq!(task.wait(limit(), &wait).await.unwrap().exit_status, 143);
    let delete =
        api::DeleteRequest { id: named("one"), exec_id: named("more"), ..Default::default() };
    assert_eq!(task.delete(limit(), &delete).await.unwrap().exit_status, 143);
    assert_eq!(code_of(task.state(limit(), &state).await), Code::NOT_FOUND);
    assert_eq!(code_of(task.close_io(limit(), &close).await), Code::NOT_FOUND);
    // Its container goes on.
    let state = api::StateRequest { id: named("one"), ..Default::default() };
    assert_eq!(task.state(limit(), &state).await.unwrap().status(), api::Status::RUNNING);
}

/// Waits until a process is no longer there, or only to be waited for.
async fn until_ended(pid: u32) {
    let stat = || fs::read_to_string(format!("/proc/{pid}/stat"));
    while stat().is_ok_and(|stat| !stat.contains(") Z ")) {
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn version_2_of_the_api_is_answered_by_the_same_service() {
    let running = Running::new().await;
    let request = ttrpc::Request {
        service: "containerd.task.v2.Task".to_owned(),
        method: "Create".to_owned(),
        timeout_nano: 30_000_000_000,
        payload: running.create().write_to_bytes().unwrap(),
        ..Default::default()
    };
    let response = running.client.request(request).await.unwrap();
    let created = api::CreateTaskResponse::parse_from_bytes(&response.payload).unwrap();
    let state = api::StateRequest { id: named("one"), ..Default::default() };
    assert_eq!(running.task().state(limit(), &state).await.unwrap().pid, created.pid);
}

#[tokio::test]
async fn what_the_shim_does_not_have_is_not_a_task_that_is_gone() {
    let running = Running::new().await;
    let task = running.task();
    let id = named("one");
    let checkpoint = api::CheckpointTaskRequest { id, ..Default::default() };
    assert_eq!(code_of(task.checkpoint(limit(), &checkpoint).await), Code::UNIMPLEMENTED);
}

#[tokio::test]
async fn a_container_that_is_refused_is_not_asked_for_again_with_an_older_api() {
    let running = Running::new().await;
    let request = api::CreateTaskRequest { checkpoint: "/one".into(), ..running.create() };
    assert_eq!(code_of(running.task().create(limit(), &request).await), Code::INVALID_ARGUMENT);
}

#[tokio::test]
async fn a_task_is_paused_and_resumed_through_the_api() {
    let running = Running::new().await;
    let task = running.task();
    task.create(limit(), &running.create()).await.unwrap();
    let pause = api::PauseRequest { id: named("one"), ..Default::default() };
    let resume = api::ResumeRequest { id: named("one"), ..Default::default() };
    assert_eq!(code_of(task.pause(limit(), &pause).await), Code::FAILED_PRECONDITION);
    let start = api::StartRequest { id: named("one"), ..Default::default() };
    task.start(limit(), &start).await.unwrap();
    assert_eq!(code_of(task.resume(limit(), &resume).await), Code::FAILED_PRECONDITION);
    let status = async || {
        let state = api::StateRequest { id: named("one"), ..Default::default() };
        task.state(limit(), &state).await.unwrap().status()
    };
    task.pause(limit(), &pause).await.unwrap();
    assert_eq!(status().await, api::Status::PAUSED);
    assert_eq!(code_of(task.pause(limit(), &pause).await), Code::FAILED_PRECONDITION);
    let delete = api::DeleteRequest { id: named("one"), ..Default::default() };
    assert_eq!(code_of(task.delete(limit(), &delete).await), Code::FAILED_PRECONDITION);
    task.resume(limit(), &resume).await.unwrap();
    assert_eq!(status().await, api::Status::RUNNING);
    task.pause(limit(), &pause).await.unwrap();
    let kill = api::KillRequest { id: named("one"), signal: 9, all: true, ..Default::default() };
    task.kill(limit(), &kill).await.unwrap();
    let wait = api::WaitRequest { id: named("one"), ..Default::default() };
    assert_eq!(task.wait(limit(), &wait).await.unwrap().exit_status, 137);
    task.delete(limit(), &delete).await.unwrap();
}

#[tokio::test]
async fn limits_are_changed_through_the_api_until_a_task_has_ended() {
    let running = Running::new().await;
    let task = running.task();
    task.create(limit(), &running.create()).await.unwrap();
    let update = |text: &str| api::UpdateTaskRequest {
        id: named("one"),
        resources: MessageField::some(Any { value: text.into(), ..Default::default() }),
        ..Default::default()
    };
    let limits = update(r#"{"memory":{"limit":67108864},"cpu":{"shares":512}}"#);
    task.update(limit(), &limits).await.unwrap();
    let start = api::StartRequest { id: named("one"), ..Default::default() };
    task.start(limit(), &start).await.unwrap();
    task.update(limit(), &limits).await.unwrap();
    assert_eq!(code_of(task.update(limit(), &update("[")).await), Code::INVALID_ARGUMENT);
    let kill = api::KillRequest { id: named("one"), signal: 9, all: true, ..Default::default() };
    task.kill(limit(), &kill).await.unwrap();
    let wait = api::WaitRequest { id: named("one"), ..Default::default() };
    task.wait(limit(), &wait).await.unwrap();
    assert_eq!(code_of(task.update(limit(), &limits).await), Code::FAILED_PRECONDITION);
}

#[tokio::test]
async fn wrong_requests_are_refused() {
    let running = Running::new().await;
    let task = running.task();
    let nowhere = api::CreateTaskRequest { bundle: "/nowhere".to_owned(), ..running.create() };
    assert_eq!(code_of(task.create(limit(), &nowhere).await), Code::INTERNAL);
    let odd = api::CreateTaskRequest { id: "../one".to_owned(), ..running.create() };
    assert_eq!(code_of(task.create(limit(), &odd).await), Code::INVALID_ARGUMENT);
    // Its spec has none.
    let terminal = api::CreateTaskRequest { terminal: true, ..running.create() };
    assert_eq!(code_of(task.create(limit(), &terminal).await), Code::INVALID_ARGUMENT);
    let resize = api::ResizePtyRequest { id: named("one"), ..Default::default() };
    assert_eq!(code_of(task.resize_pty(limit(), &resize).await), Code::NOT_FOUND);
    for (exec_id, text) in [("", "{}"), ("../more", "{}"), ("more", "{")] {
        let spec = Any { value: text.into(), ..Default::default() };
        let exec = api::ExecProcessRequest {
            id: named("one"),
            exec_id: named(exec_id),
            spec: MessageField::some(spec),
            ..Default::default()
        };
        assert_eq!(code_of(task.exec(limit(), &exec).await), Code::INVALID_ARGUMENT);
    }
    for signal in [0, 65, u32::MAX] {
        let kill = api::KillRequest { id: named("one"), signal, ..Default::default() };
        assert_eq!(code_of(task.kill(limit(), &kill).await), Code::INVALID_ARGUMENT);
    }
}

#[tokio::test]
async fn a_server_whose_vm_has_ended_is_not_found_and_ends_with_its_last_task() {
    let running = Running::new().await;
    let task = running.task();
    task.create(limit(), &running.create()).await.unwrap();
    assert!(running.is_found());
    running.vm.end();
    let wait = api::WaitRequest { id: named("one"), ..Default::default() };
    assert_eq!(task.wait(limit(), &wait).await.unwrap().exit_status, 255);
    assert!(!running.is_found());
    // Another server takes the name; this one must leave it alone.
    let group = Group::of_namespace("", 128 << 20);
    let place = running
        .assignment
        .registry()
        .unwrap()
        .reserve(&"two".parse().unwrap(), &group, &[])
        .unwrap();
    assert!(matches!(place, Place::New(ref server, _) if *server == running.assignment.server));
    let delete = api::DeleteRequest { id: named("one"), ..Default::default() };
    task.delete(limit(), &delete).await.unwrap();
    let _ = task
        .shutdown(limit(), &api::ShutdownRequest { id: named("one"), ..Default::default() })
        .await;
    timeout(Duration::from_secs(30), running.server).await.expect("it ends").unwrap().unwrap();
    assert!(running.assignment.registry().unwrap().server_of(&"two".parse().unwrap()).is_ok());
}
