//! Where kubelet has its pods among the host's control groups.

use std::path::{Component, Path, PathBuf};

/// The name of the group in which kubelet has all pods, whichever classes they are of.
const PODS: &str = "kubepods";

/// The group of all pods, from where groups are mounted, of the path of one that is for a sandbox: `SLICE:PREFIX:NAME`
/// where systemd makes groups, else a path. The innermost one, if kubelet is in a pod itself; `None` if kubelet has not
/// made it.
pub(super) fn of_pods(path: &str) -> Option<PathBuf> {
    match path.split_once(':') {
        Some((slice, _)) => slice_of_pods(slice.strip_suffix(".slice")?),
        None => path_of_pods(Path::new(path.strip_prefix('/')?)),
    }
}

/// A slice is in those whose names are what its own begins with, up to one of its hyphens.
fn slice_of_pods(name: &str) -> Option<PathBuf> {
    let (mut path, mut found) = (PathBuf::new(), None);
    let mut slice = String::new();
    for part in name.split('-') {
        if part.is_empty() || part.contains('/') {
            return None;
        }
        if !slice.is_empty() {
            slice.push('-');
        }
        slice.push_str(part);
        path.push(format!("{slice}.slice"));
        if part == PODS {
            found = Some(path.clone());
        }
    }
    found
}

fn path_of_pods(path: &Path) -> Option<PathBuf> {
    let (mut walked, mut found) = (PathBuf::new(), None);
    for part in path.components() {
        let Component::Normal(name) = part else { return None };
        walked.push(name);
        if name == PODS {
            found = Some(walked.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_all_pods_is_found_by_that_of_a_sandbox() {
        for (path, pods) in [
            ("/kubepods/burstable/pod1-2/5f", Some("kubepods")),
            ("/kubepods/pod1-2/5f", Some("kubepods")),
            ("/own/kubepods/besteffort/pod1-2/5f", Some("own/kubepods")),
            (
                "/kubepods/burstable/pod3/4e/kubepods/pod1-2/5f",
                Some("kubepods/burstable/pod3/4e/kubepods"),
            ),
            ("kubepods-burstable-pod1_2.slice:cri-containerd:5f", Some("kubepods.slice")),
            ("own-kubepods-pod1_2.slice:cri-containerd:5f", Some("own.slice/own-kubepods.slice")),
            ("/k8s.io/5f", None),
            ("/default/one", None),
            ("/../kubepods/pod1/5f", None),
            ("kubepods/pod1/5f", None),
            ("../kubepods-pod1.slice:cri-containerd:5f", None),
            ("system.slice:cri-containerd:5f", None),
            ("kubepods:cri-containerd:5f", None),
            ("--kubepods.slice:a:b", None),
            (":", None),
            ("", None),
        ] {
            assert_eq!(of_pods(path), pods.map(PathBuf::from), "{path}");
        }
    }
}
