//! Volumes: files of the host, and directories that instances share.

use super::*;
use squeezy_protocol::FileContent;
use std::pin::pin;

fn file(path: &str, content: &str) -> Value {
    json!({
        "path": path, "owner": {"user": 0, "group": 50, "mode": 0o640},
        "content": FileContent::File(content.into())
    })
}

fn link(path: &str, to: &str) -> Value {
    let owner = json!({"user": 0, "group": 0, "mode": 0o777});
    json!({"path": path, "owner": owner, "content": {"link": to}})
}

fn directory(path: &str) -> Value {
    let owner = json!({"user": 0, "group": 0, "mode": 0o755});
    json!({"path": path, "owner": owner, "content": "directory"})
}

fn volume(mode: u16, files: &[Value]) -> String {
    json!({
        "limit_bytes": 1 << 20, "limit_files": 100,
        "owner": {"user": 0, "group": 0, "mode": mode}, "files": files
    })
    .to_string()
}

fn writable(mode: u16) -> String {
    let mut volume: Value = serde_json::from_str(&volume(mode, &[])).unwrap();
    volume["writable"] = true.into();
    volume.to_string()
}

fn mounted(id: &str, script: &str, volumes: Value) -> Value {
    let mut spec = shell(id, script);
    spec["volumes"] = volumes;
    spec
}

async fn sent(client: &Client, method: &str, number: u32, volume: String) {
    let answer = client.call(method, &format!("/v1/volumes/{number}"), volume).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{answer:?}");
}

async fn refused(client: &Client, method: &str, path: &str, volume: String) -> ErrorCode {
    client.call(method, &format!("/v1/volumes/{path}"), volume).await.error().code
}

fn version(name: &str, text: &str) -> String {
    let inside = format!("{name}/key");
    volume(
        0o755,
        &[directory(name), file(&inside, text), link("..data", name), link("key", "..data/key")],
    )
}

pub(super) async fn files_of_the_host_are_read_and_change(client: &Client) {
    sent(client, "POST", 1, version("..1", "one")).await;
    sent(client, "POST", 2, volume(0o755, &[file("hosts", "a\n")])).await;
    let volumes = json!([
        {"volume": 1, "target": "/made/for/it", "read_only": true},
        {"volume": 2, "file": "hosts", "target": "/etc/hosts", "read_only": false},
    ]);
    let script = "cat /made/for/it/key; busybox ls -ln /made/for/it/..data/key | busybox awk '{ print $1, $3, $4 }'
        echo x > /made/for/it/new || echo closed; echo b >> /etc/hosts; cat /etc/hosts
        busybox rm /etc/hosts || echo stays; echo ready
        until [ $(cat /made/for/it/key) = two ]; do sleep 0.1; done; busybox ls -A /made/for/it; exec sleep 1000";
    client.start(mounted("reads", script, volumes.clone())).await.unwrap();
    let said = async |words: &str| {
        while !client.log("reads").await.ends_with(words) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    said("ready\n").await;
    sent(client, "PUT", 1, version("..2", "two")).await;
    said("..2\n..data\nkey\n").await;
    let log = client.log("reads").await;
    for words in ["one-rw-r----- 0 50\n", "closed\n", "a\nb\n", "stays\n"] {
        assert!(log.contains(words), "{words} in {log}");
    }
    // Its limits change with it.
    let mut large: Value = serde_json::from_str(&version("..3", &"x".repeat(900_000))).unwrap();
    large["limit_bytes"] = (2 << 20).into();
    sent(client, "PUT", 1, large.to_string()).await;
    sent(client, "PUT", 1, version("..4", "four")).await;
    // What it has written is there for the host, and nowhere else.
    let answer = client.call("GET", "/v1/volumes/2/hosts", "").await;
    assert_eq!(answer.body, "a\nb\n");
    for path in ["2/absent", "2/..", "1/key", "9/x"] {
        assert_eq!(
            refused(client, "GET", path, String::new()).await,
            ErrorCode::NotFound,
            "{path}"
        );
    }
    // Whoever has a volume keeps it; nobody else gets it any more.
    for number in [1, 2] {
        sent(client, "DELETE", number, String::new()).await;
    }
    let error = client.start(mounted("late", "true", volumes)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound);
    client.delete("reads", 0).await;
}

pub(super) async fn an_empty_volume_is_shared_and_has_an_end(client: &Client) {
    sent(client, "POST", 3, writable(0o1777)).await;
    let volumes = json!([{"volume": 3, "target": "/dev/shm", "read_only": false}]);
    let mut spec = mounted(
        "writes",
        "echo x > /dev/shm/file; busybox ln -s /proc/1/root /dev/shm/out; exec sleep 1000",
        volumes.clone(),
    );
    spec["user"] = json!({"user": 7, "group": 8});
    client.start(spec).await.unwrap();
    // The file is there before what is written to it.
    let script = "until [ -s /dev/shm/file ]; do sleep 0.1; done; cat /dev/shm/file
        busybox ls -ln /dev/shm/file | busybox awk '{ print $3, $4 }'
        busybox dd if=/dev/zero of=/dev/shm/big bs=64k count=100 2>&1 | busybox grep -o 'No space left'
        i=0; while true > /dev/shm/$i; do i=$((i+1)); done 2>/dev/null; [ $i -lt 100 ] && echo no more files";
    let mut spec = mounted("looks", script, volumes.clone());
    spec["company"] = json!({"beside": "writes"});
    let (_, log) = run(client, spec).await;
    assert_eq!(log, "x\n7 8\nNo space left\nno more files\n");
    // The agent does not look into it, whatever is there.
    assert_eq!(refused(client, "GET", "3/file", String::new()).await, ErrorCode::NotFound);
    let files = volume(0o755, &[file("file", "y")]);
    assert_eq!(refused(client, "PUT", "3", files).await, ErrorCode::NotFound);
    let one = json!([{"volume": 3, "file": "file", "target": "/x", "read_only": true}]);
    assert_eq!(
        client.start(mounted("one", "true", one)).await.unwrap_err().code,
        ErrorCode::NotFound
    );
    client.delete("writes", 0).await;
    sent(client, "DELETE", 3, String::new()).await;
}

pub(super) async fn calls_are_answered_while_the_files_of_a_volume_are_freed(client: &Client) {
    const ATTEMPTS: usize = 20;
    let mut large: Value = serde_json::from_str(&writable(0o777)).unwrap();
    large["limit_bytes"] = (64 << 20).into();
    let all = json!([{"volume": 11, "target": "/all", "read_only": false}]);
    let script = "busybox dd if=/dev/zero of=/all/large bs=1M count=60 2> /dev/null";
    // The agent gets the removal first. Whether the list is answered before the files are gone is not up to it alone.
    for _ in 0..ATTEMPTS {
        sent(client, "POST", 11, large.to_string()).await;
        let (reason, log) = run(client, mounted("fills", script, all.clone())).await;
        assert_eq!(reason, ExitReason::Exited(0), "{log}");
        let mut removal = pin!(client.call("DELETE", "/v1/volumes/11", ""));
        let mut list = pin!(client.call("GET", "/v1/instances", ""));
        let (removed, is_answered) = tokio::select! {
            biased;
            removed = &mut removal => (removed, false),
            _ = &mut list => (removal.await, true),
        };
        assert_eq!(removed.status, StatusCode::NO_CONTENT, "{removed:?}");
        if is_answered {
            return;
        }
    }
    panic!("{ATTEMPTS} times, nothing was answered before the files were gone");
}

fn part(path: &str, target: &str) -> Value {
    json!([{"volume": 9, "part": path, "target": target, "read_only": false}])
}

pub(super) async fn a_part_of_a_volume_is_found_or_made(client: &Client) {
    sent(client, "POST", 9, writable(0o777)).await;
    // It is made as the volume's own directory is.
    let script = "busybox ls -ldn /logs | busybox awk '{ print $1, $3, $4 }'; echo x > /logs/file";
    let mut spec = mounted("makes", script, part("app/logs", "/logs"));
    spec["user"] = json!({"user": 7, "group": 8});
    assert_eq!(run(client, spec).await.1, "drwxrwxrwx 0 0\n");
    let script = "cat /all/app/logs/file; echo y > /all/config; cd /all
        busybox ln -s /etc out; busybox ln -s app inside; busybox ln -s /proc/1/root root";
    let all = json!([{"volume": 9, "target": "/all", "read_only": false}]);
    assert_eq!(run(client, mounted("writes", script, all)).await.1, "x\n");
    // What is there is found, a file, too, and who may only read it only reads it.
    let mut volumes = part("config", "/etc/config");
    volumes[0]["read_only"] = true.into();
    let script = "cat /etc/config; (echo z > /etc/config) 2> /tmp/errors || echo closed";
    assert_eq!(run(client, mounted("reads", script, volumes)).await.1, "y\nclosed\n");
    let spec = mounted("finds", "cat /x/file", part("app/logs", "/x"));
    assert_eq!(run(client, spec).await.1, "x\n");

    for (path, words) in [
        ("out", "is a link"),
        ("out/new", "is a link"),
        ("inside/logs", "is a link"),
        ("root/tmp", "is a link"),
        ("config/new", "Not a directory"),
        ("../9", "a path within it"),
        ("/config", "a path within it"),
    ] {
        let error = client.start(mounted("odd", "true", part(path, "/x"))).await.unwrap_err();
        assert!(error.message.contains(words), "{path}: {error:?}");
    }
    // Of files of the host, nobody has a part.
    sent(client, "POST", 10, volume(0o755, &[directory("app")])).await;
    let mut volumes = part("app", "/x");
    volumes[0]["volume"] = 10.into();
    volumes[0]["read_only"] = true.into();
    let error = client.start(mounted("odd", "true", volumes)).await.unwrap_err();
    assert!(error.message.contains("are the host's"), "{error:?}");
    for number in [9, 10] {
        sent(client, "DELETE", number, String::new()).await;
    }
}

pub(super) async fn links_that_change_lead_no_part_out_of_its_volume(client: &Client) {
    sent(client, "POST", 9, writable(0o777)).await;
    let script = "cd /all; while true; do
            busybox ln -sn / race; busybox rm race; busybox mkdir race; busybox rmdir race
        done 2> /dev/null";
    let all = json!([{"volume": 9, "target": "/all", "read_only": false}]);
    client.start(mounted("swaps", script, all)).await.unwrap();
    let (mut led, mut refused) = (0, 0);
    for _ in 0..20 {
        // A link to the machine's root would show what is in it.
        let spec = mounted("looks", "ls -A /x", part("race", "/x"));
        match client.start(spec).await {
            Ok(_) => {
                let _: Instance = client.get("/v1/instances/looks/wait").await;
                assert_eq!(client.log("looks").await, "");
                client.delete("looks", 0).await;
                led += 1;
            }
            Err(error) => {
                assert!(error.message.contains("volume at /x: "), "{error:?}");
                refused += 1;
            }
        }
    }
    eprintln!("{led} parts were found or made, {refused} were refused");
    client.delete("swaps", 0).await;
    sent(client, "DELETE", 9, String::new()).await;
}

pub(super) async fn volumes_are_nowhere_but_in_the_root(client: &Client) {
    sent(client, "POST", 4, volume(0o755, &[file("file", "x")])).await;
    for target in [
        "/proc/1/root/x",
        "/proc/self/root/x",
        "/proc/sys",
        "/sys/kernel",
        "/proc/new",
        "/dev/mqueue",
        "/www/hello/x",
    ] {
        let volumes = json!([{"volume": 4, "target": target, "read_only": true}]);
        let mut spec = mounted("odd", "true", volumes);
        spec["sees_message_queues"] = true.into();
        let error = client.start(spec).await.unwrap_err();
        assert!(error.message.contains(&format!("volume at {target}: ")), "{error:?}");
    }
    for (volumes, words) in [
        (json!([{"volume": 4, "target": "/a/../b", "read_only": true}]), "no absolute path"),
        (json!([{"volume": 4, "target": "/a", "read_only": false}]), "are the host's"),
        (json!([{"volume": 4, "file": "../x", "target": "/a", "read_only": true}]), "no such name"),
        (json!(vec![json!({"volume": 4, "target": "/a", "read_only": true}); 65]), "at most 64"),
    ] {
        let error = client.start(mounted("odd", "true", volumes)).await.unwrap_err();
        assert!(error.message.contains(words), "{error:?}");
    }
    for (number, volume) in [
        (5, volume(0o755, &[file("a/b", "x")])),
        (5, volume(0o755, &[link("a", "/etc"), file("a/b", "x")])),
        (5, volume(0o755, &[file("..", "x")])),
        (5, "{}".to_owned()),
    ] {
        let code = refused(client, "POST", &number.to_string(), volume).await;
        assert_eq!(code, ErrorCode::Invalid);
    }
    assert_eq!(refused(client, "POST", "4", volume(0o755, &[])).await, ErrorCode::Exists);
    assert_eq!(refused(client, "DELETE", "5", String::new()).await, ErrorCode::NotFound);
    assert_eq!(refused(client, "DELETE", "x", String::new()).await, ErrorCode::NotFound);
    // It does not fit, and leaves nothing.
    let large = "x".repeat(1 << 19);
    let files = [file("a", &large), file("b", &large)];
    let mut tight: Value = serde_json::from_str(&volume(0o755, &files)).unwrap();
    tight["limit_bytes"] = 4096.into();
    assert_eq!(refused(client, "POST", "6", tight.to_string()).await, ErrorCode::Internal);
    sent(client, "POST", 6, volume(0o755, &files)).await;
    for number in [4, 6] {
        sent(client, "DELETE", number, String::new()).await;
    }
}

pub(super) async fn paths_in_volumes_are_covered(client: &Client) {
    let files = [
        file("shown", "shown\n"),
        file("secret", "secret\n"),
        directory("secrets"),
        file("secrets/key", "secret\n"),
        link("elsewhere", "/www/hello"),
        link("outside", "/proc/1/root"),
    ];
    sent(client, "POST", 7, volume(0o755, &files)).await;
    sent(client, "POST", 8, writable(0o1777)).await;
    let volumes = json!([
        {"volume": 7, "target": "/data", "read_only": true},
        {"volume": 8, "target": "/shared", "read_only": false},
        // What hides files is the machine's own, and not what is there.
        {"volume": 7, "file": "shown", "target": "/dev/null", "read_only": true},
    ]);
    let script = "cat /data/shown /data/secret /www/hello; ls /data/secrets
        (echo x > /shared/file) 2> /tmp/errors || echo closed";
    let mut spec = mounted("covered", script, volumes);
    spec["hidden_paths"] =
        json!(["/data/secret", "/data/secrets", "/data/elsewhere", "/data/absent"]);
    spec["read_only_paths"] = json!(["/shared", "/data/absent"]);
    let (reason, log) = run(client, spec.clone()).await;
    assert_eq!((reason, log.as_str()), (ExitReason::Exited(0), "shown\nclosed\n"));
    for field in ["hidden_paths", "read_only_paths"] {
        let mut spec = spec.clone();
        spec[field] = json!(["/data/outside"]);
        let error = client.start(spec).await.unwrap_err();
        assert!(error.message.contains("/data/outside: "), "{error:?}");
    }
    for number in [7, 8] {
        sent(client, "DELETE", number, String::new()).await;
    }
}
