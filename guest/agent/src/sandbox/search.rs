//! Finds a program by its name.

use rustix::fs::{Access, access};
use std::path::Path;

/// Where programs are if the environment does not say, as in containerd's images.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The program of this name in the first directory of `path` that has it, in the root and the working directory of this
/// process. A name with a slash is a path already.
pub fn find(name: &str, path: Option<&String>) -> Option<String> {
    if name.contains('/') {
        return Some(name.to_owned());
    }
    let path = path.map_or(DEFAULT_PATH, String::as_str);
    let mut places = path.split(':').map(|directory| {
        // As everywhere, an empty entry is the working directory.
        let directory = if directory.is_empty() { "." } else { directory };
        format!("{directory}/{name}")
    });
    let is_program =
        |place: &String| Path::new(place).is_file() && access(place, Access::EXEC_OK).is_ok();
    places.find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn a_program_is_the_first_executable_file_of_its_name() {
        let root = tempfile::tempdir().unwrap();
        let at = |place: &str| root.path().join(place).to_str().unwrap().to_owned();
        for (directory, mode) in [("plain", 0o644), ("first", 0o755), ("second", 0o755)] {
            fs::create_dir(at(directory)).unwrap();
            fs::write(at(&format!("{directory}/tool")), "").unwrap();
            fs::set_permissions(at(&format!("{directory}/tool")), fs::Permissions::from_mode(mode))
                .unwrap();
        }
        fs::create_dir_all(at("directory/tool")).unwrap();
        let path = ["absent", "directory", "plain", "first", "second"].map(at).join(":");
        assert_eq!(find("tool", Some(&path)), Some(at("first/tool")));
        assert_eq!(find("other", Some(&path)), None);
        assert_eq!(find("./tool", Some(&path)).as_deref(), Some("./tool"));
        assert_eq!(find("sh", None).as_deref(), Some("/usr/bin/sh"));
    }
}
