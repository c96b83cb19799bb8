//! Parts of directories that a pod's containers share (`subPath`).
//!
//! kubelet mounts a part at a path that says nothing of where in the directory it is. The kernel's list of mounts does.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// What is a part of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The directory, as it would be the source of a volume.
    pub directory: PathBuf,
    /// The path in it; nothing if it is all of it.
    pub path: Option<String>,
}

/// The part of a directory that kubelet has mounted at `source`, .../pods/ID/volume-subpaths/VOLUME/CONTAINER/NUMBER.
/// Nothing if what is there is of no directory that containers share.
///
/// # Errors
/// `source` is not there, or the mounts cannot be read.
pub fn part(source: &Path) -> io::Result<Option<Part>> {
    let Some(directory) = directory(source) else { return Ok(None) };
    // The kernel's list has no links.
    let found = match directory.canonicalize() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some((parent, name)) = source.parent().zip(source.file_name()) else { return Ok(None) };
    // What is mounted there may be of a file system that does not answer.
    let place = parent.canonicalize()?.join(name);
    let mounts = fs::read("/proc/self/mountinfo")?;
    Ok(path_in(&String::from_utf8_lossy(&mounts), &place, &found)
        .map(|path| Part { directory, path: Some(path).filter(|path| !path.is_empty()) }))
}

/// The directory that a part would be of.
fn directory(source: &Path) -> Option<PathBuf> {
    let mut above = source.ancestors().skip(2);
    let volume = above.next()?.file_name()?;
    let pod = above.nth(1)?;
    Some(pod.join("volumes/kubernetes.io~empty-dir").join(volume))
}

/// Where in `directory` that is what is mounted at `place`, both without links.
fn path_in(mounts: &str, place: &Path, directory: &Path) -> Option<String> {
    let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
    // Of several at one place, the last one is on top.
    let part = mounts.iter().rfind(|mount| mount.place == place)?;
    let whole = mounts
        .iter()
        .filter(|mount| directory.starts_with(&mount.place))
        .max_by_key(|mount| mount.place.components().count())?;
    let root = whole.root.join(directory.strip_prefix(&whole.place).ok()?);
    if part.device != whole.device {
        return None;
    }
    part.root.strip_prefix(root).ok()?.to_str().map(str::to_owned)
}

/// A line of the kernel's list.
struct Mount<'a> {
    /// The number of its file system.
    device: &'a str,
    /// What of that file system is mounted.
    root: PathBuf,
    /// Where.
    place: PathBuf,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split(' ').skip(2);
        let (device, root, place) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Self { device, root: unescaped(root), place: unescaped(place) })
    }
}

fn unescaped(path: &str) -> PathBuf {
    let mut path = path.to_owned();
    // The last one is what all begin with.
    for (escaped, character) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
    {
        path = path.replace(escaped, character);
    }
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const POD: &str = "/var/lib/kubelet/pods/7d0c3b4e";

    /// A line as Linux writes it.
    fn line(device: &str, root: &str, place: &str) -> String {
        format!("87 28 {device} {root} {place} rw,relatime shared:1 - ext4 /dev/sda1 rw\n")
    }

    /// What is mounted of the empty directory `cache` at the first part of the container `main`.
    fn found(mounts: &[String]) -> Option<String> {
        let place = format!("{POD}/volume-subpaths/cache/main/0");
        let directory = format!("{POD}/volumes/kubernetes.io~empty-dir/cache");
        path_in(&mounts.concat(), Path::new(&place), Path::new(&directory))
    }

    #[test]
    fn a_part_is_found_wherever_its_directory_is_mounted() {
        let cache = format!("{POD}/volumes/kubernetes.io~empty-dir/cache");
        let place = format!("{POD}/volume-subpaths/cache/main/0");
        let root = line("8:1", "/", "/");
        let part = |below: &str| line("8:1", &format!("{cache}{below}"), &place);
        let logs = Some("logs/today".to_owned());
        assert_eq!(found(&[root.clone(), part("/logs/today")]), logs);
        assert_eq!(found(&[root.clone(), part("")]), Some(String::new()));
        assert_eq!(found(&[root.clone(), part("/a\\040\\134b")]), Some("a \\b".to_owned()));
        // A file system for kubelet, which has no more of the path than what is in it.
        let own = [
            root.clone(),
            line("8:2", "/kubelet", "/var/lib/kubelet"),
            line(
                "8:2",
                "/kubelet/pods/7d0c3b4e/volumes/kubernetes.io~empty-dir/cache/logs/today",
                &place,
            ),
        ];
        assert_eq!(found(&own), logs);
        // An empty directory in memory.
        let memory = [root.clone(), line("0:90", "/", &cache), line("0:90", "/logs/today", &place)];
        assert_eq!(found(&memory), logs);
        // It was mounted twice.
        assert_eq!(found(&[root, part("/old"), part("/logs/today")]), logs);
    }

    #[test]
    fn what_is_of_something_else_is_no_part() {
        let place = format!("{POD}/volume-subpaths/cache/main/0");
        let root = line("8:1", "/", "/");
        assert_eq!(found(&[]), None);
        assert_eq!(found(std::slice::from_ref(&root)), None);
        for (device, path) in [
            (
                "8:1",
                "/var/lib/kubelet/pods/other/volumes/kubernetes.io~empty-dir/cache/logs".to_owned(),
            ),
            ("8:1", format!("{POD}/volumes/kubernetes.io~empty-dir/cache-2/logs")),
            ("8:1", "/srv".to_owned()),
            ("0:77", format!("{POD}/volumes/kubernetes.io~empty-dir/cache/logs")),
        ] {
            assert_eq!(
                found(&[root.clone(), line(device, &path, &place)]),
                None,
                "{device} {path}"
            );
        }
        let odd = ["87 28 8:1".to_owned(), "\n\n \n".to_owned()];
        assert_eq!(found(&odd), None);
    }

    #[test]
    fn what_is_not_mounted_is_no_part() {
        let kubelet = TempDir::new().unwrap();
        let pod = kubelet.path().join("pods/7d0c3b4e");
        let source = pod.join("volume-subpaths/cache/main/0");
        // It is of something that no empty directory is.
        assert_eq!(part(&source).unwrap(), None);
        fs::create_dir_all(pod.join("volumes/kubernetes.io~empty-dir/cache")).unwrap();
        assert_eq!(part(&source).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir_all(&source).unwrap();
        assert_eq!(part(&source).unwrap(), None);
        for short in ["/", "/a", "/a/b/c"] {
            assert_eq!(part(Path::new(short)).unwrap(), None);
        }
    }
}
