//! The user of an instance's processes: user 0 in their own namespace, and to the kernel a user that no other
//! instance has.
//!
//! Linux limits some things per user that no cgroup limits: pipes, watches, queued signals, messages, locked
//! memory. The user belongs to the instance's own user namespace, which maps to 65,536 users of the machine.
//! The process joins it only in its last step: everything the sandbox is made of belongs to the machine's own
//! user 0, so an instance could not change it even with every capability in its namespace.

use rustix::{
    fs::fchown,
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Gid, Pid, Signal, Uid, WaitOptions, kill_process, waitpid},
    thread::{
        LinkNameSpaceType, UnshareFlags, move_into_link_name_space, set_thread_groups,
        set_thread_res_gid, set_thread_res_uid, unshare_unsafe,
    },
};
use squeezy_protocol::InstanceUser;
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd},
};

/// Users per instance: as many as programs may expect.
const COUNT: u32 = 1 << 16;
/// Kinds of namespaces, as named in `/proc/sys/user`.
const NAMESPACES: [&str; 8] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"];

/// The users of an instance.
#[derive(Debug)]
pub struct User {
    id: u32,
    namespace: File,
}

impl User {
    /// Creates the users of the instance with this number, which no other one may have at the same time.
    pub fn create(number: u32) -> io::Result<Self> {
        let id = first_id(number)?;
        Ok(Self { id, namespace: namespace(id)? })
    }

    /// The users of an instance that has this number, whose namespace this is.
    pub fn join(number: u32, namespace: File) -> io::Result<Self> {
        Ok(Self { id: first_id(number)?, namespace })
    }

    /// The machine's ID of the instance's user 0.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The user namespace, for idmapped mounts.
    pub fn namespace(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    /// Gives an open file to a user of the instance.
    pub fn own(&self, file: impl AsFd, who: &InstanceUser) -> io::Result<()> {
        let (user, group) = (self.id + u32::from(who.user), self.id + u32::from(who.group));
        fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
        Ok(())
    }

    /// Makes the calling process the instance's user 0, with every capability in its namespace and
    /// none outside. It must have one thread.
    pub fn assume(&self) -> io::Result<()> {
        set_thread_groups(&[])?;
        move_into_link_name_space(self.namespace(), Some(LinkNameSpaceType::User))?;
        set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
        set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
        Ok(())
    }

    /// Makes the calling process, which has become the instance's user 0, another user of it. Any but user 0 loses all
    /// capabilities.
    pub fn switch_to(who: &InstanceUser) -> io::Result<()> {
        let id = |number: &u16| u32::from(*number);
        let groups: Vec<Gid> =
            who.other_groups.iter().map(|group| Gid::from_raw(id(group))).collect();
        set_thread_groups(&groups)?;
        let group = Gid::from_raw(id(&who.group));
        set_thread_res_gid(group, group, group)?;
        let user = Uid::from_raw(id(&who.user));
        set_thread_res_uid(user, user, user)?;
        Ok(())
    }
}

/// The machine's ID of user 0 of the instance with this number.
fn first_id(number: u32) -> io::Result<u32> {
    // The first COUNT users are the machine's own.
    let id = number.checked_add(1).and_then(|number| number.checked_mul(COUNT));
    id.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Creates the namespace through a child: its first member must be an unprivileged process, and only a
/// process outside may write its user mappings.
fn namespace(id: u32) -> io::Result<File> {
    let (mut reader, mut writer) =
        pipe_with(PipeFlags::CLOEXEC).map(|(r, w)| (File::from(r), File::from(w)))?;
    // SAFETY: the sandbox has one thread, so its child may do whatever the sandbox may.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let said = match found(id) {
                Ok(pid) => pid,
                Err(error) => error.to_string(),
            };
            let _ = writer.write_all(said.as_bytes());
            drop(writer);
            loop {
                // SAFETY: pause takes no arguments. The parent ends this process.
                unsafe { libc::pause() };
            }
        }
        child => Pid::from_raw(child).ok_or(io::ErrorKind::InvalidData)?,
    };
    drop(writer);
    let namespace = said_by(&mut reader).and_then(|pid| {
        let users = format!("0 {id} {COUNT}\n");
        fs::write(format!("/proc/{pid}/uid_map"), &users)?;
        fs::write(format!("/proc/{pid}/gid_map"), &users)?;
        File::open(format!("/proc/{pid}/ns/user"))
    });
    kill_process(child, Signal::KILL)?;
    while let Err(error) = waitpid(Some(child), WaitOptions::empty()) {
        if error != Errno::INTR {
            return Err(error.into());
        }
    }
    namespace
}

fn said_by(reader: &mut File) -> io::Result<u32> {
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    text.parse().map_err(|_| io::Error::other(text))
}

/// In the child: becomes the user and creates the namespace, so that it is counted as the user's. Returns its
/// own PID from the machine's /proc, which is still mounted.
fn found(id: u32) -> io::Result<String> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    // SAFETY: this flag unshares neither the file table nor memory, and there is one thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // No other namespaces may be created in it or below it: each takes kernel memory, and is a way to gain
    // capabilities over what is in it.
    for kind in NAMESPACES {
        match fs::write(format!("/proc/sys/user/max_{kind}_namespaces"), "0") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(fs::read_link("/proc/self")?.to_string_lossy().into_owned())
}
