//! A VM in plain QEMU, so that the agent's tests depend on no other component.

use crate::client::Client;
use squeezy_protocol::{PORT_NAME, network::Network};
use std::{
    env, fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
};

/// Sizes of the VM with partitions.
pub const PARTITIONS: u64 = 3;
pub const PARTITION_MIB: u64 = 128;
pub const SHARED_MIB: u64 = 128;

/// A running VM; killed when dropped.
pub struct Vm {
    qemu: Child,
    directory: tempfile::TempDir,
}

/// The files that the tests need; `Err` says what is missing and how to get it.
pub struct Artifacts {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
}

impl Artifacts {
    pub fn find() -> Result<Self, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let build = env::var_os("SQUEEZY_BUILD").map_or_else(|| root.join("build"), PathBuf::from);
        let kernel = env::var_os("SQUEEZY_TEST_KERNEL")
            .map_or_else(|| build.join("kernel/release/bzImage"), PathBuf::from);
        let found = Self { kernel, initramfs: build.join("initramfs.cpio") };
        for (path, way) in [
            (&found.kernel, "make kernel, or set SQUEEZY_TEST_KERNEL"),
            (&found.initramfs, "guest/image/initramfs.sh"),
        ] {
            if !path.exists() {
                return Err(format!("{} is missing: {way}", path.display()));
            }
        }
        for program in ["qemu-system-x86_64", "mkfs.erofs"] {
            let known = Command::new(program)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            if known.is_err() {
                return Err(format!("{program} is missing: install qemu-system-x86 erofs-utils"));
            }
        }
        Ok(found)
    }
}

impl Vm {
    /// Boots a VM with a busybox image.
    pub fn boot(artifacts: &Artifacts, port: &str) -> Self {
        Self::start(artifacts, port, "512", "", &[])
    }

    /// Boots a VM with a shared partition and `PARTITIONS` others, one of them plugged.
    pub fn boot_with_partitions(artifacts: &Artifacts, command_line: &str) -> Self {
        let command_line = format!(
            "memhp_default_state=online_movable squeezy.partition_size={PARTITION_MIB}M \
             squeezy.partitions={PARTITIONS} squeezy.shared_size={SHARED_MIB}M {command_line}"
        );
        let region_mib = SHARED_MIB + PARTITIONS * PARTITION_MIB;
        Self::start(
            artifacts,
            PORT_NAME,
            "512M,slots=1,maxmem=4G",
            &command_line,
            &[
                "-object".to_owned(),
                format!("memory-backend-ram,id=vmem,size={region_mib}M"),
                "-device".to_owned(),
                format!(
                    "virtio-mem-pci,id=vmem0,memdev=vmem,block-size=2M,requested-size={}M",
                    SHARED_MIB + PARTITION_MIB
                ),
            ],
        )
    }

    /// Requests that `count` partitions be plugged.
    pub async fn request(&self, count: u64) {
        let bytes = (SHARED_MIB + count * PARTITION_MIB) << 20;
        let set = serde_json::json!({"execute": "qom-set", "arguments": {
            "path": "/machine/peripheral/vmem0", "property": "requested-size", "value": bytes
        }});
        let stream = UnixStream::connect(self.directory.path().join("qmp.sock")).await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        for command in [serde_json::json!({"execute": "qmp_capabilities"}), set] {
            stream.get_mut().write_all(format!("{command}\n").as_bytes()).await.unwrap();
            // The greeting and events are lines, too.
            while !line.contains("\"return\"") {
                line.clear();
                assert!(stream.read_line(&mut line).await.unwrap() > 0, "QMP has ended");
                assert!(!line.contains("\"error\""), "{line}");
            }
            line.clear();
        }
    }

    fn start(
        artifacts: &Artifacts,
        port: &str,
        memory: &str,
        command_line: &str,
        more: &[String],
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        make_image(&at("image"), &at("image.erofs"));
        make_pool(directory.path());
        let qemu = Command::new("qemu-system-x86_64")
            .args(["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-m", memory, "-kernel"])
            .arg(&artifacts.kernel)
            .arg("-initrd")
            .arg(&artifacts.initramfs)
            .arg("-append")
            .arg(format!("console=ttyS0 panic=-1 quiet {command_line}"))
            .args(["-device", "virtio-serial-pci"])
            .args(["-device", &format!("virtserialport,name={port},chardev=agent"), "-chardev"])
            .arg(format!("socket,id=agent,path={},server=on,wait=off", at("agent.sock").display()))
            .arg("-drive")
            .arg(format!(
                "file={},if=none,id=image-0,format=raw,readonly=on",
                at("image.erofs").display()
            ))
            .args(["-device", "virtio-blk-pci,drive=image-0,serial=image-0", "-drive"])
            .arg(format!(
                "file={},if=none,id=image-1,format=raw,readonly=on",
                at("upper.erofs").display()
            ))
            .args(["-device", "virtio-blk-pci,drive=image-1,serial=image-1", "-drive"])
            .arg(format!("file={},if=none,id=pool,format=raw,readonly=on", at("pool").display()))
            .args(["-device", "virtio-blk-pci,drive=pool,serial=pool"])
            .args(["-netdev", "hubport,id=network,hubid=0", "-device"])
            .arg(format!(
                "virtio-net-pci,netdev=network,mac={},romfile=",
                Network::device_address(1)
            ))
            .arg("-serial")
            .arg(format!("file:{}", at("console").display()))
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", at("qmp.sock").display()))
            .args(more)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { qemu, directory }
    }

    /// Connects like the first host.
    pub async fn connect(&self) -> Client {
        Client::new(self.stream().await).await
    }

    /// Connects like a host that follows right after another, which may have died in the middle of a frame:
    /// if it gets no answers, it disconnects, waits long enough for the guest to notice, and reconnects.
    pub async fn connect_again(&self) -> Client {
        for _ in 0..10 {
            let client = self.connect().await;
            if answers(&client).await {
                // An answer to what the previous host left may come in between and end the connection.
                tokio::time::sleep(Duration::from_millis(300)).await;
                if answers(&client).await {
                    return client;
                }
            }
            drop(client);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("the agent does not answer the next host\n{}", self.console());
    }

    /// The port's byte stream.
    pub async fn stream(&self) -> UnixStream {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match UnixStream::connect(self.directory.path().join("agent.sock")).await {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}\n{}", self.console()),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The guest's console output.
    pub fn console(&self) -> String {
        let bytes = fs::read(self.directory.path().join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until QEMU has ended by itself.
    pub async fn ended(&mut self, within: Duration) {
        let deadline = Instant::now() + within;
        while self.qemu.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the VM is still running\n{}", self.console());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn answers(client: &Client) -> bool {
    let answer = client.try_call("GET", "/v1/info", "");
    matches!(tokio::time::timeout(Duration::from_secs(5), answer).await, Ok(Ok(_)))
}

impl Drop for Vm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("console of the VM:\n{}", self.console());
        }
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Where the layers are in the pool, in bytes; at the last place, there is none.
pub const BASE_LAYER: u64 = 1 << 20;
pub const UPPER_LAYER: u64 = 16 << 20;
pub const NO_LAYER: u64 = 24 << 20;
pub const LAYER_BYTES: u64 = 8 << 20;
pub const POOL_BYTES: u64 = 32 << 20;

/// Makes a drive with the image as a layer, and one above it that adds, changes and hides a file each.
fn make_pool(directory: &Path) {
    let at = |name: &str| directory.join(name);
    fs::create_dir_all(at("upper/www")).unwrap();
    fs::write(at("upper/www/hello"), "hello from above").unwrap();
    fs::write(at("upper/www/new"), "new").unwrap();
    // So overlayfs hides a file.
    fs::create_dir(at("upper/bin")).unwrap();
    let hidden =
        Command::new("mknod").arg(at("upper/bin/rm")).args(["c", "0", "0"]).status().unwrap();
    assert!(hidden.success(), "mknod: {hidden}");
    pack(&at("upper"), &at("upper.erofs"));
    let pool = fs::File::create(at("pool")).unwrap();
    pool.set_len(POOL_BYTES).unwrap();
    for (image, offset) in [("image.erofs", BASE_LAYER), ("upper.erofs", UPPER_LAYER)] {
        let bytes = fs::read(at(image)).unwrap();
        assert!(bytes.len() as u64 <= LAYER_BYTES);
        pool.write_all_at(&bytes, offset).unwrap();
    }
}

/// Makes an image with busybox and files for a web server.
fn make_image(tree: &Path, image: &Path) {
    for directory in ["bin", "www/cgi-bin", "proc", "kept"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    fs::copy("/usr/bin/busybox", tree.join("bin/busybox")).expect("busybox-static is installed");
    for applet in ["sh", "cat", "sleep", "httpd", "ls", "grep", "dd", "mkdir", "rm", "true"] {
        std::os::unix::fs::symlink("busybox", tree.join("bin").join(applet)).unwrap();
    }
    fs::write(tree.join("www/hello"), "hello").unwrap();
    for (name, body) in [("echo", "exec cat"), ("slow", "sleep 5; echo done")] {
        let text = format!("#!/bin/sh\necho 'Content-Type: text/plain'\necho\n{body}\n");
        let script = tree.join("www/cgi-bin").join(name);
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    pack(tree, image);
}

fn pack(tree: &Path, image: &Path) {
    let made = Command::new("mkfs.erofs")
        .arg("--quiet")
        .args([image, tree])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success(), "mkfs.erofs: {made}");
}
