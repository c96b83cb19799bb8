//! A VM reads layers that the host writes to its pool while it runs.

mod common;

use common::{LONG, config, instance};
use squeezy_protocol::{ErrorCode, ExitReason, InstanceState, Layer, OutputKind, SignalRequest};
use squeezy_vmm::{OutputStream, Vm, VmError};
use std::{
    fs,
    os::unix::fs::{FileExt, symlink},
    path::Path,
    process::Command,
    sync::Arc,
    time::Duration,
};
use tokio::io::AsyncReadExt;

const POOL_BYTES: u64 = 1 << 30;
const PLACE: u64 = 768 << 20;

/// An image with busybox and a file that says `text`, of whole pages.
fn image(directory: &Path, text: &str) -> Vec<u8> {
    let tree = directory.join(text);
    fs::create_dir_all(tree.join("bin")).unwrap();
    fs::copy("/usr/bin/busybox", tree.join("bin/busybox")).expect("busybox-static is installed");
    symlink("busybox", tree.join("bin/sh")).unwrap();
    fs::write(tree.join("text"), text).unwrap();
    let file = directory.join("image");
    let made = Command::new("mkfs.erofs").arg("--quiet").args([&file, &tree]).status().unwrap();
    assert!(made.success(), "mkfs.erofs: {made}");
    let mut bytes = fs::read(file).unwrap();
    bytes.resize(bytes.len().next_multiple_of(Layer::GRANULE_BYTES as usize), 0);
    bytes
}

#[tokio::test]
async fn a_layer_is_read_where_the_host_has_just_written_it() {
    let directory = tempfile::tempdir().unwrap();
    let pool = Arc::new(tempfile::tempfile().unwrap());
    pool.set_len(POOL_BYTES).unwrap();
    let mut config = config("layers");
    config.pool = Some(pool.clone());
    let vm = Vm::start(config).await.unwrap();
    let agent = vm.agent().unwrap();
    // The second one is at the same place: nothing of the first may be left in the guest.
    for text in ["first", "second"] {
        let bytes = image(directory.path(), text);
        pool.write_all_at(&bytes, PLACE).unwrap();
        let layer = Layer { offset_bytes: PLACE, length_bytes: bytes.len() as u64 };
        agent.add_layer(layer).await.unwrap();
        let again = agent.add_layer(layer).await.unwrap_err();
        assert!(matches!(again, VmError::Agent { code: ErrorCode::Exists, .. }), "{again}");
        let script = "busybox cat /text; busybox head -c 3000000 /dev/zero; echo error >&2; busybox sleep 1000";
        let mut spec = instance(text, &["/bin/sh", "-c", script]);
        spec.layers = vec![PLACE];
        spec.output = OutputKind::Streams;
        agent.start(&spec).await.unwrap();
        // More than one answer may have on its way: whoever writes waits, and nobody else does.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let mut output = Vec::new();
        let mut stdout = agent.output(&spec.id, OutputStream::Output).await.unwrap();
        let mut stderr = agent.output(&spec.id, OutputStream::Error).await.unwrap();
        assert!(agent.output(&spec.id, OutputStream::Error).await.is_err());
        tokio::time::sleep(Duration::from_millis(500)).await;
        let busy = agent.remove_layer(PLACE).await.unwrap_err();
        assert!(matches!(busy, VmError::Agent { code: ErrorCode::Unavailable, .. }), "{busy}");
        output.resize(text.len() + 3_000_000, 1);
        stdout.read_exact(&mut output).await.unwrap();
        assert!(output.starts_with(text.as_bytes()));
        assert!(output[text.len()..].iter().all(|byte| *byte == 0));
        // Before the kill: what it has not written by then, it never will.
        let mut error = [0; 6];
        stderr.read_exact(&mut error).await.unwrap();
        assert_eq!(&error, b"error\n");
        agent.signal(&spec.id, SignalRequest { signal: 9, all: true }).await.unwrap();
        assert_eq!(stdout.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(stderr.read(&mut [0]).await.unwrap(), 0);
        let ended = agent.wait(&spec.id).await.unwrap();
        assert_eq!(ended.state, InstanceState::Ended(ExitReason::Killed(9)));
        agent.stop(&spec.id, Duration::ZERO).await.unwrap();
        agent.remove_layer(PLACE).await.unwrap();
    }
    vm.stop().await.unwrap();
}

/// Whoever reads output must hear that there is no more.
#[tokio::test]
async fn output_ends_with_the_vm() {
    let vm = Vm::start(config("output")).await.unwrap();
    let agent = vm.agent().unwrap();
    let layer = Layer { offset_bytes: 4096, length_bytes: 4096 };
    let none = agent.add_layer(layer).await.unwrap_err().to_string();
    assert!(none.contains("no drive for layers"), "{none}");
    let mut spec = instance("a", &["/bin/sh", "-c", "echo begun; sleep 1000"]);
    spec.output = OutputKind::Streams;
    agent.start(&spec).await.unwrap();
    let mut stdout = agent.output(&spec.id, OutputStream::Output).await.unwrap();
    let mut line = [0; 6];
    stdout.read_exact(&mut line).await.unwrap();
    assert_eq!(&line, b"begun\n");
    common::signal(vm.process_id(), "KILL");
    let end = tokio::time::timeout(LONG, stdout.read(&mut line)).await;
    assert!(!matches!(end, Ok(Ok(1..))), "{end:?}");
    assert!(end.is_ok(), "whoever reads still waits");
}
