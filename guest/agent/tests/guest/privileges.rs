//! What the processes of an instance may do beyond accessing their own files.

use super::*;

/// Those that containers have by default.
const DEFAULT: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SYS_CHROOT",
    "MKNOD",
    "AUDIT_WRITE",
    "SETFCAP",
];
/// The same as the kernel writes them.
const DEFAULT_SET: &str = "00000000a80425fb";

fn privileged(id: &str, script: &str, gained: bool) -> Value {
    let mut spec = shell(id, script);
    spec["privileges"] = json!({"capabilities": DEFAULT, "gained": gained});
    spec
}

pub(super) async fn capabilities_are_for_what_the_instance_has(client: &Client) {
    let script = "
        grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp:' /proc/self/status | busybox awk '{ print $2 }'
        echo x > /kept/file; busybox chown 7:8 /kept/file; busybox chmod 600 /kept/file; cat /kept/file
        busybox ls -ln /kept/file | busybox awk '{ print $3, $4 }'
        mkdir /etc; echo 'other:x:7:8::/:/bin/sh' > /etc/passwd
        busybox su other -c 'busybox id -u; busybox id -g'
        busybox chroot /bin /busybox echo in another root
        busybox httpd -p 80 -h /www && busybox wget -q -O - http://127.0.0.1/hello; echo
        busybox mknod /kept/null c 1 3 2>/dev/null && echo makes devices
        busybox mount -t tmpfs none /kept 2>/dev/null && echo mounts
        busybox hostname other 2>/dev/null && echo names
        busybox ip link set lo down 2>/dev/null && echo changes the network
        busybox nice -n -5 true 2>/dev/null && echo hurries
        busybox chown 7 /proc/sys/kernel/hostname 2>/dev/null && echo takes
        kill -9 1 2>/dev/null && echo kills process 1
        (echo 1 > /proc/sys/vm/drop_caches) 2>/dev/null && echo writes
        ls /proc/1/root/ 2>/dev/null; busybox unshare -r true 2>/dev/null && echo makes namespaces; true";
    for gained in [false, true] {
        let (reason, log) = run(client, privileged("able", script, gained)).await;
        let no_new_privs = u8::from(!gained);
        let zero = "0".repeat(16);
        let expected = format!(
            "{zero}\n{DEFAULT_SET}\n{DEFAULT_SET}\n{DEFAULT_SET}\n{zero}\n{no_new_privs}\n2\nx\n7 8\n7\n8\n\
             in another root\nhello\n"
        );
        assert_eq!((reason, log.as_str()), (ExitReason::Exited(0), expected.as_str()));
    }
    // Other users have none.
    let mut spec = privileged("other", "grep -E 'Cap(Prm|Bnd)' /proc/self/status", false);
    spec["user"] = json!({"user": 7, "group": 8});
    let (_, log) = run(client, spec).await;
    assert_eq!(log, format!("CapPrm:\t{}\nCapBnd:\t{DEFAULT_SET}\n", "0".repeat(16)));
}

pub(super) async fn a_program_gives_what_its_owner_may_if_that_is_allowed(client: &Client) {
    let script = "mkdir /etc; echo 'root::0:0::/:/bin/sh' > /etc/passwd
        for name in /su /tmp/su; do busybox cp /bin/busybox $name; busybox chmod 4755 $name; done
        echo ready; exec sleep 1000";
    for (gained, expected) in [(true, "0\n0\n"), (false, "")] {
        client.start(privileged("owner", script, gained)).await.unwrap();
        while client.log("owner").await != "ready\n" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let asks =
            "/su -c 'busybox id -u; busybox id -ru' 2>/dev/null; /tmp/su -c 'echo out' 2>/dev/null";
        let mut spec = privileged("asks", asks, true);
        spec["image"] = Value::Null;
        spec["company"] = json!({"inside": "owner"});
        spec["user"] = json!({"user": 7, "group": 8});
        assert_eq!(run(client, spec.clone()).await.1, expected);
        spec["privileges"]["gained"] = false.into();
        assert_eq!(run(client, spec).await.1, "");
        client.delete("owner", 0).await;
    }
}

pub(super) async fn limits_of_a_process_are_lowered(client: &Client) {
    let mut spec = shell(
        "limited",
        "ulimit -n; ulimit -Hn; ulimit -f; ulimit -l; cat /proc/self/oom_score_adj",
    );
    spec["resource_limits"] = json!([
        {"resource": "NOFILE", "soft": 100, "hard": 1_048_576},
        {"resource": "FSIZE", "soft": 1024, "hard": u64::MAX},
        {"resource": "MEMLOCK", "soft": u64::MAX, "hard": u64::MAX}
    ]);
    spec["oom_score_adj"] = 900.into();
    assert_eq!(run(client, spec).await.1, "100\n65536\n2\n64\n900\n");
}

pub(super) async fn a_root_is_as_the_spec_says(client: &Client) {
    let script = "cat /proc/sys/kernel/hostname; pwd; cat /www/hello; ls /www/cgi-bin
        for file in /proc/uptime /kept/new; do (echo x > $file) 2>/dev/null && echo writes $file; done
        cat /proc/version; exec 3<>/dev/ptmx && ls /dev/pts";
    let mut spec = shell("told", script);
    spec["host_name"] = "web.shop".into();
    spec["working_directory"] = "/srv/not/there".into();
    spec["pseudoterminals"] = true.into();
    spec["hidden_paths"] = json!(["/www/hello", "/www/cgi-bin", "/proc/version", "/no/such/path"]);
    spec["read_only_paths"] = json!(["/kept", "/no/such/path"]);
    let (reason, log) = run(client, spec).await;
    let expected = "web.shop\n/srv/not/there\n0\nptmx\n";
    assert_eq!((reason, log.as_str()), (ExitReason::Exited(0), expected));
}

/// One that lets nothing through but what comes before the program, and what that needs to say so.
pub(super) async fn a_filter_of_the_host_decides_too(client: &Client) {
    // Loads the number of the call; fails with EXDEV for mkdir, and lets all else through.
    const PROGRAM: [(u16, u8, u8, u32); 4] =
        [(0x20, 0, 0, 0), (0x15, 0, 1, 83), (0x06, 0, 0, 0x0005_0012), (0x06, 0, 0, 0x7fff_0000)];
    let filter = SystemCallFilter::new(PROGRAM.map(|(code, jump_true, jump_false, operand)| {
        Instruction { code, jump_true, jump_false, operand }
    }));
    for gained in [false, true] {
        let mut spec = privileged(
            "filtered",
            "mkdir /kept/new 2>&1; echo x > /kept/file && cat /kept/file",
            gained,
        );
        spec["filters"] = json!([filter]);
        let (_, log) = run(client, spec).await;
        assert!(log.contains("link") && log.ends_with("\nx\n"), "{log}");
    }
    let mut broken = shell("broken", "true");
    broken["filters"] = json!([SystemCallFilter::new([Instruction {
        code: 0xffff,
        jump_true: 0,
        jump_false: 0,
        operand: 0
    }])]);
    let error = client.start(broken).await.unwrap_err();
    assert!(error.message.contains("filtering system calls"), "{error:?}");
}
