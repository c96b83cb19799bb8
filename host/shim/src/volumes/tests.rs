use super::*;
use rustix::fs::{mkfifoat, stat, statfs};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};
use tempfile::TempDir;

fn why(source: &Path) -> String {
    copy(source).unwrap_err().to_string()
}

/// As kubelet makes a config map.
fn config_map(root: &Path, version: &str, text: &str) {
    fs::create_dir(root.join(version)).unwrap();
    fs::write(root.join(version).join("key"), text).unwrap();
    symlink(version, root.join("..new")).unwrap();
    fs::rename(root.join("..new"), root.join("..data")).unwrap();
}

#[test]
fn a_tree_is_copied_with_its_links() {
    let directory = TempDir::new().unwrap();
    config_map(directory.path(), "..1", "one");
    symlink("..data/key", directory.path().join("key")).unwrap();
    fs::set_permissions(directory.path().join("..1/key"), fs::Permissions::from_mode(0o4640))
        .unwrap();
    let copied = copy(directory.path()).unwrap();
    let files: Vec<_> =
        copied.volume.files.iter().map(|file| (file.path.as_str(), file.content.clone())).collect();
    let link = |to: &str| FileContent::Link(to.to_owned());
    let expected = [
        ("..1", FileContent::Directory),
        ("..1/key", FileContent::File(b"one".to_vec())),
        ("..data", link("..1")),
        ("key", link("..data/key")),
    ];
    assert_eq!(files, expected);
    assert_eq!(copied.volume.files[1].owner.mode, 0o4640);
    assert_eq!(copied.volume.limit_bytes, 2 * 4096 + OLD_BYTES);
    assert_eq!(copied.most_bytes(), copied.volume.limit_bytes + (2 * 4 + 2) * 1024);
    assert!(!copied.is_file);
    assert_eq!(copy(directory.path()).unwrap(), copied);
    config_map(directory.path(), "..2", "two");
    assert_ne!(copy(directory.path()).unwrap(), copied);
}

#[test]
fn a_file_is_copied_alone() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("hosts");
    fs::write(&path, "127.0.0.1 localhost\n").unwrap();
    let copied = copy(&path).unwrap();
    assert!(copied.is_file);
    assert_eq!(copied.volume.files[0].path, FILE);
    assert_eq!(copied.volume.limit_bytes, 4096 + ADDED_BYTES);
    assert_eq!(copied.most_bytes(), 4096 + (2 + 2) * 1024);
    copied.volume.check().unwrap();
    // The host's administrator may have made it a link.
    symlink(&path, directory.path().join("link")).unwrap();
    assert_eq!(copy(&directory.path().join("link")).unwrap(), copied);
}

#[test]
fn nothing_is_followed_out_of_a_tree() {
    let directory = TempDir::new().unwrap();
    let (inside, outside) = (directory.path().join("inside"), directory.path().join("outside"));
    for path in [&inside, &outside] {
        fs::create_dir(path).unwrap();
    }
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink(&outside, inside.join("directory")).unwrap();
    symlink(outside.join("secret"), inside.join("file")).unwrap();
    let copied = copy(&inside).unwrap();
    let is_link = |file: &VolumeFile| matches!(file.content, FileContent::Link(_));
    assert!(copied.volume.files.len() == 2 && copied.volume.files.iter().all(is_link));
}

#[test]
fn what_a_volume_cannot_be_is_refused() {
    let directory = TempDir::new().unwrap();
    let made = |name: &str| {
        let path = directory.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let fifo = made("fifo");
    mkfifoat(CWD, fifo.join("x"), Mode::RUSR | Mode::WUSR).unwrap();
    assert!(why(&fifo).contains("neither a file"), "{}", why(&fifo));
    assert!(why(&fifo.join("x")).contains("neither a file"));
    assert!(why(Path::new("/dev/zero")).contains("neither a file"));
    // Others of its kind never end.
    for source in ["/proc/version", "/proc/self/fdinfo"].map(Path::new) {
        assert!(why(source).contains("the host's kernel"), "{}", why(source));
    }
    let many = made("many");
    for number in 0..=Volume::MAX_FILES {
        fs::write(many.join(number.to_string()), "").unwrap();
    }
    assert!(why(&many).contains("1024 files"), "{}", why(&many));
    let large = made("large");
    fs::write(large.join("a"), vec![0; Volume::MAX_BYTES]).unwrap();
    copy(&large).unwrap();
    fs::write(large.join("b"), "x").unwrap();
    assert!(why(&large).contains("1 MiB"), "{}", why(&large));
    // It has no end.
    File::create(large.join("a")).unwrap().set_len(1 << 40).unwrap();
    assert!(why(&large.join("a")).contains("1 MiB"));
    let mut deep = made("deep");
    for _ in 0..Volume::MAX_DEPTH {
        deep.push("d");
        fs::create_dir(&deep).unwrap();
    }
    copy(&directory.path().join("deep")).unwrap();
    fs::write(deep.join("x"), "").unwrap();
    let deep = directory.path().join("deep");
    assert!(why(&deep).contains("8 directories"), "{}", why(&deep));
    assert!(copy(&directory.path().join("absent")).is_err());
    let odd = made("odd");
    fs::write(odd.join(Volume::NEW_NAME), "").unwrap();
    assert!(why(&odd).contains("no path"), "{}", why(&odd));
}

#[test]
fn an_owner_whom_no_container_has_is_refused() {
    let directory = TempDir::new().unwrap();
    let owned_by = |user: u32, group: u32| {
        let mut found = stat(directory.path()).unwrap();
        (found.st_uid, found.st_gid) = (user, group);
        owner(&found)
    };
    let owner = owned_by(65535, 65534).unwrap();
    assert_eq!((owner.user, owner.group), (65535, 65534));
    for (user, group, named) in [(65536, 0, "65536"), (0, 70000, "70000")] {
        let error = owned_by(user, group).unwrap_err().to_string();
        assert!(error.contains(&format!("above 65535, {named},")), "{error}");
    }
}

#[test]
fn a_report_is_written_back_only_to_a_file() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("report");
    fs::write(&path, "longer than what is written").unwrap();
    write_back(&path, b"why").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"why");
    write_back(&path, &vec![b'x'; ADDED_BYTES as usize + 1]).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), ADDED_BYTES);
    let link = directory.path().join("link");
    symlink(&path, &link).unwrap();
    write_back(&link, b"x").unwrap_err();
    write_back(directory.path(), b"x").unwrap_err();
    write_back(&directory.path().join("absent"), b"x").unwrap_err();
    let fifo = directory.path().join("fifo");
    mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    write_back(&fifo, b"x").unwrap_err();
}

#[test]
fn a_shared_directory_has_its_limits() {
    let directory = TempDir::new().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let volume = instead_of(directory.path(), 1 << 20, 100).unwrap();
    assert_eq!((volume.owner.mode, volume.limit_bytes, volume.limit_files), (0o1777, 1 << 20, 100));
    assert!(volume.writable);
    volume.check().unwrap();
    // One in memory has its own, if that is less.
    let memory = Path::new("/dev/shm");
    let found = statfs(memory).unwrap();
    assert_eq!(found.f_type, TMPFS);
    let limit_bytes = found.f_blocks * found.f_bsize.unsigned_abs();
    for (most, expected) in [(u64::MAX, limit_bytes), (limit_bytes - 1, limit_bytes - 1)] {
        assert_eq!(instead_of(memory, most, 100).unwrap().limit_bytes, expected);
    }
    fs::write(directory.path().join("file"), "").unwrap();
    instead_of(&directory.path().join("file"), 1, 1).unwrap_err();
}
