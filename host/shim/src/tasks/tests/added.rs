//! Processes that are added to containers, and standard input.

use super::*;
use rustix::fs::{CWD, Mode, mkfifoat};
use squeezy_protocol::TerminalSize;
use tempfile::TempDir;

fn ended(status: u8) -> Ended {
    Ended { status, out_of_memory: false }
}

#[tokio::test(start_paused = true)]
async fn an_added_process_lives_in_its_container() {
    let bench = running().await;
    let more = name("in/more");
    bench.add("in/more").await.unwrap();
    let waiting = {
        let (tasks, more) = (bench.tasks.clone(), more.clone());
        tokio::spawn(async move { tasks.wait(&more).await })
    };
    let pid = bench.tasks.snapshot(&name("in")).unwrap().pid;
    assert_eq!(bench.tasks.start(&more).await.unwrap(), pid);
    assert_eq!(bench.tasks.snapshot(&more).unwrap().phase, Phase::Running);
    assert_eq!(bench.tasks.delete(&more).await.unwrap_err().kind, ErrorKind::State);
    bench.vm.end_process(&more, ended(3));
    assert_eq!(soon(waiting).await.unwrap().unwrap().status, 3);
    assert_eq!(bench.tasks.delete(&more).await.unwrap().1.status, 3);
    // The name is free again.
    bench.add("in/more").await.unwrap();
    let seen = bench.seen();
    let expected =
        ["exec-added in/more", "exec-started in/more", "exit in/more", "exec-added in/more"];
    assert_eq!(seen[4..], expected);
}

#[tokio::test(start_paused = true)]
async fn what_was_added_ends_with_its_container_and_before_it() {
    let bench = running().await;
    for added in ["in/runs", "in/waits"] {
        bench.add(added).await.unwrap();
    }
    bench.tasks.start(&name("in/runs")).await.unwrap();
    bench.vm.end_process(&name("in"), Ended { status: 137, out_of_memory: true });
    soon(bench.tasks.wait(&name("in"))).await.unwrap();
    for added in ["in/runs", "in/waits"] {
        assert_eq!(soon(bench.tasks.wait(&name(added))).await.unwrap().status, 137, "{added}");
        assert_eq!(
            bench.tasks.start(&name(added)).await.unwrap_err().kind,
            ErrorKind::State,
            "{added}"
        );
    }
    assert_eq!(bench.add("in/late").await.unwrap_err().kind, ErrorKind::State);
    bench.tasks.delete(&name("in")).await.unwrap();
    assert_eq!(bench.tasks.delete(&name("in/runs")).await.unwrap_err().kind, ErrorKind::NotFound);
    let expected = ["exit in/runs", "exit in/waits", "oom in", "exit in", "delete in"];
    assert_eq!(bench.seen()[7..], expected);
    assert_eq!(bench.vm.left(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn how_an_added_process_has_ended_itself_is_told_though_its_container_ends_too() {
    let bench = running().await;
    bench.add("in/more").await.unwrap();
    bench.tasks.start(&name("in/more")).await.unwrap();
    bench.vm.end_process(&name("in/more"), ended(5));
    // It is known only after that.
    bench.vm.follow(vec![(100, false)]);
    bench.vm.end_process(&name("in"), ended(0));
    assert_eq!(soon(bench.tasks.wait(&name("in"))).await.unwrap().status, 0);
    assert_eq!(soon(bench.tasks.wait(&name("in/more"))).await.unwrap().status, 5);
}

#[tokio::test(start_paused = true)]
async fn an_end_is_told_though_somebody_writes_on() {
    let bench = running().await;
    bench.vm.write_on();
    bench.add("in/more").await.unwrap();
    bench.create("other", What::Container(id("pod"), parts())).await.unwrap();
    for (task, status) in [("in/more", 3), ("other", 4)] {
        let task = name(task);
        bench.tasks.start(&task).await.unwrap();
        bench.vm.end_process(&task, ended(status));
        assert_eq!(soon(bench.tasks.wait(&task)).await.unwrap().status, status, "{task}");
        bench.tasks.delete(&task).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_added_where_no_process_runs() {
    let bench = Bench::new();
    assert_eq!(bench.add("pod/more").await.unwrap_err().kind, ErrorKind::NotFound);
    bench.create("pod", What::Pod(pod())).await.unwrap();
    bench.tasks.start(&name("pod")).await.unwrap();
    assert_eq!(bench.add("pod/more").await.unwrap_err().kind, ErrorKind::Invalid);
    bench.create("in", What::Container(id("pod"), parts())).await.unwrap();
    assert_eq!(bench.add("in/more").await.unwrap_err().kind, ErrorKind::State);
    bench.tasks.start(&name("in")).await.unwrap();
    bench.add("in/more").await.unwrap();
    assert_eq!(bench.add("in/more").await.unwrap_err().kind, ErrorKind::Exists);
    let streams = Streams { stdout: "/nowhere/at/all".to_owned(), ..Default::default() };
    let added = bench.tasks.add(&name("in/deaf"), process(), streams).await;
    assert!(added.unwrap_err().message.contains("cannot open"));
    assert_eq!(bench.add("in/deaf").await, Ok(()));
}

#[tokio::test]
async fn whoever_reads_sees_the_end_if_an_added_process_cannot_be_started() {
    let bench = running().await;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("stdout");
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    let streams = Streams { stdout: path.to_str().unwrap().to_owned(), ..Default::default() };
    let reading = tokio::task::spawn_blocking(|| std::fs::read(path).unwrap());
    bench.tasks.add(&name("in/more"), process(), streams).await.unwrap();
    bench.vm.follow(vec![(0, true)]);
    bench.tasks.start(&name("in/more")).await.unwrap_err();
    assert_eq!(soon(reading).await.unwrap(), b"");
    assert_eq!(bench.tasks.delete(&name("in/more")).await.unwrap().1.status, 137);
}

#[tokio::test(start_paused = true)]
async fn a_terminal_is_resized_while_its_process_runs() {
    let bench = running().await;
    let size = TerminalSize { columns: 80, rows: 24 };
    let with_terminal = Process { terminal: Some(size), ..process() };
    let more = name("in/more");
    bench.tasks.add(&more, with_terminal, Streams::default()).await.unwrap();
    assert!(bench.tasks.snapshot(&more).unwrap().has_terminal);
    assert_eq!(bench.tasks.resize(&more, size).await.unwrap_err().kind, ErrorKind::State);
    bench.tasks.start(&more).await.unwrap();
    bench.tasks.resize(&more, size).await.unwrap();
    assert_eq!(bench.tasks.resize(&name("in"), size).await.unwrap_err().kind, ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn processes_added_to_one_pod_leave_room_for_those_of_others() {
    let bench = running().await;
    bench.create("also-in", What::Container(id("pod"), parts())).await.unwrap();
    bench.create("single", What::Single(pod(), parts())).await.unwrap();
    for container in ["also-in", "single"] {
        bench.tasks.start(&name(container)).await.unwrap();
    }
    for container in ["in", "single"] {
        for number in 0..MAX_ADDED {
            bench.add(&format!("{container}/{number}")).await.unwrap();
        }
    }
    for added in ["in/x", "also-in/x", "single/x"] {
        let refused = bench.add(added).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Full, "{added}");
        assert!(refused.message.starts_with("32 processes"), "{refused}");
    }
    // One that has ended has no place, also if containerd never deletes it.
    bench.tasks.kill(&name("in/0"), Signal::KILL, false).await.unwrap();
    bench.add("also-in/x").await.unwrap();
    assert_eq!(bench.add("in/x").await.unwrap_err().kind, ErrorKind::Full);
}

#[tokio::test]
async fn input_is_passed_on_until_containerd_closes_it() {
    let bench = running().await;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("stdin");
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    let streams = Streams { stdin: path.to_str().unwrap().to_owned(), ..Default::default() };
    bench.tasks.add(&name("in/reads"), process(), streams).await.unwrap();
    bench.tasks.start(&name("in/reads")).await.unwrap();
    std::fs::write(&path, "hello").unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(bench.vm.input(), (Vec::new(), 0));
    bench.tasks.close_input(&name("in/reads")).unwrap();
    soon(async {
        while bench.vm.input() != (b"hello".to_vec(), 1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // It may be closed before the process starts.
    let streams = Streams { stdin: path.to_str().unwrap().to_owned(), ..Default::default() };
    bench.tasks.add(&name("in/ends"), process(), streams).await.unwrap();
    bench.tasks.close_input(&name("in/ends")).unwrap();
    bench.tasks.start(&name("in/ends")).await.unwrap();
    soon(async {
        while bench.vm.input() != (b"hello".to_vec(), 2) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // Whoever has none, and whoever is not there.
    bench.tasks.close_input(&name("in")).unwrap();
    assert_eq!(bench.tasks.close_input(&name("in/x")).unwrap_err().kind, ErrorKind::NotFound);
}
