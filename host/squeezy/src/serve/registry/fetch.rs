//! Gets images from registries, with skopeo.

use super::{
    Progress, PullError, Reference, WorkDirectory,
    disk::take,
    proxy::{Noted, Proxy},
};
use crate::serve::{config::RegistryEntry, log::log_warning};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use squeezy_openwhisk::Digest;
use squeezy_sandbox::Sandbox;
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The maximum size of a manifest, in bytes.
const MOST_MANIFEST_BYTES: usize = 4 << 20;

/// What the layers of one image may take as they are, in bytes.
const MOST_LAYERS_BYTES: u64 = 16 << 30;

/// The maximum number of layers, as in Docker.
const MOST_LAYERS: usize = 127;

/// How much more than its layers an image may take: its description and unfinished files' ends, in bytes.
const DESCRIPTION_BYTES: u64 = 16 << 20;

/// How often the progress of a transfer is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// How long a transfer may be without a byte.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Where skopeo finds whose certificates to trust, and what `localhost` is.
const SYSTEM_FILES: [&str; 4] = ["/etc/ssl", "/etc/pki", "/etc/hosts", "/etc/nsswitch.conf"];

/// Name of the file with credentials in the directory of a pull.
pub const CREDENTIALS: &str = "auth.json";

/// How a registry is reached.
pub struct Access<'a> {
    /// What the configuration says of it.
    pub entry: &'a RegistryEntry,
    /// Whether there is a file with credentials.
    pub has_credentials: bool,
    /// Whether it is for the operator's namespace.
    pub is_guest: bool,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    manifests: Vec<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: Digest,
    size: u64,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

/// An image in a registry whose manifest has been read.
pub struct Found {
    /// The digest of the manifest, which names exactly one image.
    digest: Digest,
    /// What its layers take as they are, in bytes.
    pub layers_bytes: u64,
}

/// The digest that a reference means now.
pub async fn resolve(
    work: &Path,
    access: &Access<'_>,
    reference: &Reference,
) -> Result<Digest, PullError> {
    let name = Reference { digest: None, ..reference.clone() };
    let raw = manifest(work, access, &name.to_string()).await?;
    Ok(Digest::of_sum(Sha256::digest(raw).into()))
}

/// Reads the manifest with this digest, or of the image for this machine, if it is a list.
pub async fn find(
    work: &Path,
    access: &Access<'_>,
    reference: &Reference,
    digest: &Digest,
) -> Result<Found, PullError> {
    let mut digest = digest.clone();
    // A list of lists is nothing that anybody makes.
    for _ in 0..2 {
        let raw = manifest(work, access, &reference.at(&digest)).await?;
        if Digest::of_sum(Sha256::digest(&raw).into()) != digest {
            return Err(PullError::Registry(format!(
                "the registry has another image under {digest}"
            )));
        }
        let manifest: Manifest = serde_json::from_slice(&raw).map_err(|error| {
            PullError::Image(format!("its manifest is not one of OCI or Docker: {error}"))
        })?;
        if manifest.manifests.is_empty() {
            return found(digest, &manifest.layers);
        }
        let is_ours =
            |platform: &Platform| platform.os == "linux" && platform.architecture == "amd64";
        let ours =
            manifest.manifests.into_iter().find(|one| one.platform.as_ref().is_some_and(is_ours));
        digest = match ours {
            Some(ours) => ours.digest,
            None => {
                return Err(PullError::Image(
                    "it is for other machines, not for linux on amd64".into(),
                ));
            }
        };
    }
    Err(PullError::Image("its manifest is a list of lists".into()))
}

fn found(digest: Digest, layers: &[Descriptor]) -> Result<Found, PullError> {
    if layers.is_empty() || layers.len() > MOST_LAYERS {
        return Err(PullError::Image(format!(
            "it has {} layers, and must have 1 to {MOST_LAYERS}",
            layers.len()
        )));
    }
    let layers_bytes = layers.iter().fold(0, |sum: u64, layer| sum.saturating_add(layer.size));
    if layers_bytes > MOST_LAYERS_BYTES {
        return Err(PullError::Image(format!(
            "its layers have {} GiB, more than {}",
            layers_bytes >> 30,
            MOST_LAYERS_BYTES >> 30
        )));
    }
    Ok(Found { digest, layers_bytes })
}

async fn manifest(work: &Path, access: &Access<'_>, image: &str) -> Result<Vec<u8>, PullError> {
    let mut arguments = vec!["skopeo".to_owned(), "inspect".into(), "--raw".into()];
    arguments.extend(options(access, ""));
    arguments.push(format!("docker://{image}"));
    let raw = skopeo(work, access, image, arguments, DESCRIPTION_BYTES, MOST_MANIFEST_BYTES);
    let raw = tokio::time::timeout(Duration::from_secs(120), raw).await;
    raw.map_err(|_| PullError::Registry("the registry does not answer".into()))?
}

/// Runs skopeo for an image; returns what it writes, of which there may be `most`, in bytes.
async fn skopeo(
    work: &Path,
    access: &Access<'_>,
    image: &str,
    arguments: Vec<String>,
    most_file_bytes: u64,
    most: usize,
) -> Result<Vec<u8>, PullError> {
    let ca_file = access.entry.ca_file.iter().map(|file| (file.clone(), "/certificates/ca.crt"));
    let there = SYSTEM_FILES.into_iter().filter(|file| Path::new(file).exists());
    let files = there.map(|file| (PathBuf::from(file), file)).chain(ca_file).collect();
    let sandbox = Sandbox { work, files, most_file_bytes };
    // What is encrypted is a little longer, and skopeo may begin again once.
    let proxy = Proxy::new(access.entry, access.is_guest, most_file_bytes.saturating_mul(2))?;
    let said = proxy.run(&sandbox, arguments, most).await;
    said.map_err(|error| PullError::of_tool(error, |said| reason(image, &said, proxy.noted())))
}

/// Gets an image as the layout `layout` in a directory.
pub async fn copy(
    directory: &WorkDirectory,
    access: &Access<'_>,
    reference: &Reference,
    found: &Found,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(), PullError> {
    let mut arguments = vec!["skopeo".to_owned(), "copy".into(), "--quiet".into()];
    arguments.extend(["--insecure-policy".into(), "--tmpdir".into(), "/work".into()]);
    arguments.extend(options(access, "src-"));
    let image = reference.at(&found.digest);
    arguments.extend([format!("docker://{image}"), "oci:layout:image".into()]);
    let most = found.layers_bytes + DESCRIPTION_BYTES;
    let copying = skopeo(directory.path(), access, &image, arguments, most, 1 << 20);
    let mut copying = std::pin::pin!(copying);
    let (mut last, mut since) = (0, Instant::now());
    loop {
        tokio::select! {
            copied = &mut copying => return copied.map(drop),
            () = tokio::time::sleep(LOOK) => {}
        }
        let bytes = size(directory.path());
        if bytes > most {
            return Err(PullError::Image("its layers are longer than its manifest says".into()));
        }
        take(directory, bytes).await?;
        if bytes != last {
            (last, since) = (bytes, Instant::now());
        }
        if since.elapsed() > LONGEST_PAUSE {
            let seconds = LONGEST_PAUSE.as_secs();
            return Err(PullError::Registry(format!("nothing has arrived for {seconds} s")));
        }
        progress(Progress {
            step: "fetching".into(),
            bytes: bytes.min(found.layers_bytes),
            of: found.layers_bytes,
        });
    }
}

/// Why a registry does not give an image. What it says itself goes to the log only: it may send skopeo to other
/// machines, and whoever asks for an image would hear what these answer.
fn reason(image: &str, said: &str, noted: Option<Noted>) -> PullError {
    log_warning(&format!("{image}: {said}"));
    if let Some(noted) = noted {
        log_warning(&format!("{image}: {}", noted.log));
        if let Some(reason) = noted.reason {
            return PullError::Registry(reason.to_owned());
        }
    }
    let said = said.to_lowercase();
    let is = |parts: &[&str]| parts.iter().any(|part| said.contains(part));
    PullError::Registry(if is(&["manifest unknown", "name unknown"]) {
        "the registry has no such image".to_owned()
    } else if is(&["unauthorized", "authentication required", "denied"]) {
        "the registry does not accept the daemon's credentials for it, or wants some".to_owned()
    } else {
        "the registry cannot be reached, or does not give it; the daemon's log says more".to_owned()
    })
}

/// Options of skopeo for what it reads from.
fn options(access: &Access<'_>, prefix: &str) -> Vec<String> {
    let RegistryEntry { plain_http, ca_file, .. } = access.entry;
    let mut options = vec![format!("--{prefix}tls-verify={}", !plain_http)];
    if ca_file.is_some() {
        options.push(format!("--{prefix}cert-dir=/certificates"));
    }
    if access.has_credentials {
        options.push(format!("--authfile=/work/{CREDENTIALS}"));
    }
    options
}

/// What the files below a directory of ours take, in bytes. It has few.
fn size(directory: &Path) -> u64 {
    let mut directories: Vec<PathBuf> = vec![directory.to_owned()];
    let mut bytes = 0;
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => directories.push(entry.path()),
                Ok(metadata) => bytes += metadata.len(),
                // It has just been renamed.
                Err(_) => {}
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(size: u64) -> Descriptor {
        Descriptor { digest: Digest::of_sum([1; 32]), size, platform: None }
    }

    #[test]
    fn what_is_too_much_is_refused_before_it_is_fetched() {
        let digest = || Digest::of_sum([0; 32]);
        let bytes =
            |layers: Vec<Descriptor>| found(digest(), &layers).map(|found| found.layers_bytes);
        assert_eq!(bytes(vec![layer(1), layer(2)]).unwrap(), 3);
        for wrong in [
            vec![],
            vec![layer(MOST_LAYERS_BYTES + 1)],
            vec![layer(u64::MAX), layer(u64::MAX)],
            (0..=MOST_LAYERS).map(|_| layer(1)).collect(),
        ] {
            assert!(matches!(bytes(wrong), Err(PullError::Image(_))));
        }
    }

    #[test]
    fn what_other_machines_say_is_not_repeated() {
        for said in [
            "Get \"http://169.254.169.254/token\": dial tcp 169.254.169.254:80: connect: connection refused",
            "Requesting bearer token: invalid status code from registry 418 (secret)",
            "manifest unknown: secret 169.254.1.1",
            "unauthorized: secret 169.254.1.1",
        ] {
            let error = reason("r.example/a:1", said, None).to_string();
            assert!(
                !["secret", "169.254", "refused", "418"].iter().any(|part| error.contains(part))
            );
        }
    }
}
