//! Checks whether /dev/kvm runs ordinary kernel code at the processor's speed.
//!
//! A throw-away VM of 8 MiB runs a few bytes of 64-bit code in ring 0: 200,000 iterations of a
//! loop, then `lock cmpxchg16b` (the fast path of Linux's slab allocator), then an `out`. On some
//! machines /dev/kvm claims every capability, but runs this a thousand times too slowly or stops
//! with an internal error.

use kvm_bindings::{
    CpuId, KVM_MAX_CPUID_ENTRIES, kvm_regs, kvm_segment, kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, VcpuExit};
use std::{
    fs::File,
    io::{ErrorKind, Read},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::{Duration, Instant},
};

/// Iterations of the loop.
const TRIPS: u64 = 200_000;
/// Nanoseconds per iteration above which the code is not running on hardware (0.3 to 1 ns).
const LIMIT_NS: f64 = 50.0;
/// How long the probe may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Memory of the throw-away VM.
const MEMORY_BYTES: usize = 8 << 20;

/// Nanoseconds per loop iteration under KVM, or why KVM cannot be used.
///
/// Runs in a child process, because a broken KVM may never return from running the guest.
pub fn probe_kvm() -> Result<f64, String> {
    let (reader, writer) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| e.to_string())?;
    // SAFETY: the child makes system calls, allocates (which the C library allows after a fork),
    // and leaves with _exit. It takes no lock that another thread of the parent could have held.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(format!("fork: {}", std::io::Error::last_os_error()));
    }
    if child == 0 {
        let verdict = run_guest();
        let text = match &verdict {
            Ok(ns) => format!("+{ns}"),
            Err(reason) => format!("-{reason}"),
        };
        // SAFETY: plain system calls on a buffer and a descriptor that outlive them.
        unsafe {
            libc::write(writer.as_raw_fd(), text.as_ptr().cast(), text.len());
            libc::_exit(0);
        }
    }
    drop(writer);
    let verdict = read_verdict(reader);
    // SAFETY: the child has not been waited for, so its pid cannot have been reused.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    verdict
}

/// Reads the child's verdict, for at most the time the probe may take.
fn read_verdict(reader: OwnedFd) -> Result<f64, String> {
    let mut poll = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let limit = i32::try_from(TIMEOUT.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one valid pollfd.
    if unsafe { libc::poll(&mut poll, 1, limit) } <= 0 {
        return Err(format!("the probe's guest did not finish within {} s", TIMEOUT.as_secs()));
    }
    let mut text = String::new();
    File::from(reader).take(500).read_to_string(&mut text).map_err(|e| e.to_string())?;
    match text.strip_prefix('+').and_then(|ns| ns.parse::<f64>().ok()) {
        Some(ns) if ns > LIMIT_NS => Err(format!(
            "kernel code takes {ns:.0} ns per loop iteration: it is emulated, not executed"
        )),
        Some(ns) => Ok(ns),
        None if text.is_empty() => Err("the probe crashed".to_owned()),
        None => Err(text.trim_start_matches('-').to_owned()),
    }
}

/// Why there is no KVM, and what the user can do about it.
fn not_opened(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "this user may not open /dev/kvm: join its group with `sudo usermod -aG kvm $USER`, and log in again".to_owned()
        }
        _ => format!("/dev/kvm: {error}"),
    }
}

/// Sets up the VM, runs it, and returns the nanoseconds per loop iteration.
fn run_guest() -> Result<f64, String> {
    let failed = |what: &'static str| move |e: kvm_ioctls::Error| format!("{what}: {e}");
    // SAFETY: a constant, NUL-terminated path.
    let fd = unsafe { libc::open(c"/dev/kvm".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(not_opened(&std::io::Error::last_os_error()));
    }
    // SAFETY: the descriptor was just opened and nothing else owns it.
    let kvm = unsafe { Kvm::from_raw_fd(fd) };
    if kvm.get_api_version() != 12 {
        return Err("the KVM API is not version 12".to_owned());
    }
    let vm = kvm.create_vm().map_err(failed("KVM_CREATE_VM"))?;
    // SAFETY: a new anonymous mapping, which lives until the process exits.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            MEMORY_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(format!("mmap: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: the mapping has this length, is writable, and nothing else refers to it yet.
    fill(unsafe { std::slice::from_raw_parts_mut(memory.cast::<u8>(), MEMORY_BYTES) });
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: MEMORY_BYTES as u64,
        userspace_addr: memory as u64,
    };
    // SAFETY: the mapping outlives the VM.
    unsafe { vm.set_user_memory_region(region) }.map_err(failed("KVM_SET_USER_MEMORY_REGION"))?;
    // Some Intel processors need it; others reject it.
    let _ = vm.set_tss_address(0x7ffb_d000);
    let mut vcpu = vm.create_vcpu(0).map_err(failed("KVM_CREATE_VCPU"))?;
    let cpuid: CpuId = kvm
        .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
        .map_err(failed("KVM_GET_SUPPORTED_CPUID"))?;
    vcpu.set_cpuid2(&cpuid).map_err(failed("KVM_SET_CPUID2"))?;

    let mut sregs = vcpu.get_sregs().map_err(failed("KVM_GET_SREGS"))?;
    let segment = |selector, type_, db, l| kvm_segment {
        base: 0,
        limit: 0xffff_ffff,
        selector,
        type_,
        present: 1,
        dpl: 0,
        db,
        s: 1,
        l,
        g: 1,
        ..Default::default()
    };
    let data = segment(16, 3, 1, 0);
    sregs.cs = segment(8, 11, 0, 1);
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    (sregs.gdt.base, sregs.gdt.limit) = (0x6000, 23);
    (sregs.idt.base, sregs.idt.limit) = (0x7000, 0);
    (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (0x8005_0033, 0x1000, 0x220, 0xd01);
    vcpu.set_sregs(&sregs).map_err(failed("KVM_SET_SREGS"))?;
    let regs = kvm_regs {
        rip: 0x20_0000,
        rsp: 0x30_0000,
        rbx: 0x40_0000,
        rcx: TRIPS,
        rflags: 2,
        ..Default::default()
    };
    vcpu.set_regs(&regs).map_err(failed("KVM_SET_REGS"))?;

    let started = Instant::now();
    let exit = vcpu.run().map_err(failed("KVM_RUN"))?;
    let ns = started.elapsed().as_nanos() as f64 / TRIPS as f64;
    match exit {
        VcpuExit::IoOut(0xe9, _) => Ok(ns),
        VcpuExit::InternalError => Err(format!(
            "it stops at an instruction it cannot emulate (internal error), after {ns:.0} ns per loop iteration"
        )),
        other => Err(format!(
            "the probe's guest stopped with {other:?} after {ns:.0} ns per loop iteration"
        )),
    }
}

/// Writes segments, the code, and page tables that map the first 8 MiB to themselves.
fn fill(memory: &mut [u8]) {
    let mut quad = |at: usize, value: u64| memory[at..at + 8].copy_from_slice(&value.to_le_bytes());
    quad(0x1000, 0x2003);
    quad(0x2000, 0x3003);
    for i in 0..4 {
        quad(0x3000 + 8 * i, (i as u64) << 21 | 0x83);
    }
    quad(0x6008, 0x00af_9b00_0000_ffff);
    quad(0x6010, 0x00cf_9300_0000_ffff);
    let code = [
        0x48, 0x83, 0xc0, 0x01, // again: add rax, 1
        0x48, 0xff, 0xc9, //        dec rcx
        0x75, 0xf7, //              jnz again
        0xf0, 0x48, 0x0f, 0xc7, 0x0b, // lock cmpxchg16b [rbx]
        0x66, 0xba, 0xe9, 0x00, //  mov dx, 0xe9
        0xee, //                    out dx, al
        0xf4, //                    hlt
    ];
    memory[0x20_0000..0x20_0000 + code.len()].copy_from_slice(&code);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_open_kvm_is_told_how_to() {
        let denied = not_opened(&std::io::Error::from_raw_os_error(libc::EACCES));
        assert!(denied.contains("usermod -aG kvm") && denied.contains("log in again"), "{denied}");
        let missing = not_opened(&std::io::Error::from_raw_os_error(libc::ENOENT));
        assert_eq!(missing, "/dev/kvm: No such file or directory (os error 2)");
    }
}
