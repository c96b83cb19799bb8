//! What an instance can see, and what it cannot reach.

use super::*;

pub(super) async fn an_instance_is_isolated(client: &Client) {
    let script = "
        echo pid $$; cat /proc/self/oom_score_adj; cat /proc/self/cgroup
        cat /proc/sys/kernel/hostname; ls /proc | grep -c '^[0-9]'
        echo x > /kept/file && cat /kept/file; ls /; ls /dev; ls /tmp
        echo 1 > /proc/sys/vm/drop_caches || echo read-only
        echo b > /proc/sysrq-trigger
        grep -E 'Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs|SigIgn|SigBlk' /proc/self/status
        ls -l /proc/self/fd; pwd; echo $A; cat /proc/net/dev; cat /proc/mounts
        kill -9 1; echo end";
    let mut spec = shell("isolated", script);
    spec["environment"]["A"] = "value".into();
    spec["working_directory"] = "/kept".into();
    let (reason, log) = run(client, spec).await;
    assert_eq!(reason, ExitReason::Exited(0), "{log}");
    for line in ["pid 2", "0", "isolated", "0::/", "x", "read-only", "/kept", "value", "end"] {
        assert!(log.lines().any(|l| l == line), "no line '{line}' in:\n{log}");
    }
    for set in ["CapPrm", "CapEff", "CapBnd", "CapAmb", "SigIgn", "SigBlk"] {
        assert!(log.contains(&format!("{set}:\t0000000000000000")), "{set} in:\n{log}");
    }
    assert!(log.contains("NoNewPrivs:\t1"), "{log}");
    // The next instance sees the image as it was.
    let (_, log) = run(client, shell("fresh", "ls /kept /www")).await;
    assert!(log.contains("hello") && !log.contains("file"), "{log}");
}

/// Needs a tmpfs with extended attributes under the overlay.
pub(super) async fn directories_of_the_image_can_be_replaced(client: &Client) {
    let script = "rm -r /www && mkdir /www && ls /www && echo new > /www/hello && cat /www/hello";
    let (reason, log) = run(client, shell("replace", script)).await;
    assert_eq!((reason, log.as_str()), (ExitReason::Exited(0), "new\n"));
}

/// `docs/threat-model.md` explains the checks.
pub(super) async fn the_machine_is_out_of_reach(client: &Client) {
    let script = "
        for file in buddyinfo interrupts kallsyms kcore keys kmsg kpagecgroup kpagecount kpageflags \
            pagetypeinfo partitions slabinfo softirqs sysrq-trigger timer_list vmallocinfo zoneinfo; do
            [ -z \"$(busybox head -c 1 /proc/$file 2>&1 | grep -vE 'denied|No such')\" ] || echo shows $file
        done
        for directory in /sys/kernel/mm/llfree /sys/kernel/mm/squeezy /sys/kernel/slab /sys/kernel/debug \
            /sys/kernel/tracing /sys/firmware /sys/block /sys/fs/cgroup /proc/pressure; do
            [ -z \"$(ls $directory 2>/dev/null)\" ] || echo shows $directory
        done
        for switch in /proc/sys/kernel/hostname /proc/sys/user/max_user_namespaces \
            /sys/kernel/mm/transparent_hugepage/enabled /proc/sysrq-trigger /proc/1/oom_score_adj; do
            (echo 1 > $switch) 2>/dev/null && echo writes $switch
        done
        busybox dmesg 2>/dev/null && echo reads messages
        busybox unshare -r true 2>/dev/null && echo makes namespaces
        ls /proc/1/root/ 2>/dev/null; ls /proc/1/fd 2>/dev/null
        kill -0 1 2>/dev/null && echo signals process 1
        for limit in fs/file-max fs/aio-max-nr kernel/threads-max kernel/pid_max; do cat /proc/sys/$limit; done
        cat /proc/sys/user/max_net_namespaces; cat /proc/sys/net/ipv4/tcp_no_metrics_save
        grep -c '^processor' /proc/cpuinfo; grep -c MemTotal /proc/meminfo
        set -- $(cat /proc/self/uid_map); echo map $1 $3; ls -lnd /www/hello / /tmp | busybox awk '{ print $3, $4 }'
        echo own > /www/hello && echo writes && ls -ln /www/hello | busybox awk '{ print $3 }'
        echo out > /dev/stdout; ulimit -n; ulimit -u; ulimit -i; ulimit -l; grep Seccomp: /proc/self/status";
    let (reason, log) = run(client, shell("nosy", script)).await;
    assert_eq!(reason, ExitReason::Exited(0), "{log}");
    let expected = "9223372036854775807\n1073741824\n4194304\n4194304\n0\n1\n2\n1\nmap 0 65536\n0 0\n0 0\n0 0\n\
        writes\n0\nout\n1024\n1024\n4096\n64\nSeccomp:\t2\n";
    assert_eq!(log, expected);
    // Ordinary memory of process 1.
    let (_, log) = run(client, shell("first", "grep RssAnon: /proc/1/status")).await;
    let kib: u64 = log.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect(&log);
    eprintln!("process 1 holds {kib} KiB");
    assert!(kib < 256, "{log}");
    let mut spec = shell(
        "free",
        "grep Seccomp: /proc/self/status; ulimit -l; busybox unshare -r true; echo $?",
    );
    spec["seccomp"] = "unconfined".into();
    let (_, log) = run(client, spec).await;
    assert!(log.starts_with("Seccomp:\t0\n8192\n") && log.ends_with("\n1\n"), "{log}");
}

/// What the kernel says of partitions and of its page allocator, which it does here.
pub(super) async fn what_others_use_is_hidden(client: &Client) {
    let info: Info = client.get("/v1/info").await;
    assert!(info.llfree.is_some(), "the kernel says nothing that could be hidden: {info:?}");
    let script = "
        for directory in /sys/kernel/mm/llfree /sys/kernel/mm/squeezy; do
            [ -d $directory ] || echo no $directory
            [ -z \"$(ls $directory)\" ] || echo shows $directory
        done";
    let (reason, log) = run(client, shell("curious", script)).await;
    assert_eq!((reason, log.as_str()), (ExitReason::Exited(0), ""));
}

/// Two instances at the same time are two different users.
pub(super) async fn instances_are_users_of_their_own(client: &Client) {
    let script = "set -- $(cat /proc/self/uid_map); echo $2; sleep 1000";
    for id in ["one", "two"] {
        client.start(shell(id, script)).await.unwrap();
    }
    let mut users = Vec::new();
    for id in ["one", "two"] {
        while client.log(id).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        users.push(client.log(id).await.trim().parse::<u32>().unwrap());
        client.delete(id, 0).await;
    }
    assert!(users[0] != users[1] && users.iter().all(|user| *user >= 65536), "{users:?}");
}
