//! A real registry, with a certificate and a password, and images that are pushed to it.

use crate::{certificate, common::free_address};
use std::{
    fs,
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};
use tempfile::TempDir;

const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The password of its only user.
pub const PASSWORD: &str = "this-is-the-secret";

/// That as htpasswd has it: `htpasswd -nbB tester this-is-the-secret`.
const HTPASSWD: &str = "tester:$2b$05$squeezysqueezysqueezyuAibY7KoD5RzxByBidQmEb34d.inLYvW";

pub struct Registry {
    process: Child,
    /// Host and port.
    pub host: String,
    pub ca_file: PathBuf,
    /// Credentials, in the form of containers-auth.json.
    pub auth_file: PathBuf,
    directory: TempDir,
}

impl Registry {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (ca_file, key) = certificate::make(directory.path(), "registry");
        fs::write(path("htpasswd"), HTPASSWD).unwrap();
        let address = free_address();
        let configuration = format!(
            "version: 0.1\nlog: {{ level: warn, accesslog: {{ disabled: true }} }}\n\
             storage: {{ filesystem: {{ rootdirectory: {:?} }}, delete: {{ enabled: true }} }}\n\
             http: {{ addr: {address:?}, tls: {{ certificate: {ca_file:?}, key: {key:?} }} }}\n\
             auth: {{ htpasswd: {{ realm: test, path: {:?} }} }}\n",
            path("data"),
            path("htpasswd"),
            address = address.to_string(),
        );
        fs::write(path("config.yml"), configuration).unwrap();
        let run = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/registry/run.sh");
        let mut command = Command::new(run);
        command.arg("serve").arg(path("config.yml"));
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let auth = format!(
            r#"{{ "auths": {{ "{address}": {{ "auth": "{}" }} }} }}"#,
            crate::common::base64(&format!("tester:{PASSWORD}"))
        );
        let auth_file = path("auth.json");
        fs::write(&auth_file, auth).unwrap();
        fs::set_permissions(&auth_file, fs::Permissions::from_mode(0o600)).unwrap();
        let registry = Self { process, host: address.to_string(), ca_file, auth_file, directory };
        crate::common::until("the registry", || TcpStream::connect(address).ok());
        registry
    }

    /// The daemon's configuration for it.
    pub fn configuration(&self) -> String {
        format!(
            "registry_auth = {:?}\nregistries = [{{ host = {:?}, ca_file = {:?} }}]\n",
            self.auth_file, self.host, self.ca_file
        )
    }

    /// Makes an image as Python says in `layers`, a list of layers, and `more`, and pushes it.
    pub fn push(&self, image: &str, layers: &str, more: &str) -> String {
        let layout = self.path("layout");
        let _ = fs::remove_dir_all(&layout);
        let make = format!(
            "import sys, os, gzip, tarfile\nfrom oci_image import *\nLayout(sys.argv[1], {layers}, {more})\n"
        );
        let mut python = Command::new("python3");
        python.args(["-c", &make]).arg(&layout).env("PYTHONDONTWRITEBYTECODE", "1");
        python.env("PYTHONPATH", Path::new(CHECKOUT).join("guest/image/tests"));
        succeeded(python.output().unwrap());
        self.push_layout(&layout, image, &[])
    }

    /// Pushes a layout; returns the reference.
    pub fn push_layout(&self, layout: &Path, image: &str, options: &[&str]) -> String {
        let certificates = self.path("certificates");
        fs::create_dir_all(&certificates).unwrap();
        fs::copy(&self.ca_file, certificates.join("ca.crt")).unwrap();
        let reference = format!("{}/{image}", self.host);
        let mut skopeo = Command::new("skopeo");
        skopeo.args(["copy", "--quiet", "--insecure-policy"]).args(options);
        skopeo.arg("--dest-cert-dir").arg(certificates).arg("--authfile").arg(&self.auth_file);
        skopeo.arg(format!("oci:{}", layout.display())).arg(format!("docker://{reference}"));
        succeeded(skopeo.output().unwrap());
        reference
    }

    /// A path in a directory of its own.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// From now on it does not answer.
    pub fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop();
    }
}

#[track_caller]
pub fn succeeded(output: Output) {
    assert!(output.status.success(), "{output:?}");
}

/// A pause in which something would happen, if it did.
pub fn moment() {
    std::thread::sleep(Duration::from_millis(500));
}
