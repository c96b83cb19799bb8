//! A daemon for a test, ended when the test ends.

#![allow(dead_code, unused_imports, reason = "every test uses a part of it")]

#[path = "../../../../scripts/executable.rs"]
mod executable;
#[path = "../../../../scripts/skip.rs"]
mod skip;

use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};
use tempfile::TempDir;

pub use executable::write_script;
pub use skip::skip;

/// A number from the environment.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is not a number")))
}

/// The directory of kernels and images, if they have been built.
pub fn build() -> Option<PathBuf> {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build");
    let there = ["kernel/release/bzImage", "initramfs.cpio", "images/html.erofs"];
    let missing: Vec<_> = there.iter().filter(|path| !build.join(path).exists()).collect();
    if missing.is_empty() {
        return build.canonicalize().ok();
    }
    skip(format_args!("{missing:?} have not been built: make kernel image"));
    None
}

/// The build directory, if it has this runtime.
pub fn build_with(runtime: &str) -> Option<PathBuf> {
    let build = build()?;
    if build.join(format!("images/{runtime}.erofs")).exists() {
        return Some(build);
    }
    skip(format_args!("{runtime} has not been built: make runtimes"));
    None
}

/// Copies the image of `functions/html` under another name, optionally with this Python program as
/// its server. Returns its configuration: one instance, in a VM that all such copies share.
pub fn copy_of_html(build: &Path, directory: &Path, name: &str, program: Option<&str>) -> String {
    let image = directory.join(format!("{name}.erofs"));
    fs::copy(build.join("images/html.erofs"), &image).unwrap();
    let definition = fs::read_to_string(build.join("images/html.toml")).unwrap();
    let mut definition: toml::Table = definition.parse().unwrap();
    definition.insert("name".to_owned(), name.into());
    if let Some(program) = program {
        let command = ["/usr/bin/python3", "-c", program].map(toml::Value::from).to_vec();
        definition.insert("command".to_owned(), command.into());
    }
    fs::write(image.with_extension("toml"), definition.to_string()).unwrap();
    format!("[[functions]]\npath = {image:?}\nvm = \"both\"\nconcurrency = 1\n")
}

/// A Python server. `handler` is the beginning of the class `Handler` up to the end of its
/// `do_POST`, which leaves the answer to a call in `answer`.
pub fn server(handler: &str) -> String {
    let answer = r#"
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.HTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
"#;
    format!("{handler}{answer}")
}

/// Creates a build directory with an empty kernel, initramfs and image of the function `f`. With
/// [`NO_VM`] its instances are so large that no host has enough memory for their VM, which is
/// detected before the VM starts.
pub fn empty_build(build: &Path) {
    for file in ["kernel/release/bzImage", "initramfs.cpio"] {
        let file = build.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    empty_image(build, "f");
}

/// A directory of its own with an [`empty_build`].
pub fn own_empty_build() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    empty_build(directory.path());
    directory
}

/// Adds the image of another such function; returns its path.
pub fn empty_image(build: &Path, name: &str) -> PathBuf {
    let definition = include_str!("../../../../functions/html/function.toml")
        .replace("name = \"html\"", &format!("name = {name:?}"))
        .replace("memory_limit = \"", "memory_limit = \"1T\" # \"");
    let images = build.join("images");
    fs::create_dir_all(&images).unwrap();
    fs::write(images.join(format!("{name}.toml")), definition).unwrap();
    let image = images.join(format!("{name}.erofs"));
    fs::write(&image, "").unwrap();
    image
}

/// The configuration for [`empty_build`].
pub const NO_VM: &str = "memory = \"64T\"\npolicy = \"static\"\naccelerator = \"tcg\"\n";

/// The program, isolated from the daemon and the files of the user who runs the test.
pub fn squeezy() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_squeezy"));
    let own = ["SQUEEZY_BUILD", "SQUEEZY_URL", "SQUEEZY_KEY_FILE"];
    let proxies = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
    for name in own.into_iter().chain(proxies) {
        command.env_remove(name);
    }
    command
}

/// `squeezy serve` with this configuration in a file in `directory`, and its state in `state`
/// there.
pub fn serve(directory: &Path, build: &Path, configuration: &str, functions: &[&Path]) -> Command {
    let file = directory.join("squeezy.toml");
    let own = "listen = \"127.0.0.1:0\"\nstate_directory = \"state\"\n";
    fs::write(&file, format!("{own}{configuration}")).unwrap();
    let mut command = squeezy();
    command.args(["serve", "--config"]).arg(&file).arg("--build").arg(build).args(functions);
    command
}

/// An address where nobody listens, another one each time, for a program that has to be told its port. The system gives
/// higher ports to those who leave the choice to it, so that this one is still free when the program begins to listen.
pub fn free_address() -> SocketAddr {
    const OF_EACH: u32 = 40;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Suites that run side by side have others.
    let first = 10_000 + std::process::id() % 500 * OF_EACH;
    let ports = (0..OF_EACH).map(|_| first + NEXT.fetch_add(1, Ordering::Relaxed) % OF_EACH);
    let mut addresses = ports.map(|port| SocketAddr::from(([127, 0, 0, 1], port as u16)));
    addresses.find(|address| TcpListener::bind(address).is_ok()).expect("a port that is free")
}

/// A running daemon.
pub struct Daemon {
    pub child: Child,
    lines: Mutex<Receiver<String>>,
    /// The URL it listens on.
    pub url: String,
    /// The header that contains its key.
    pub authorization: String,
    /// The directory with its configuration and its state.
    pub directory: PathBuf,
    own_directory: Option<TempDir>,
}

impl Daemon {
    /// Starts a daemon with a new state directory that serves the function `html`.
    pub fn start(build: &Path, configuration: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let html = build.join("images/html.erofs");
        let mut daemon = Self::start_in(directory.path(), build, configuration, &[&html]);
        daemon.own_directory = Some(directory);
        daemon
    }

    /// Starts a daemon in a directory that may have state of an earlier one.
    pub fn start_in(
        directory: &Path,
        build: &Path,
        configuration: &str,
        functions: &[&Path],
    ) -> Self {
        Self::spawn(serve(directory, build, configuration, functions), directory)
    }

    /// Starts what [`serve`] has returned for this directory.
    pub fn spawn(mut command: Command, directory: &Path) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                println!("{line}");
                let _ = sender.send(line);
            }
        });
        Self::attach(child, lines, directory)
    }

    /// Takes over a daemon that was started in this directory and writes these lines; waits until
    /// it serves.
    pub fn attach(child: Child, lines: Receiver<String>, directory: &Path) -> Self {
        let mut daemon = Self {
            child,
            lines: Mutex::new(lines),
            url: String::new(),
            authorization: String::new(),
            directory: directory.to_owned(),
            own_directory: None,
        };
        let first = daemon.says("serving on ");
        let (_, address) = first.split_once("serving on ").unwrap();
        daemon.url = address.split(',').next().unwrap().to_owned();
        let key = fs::read_to_string(daemon.key_file()).unwrap();
        daemon.authorization = format!("Basic {}", base64(key.trim()));
        daemon
    }

    pub fn key_file(&self) -> PathBuf {
        self.directory.join("state/key")
    }

    /// Sends a request; returns status and body.
    pub fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        self.ask_as(&self.authorization, method, path, body)
    }

    /// Sends a request with another key.
    pub fn ask_as(
        &self,
        authorization: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("{}/api/v1{path}", self.url))
            .header("Authorization", authorization);
        if body.is_some() {
            request = request.header("Content-Type", "application/json");
        }
        let body = body.map_or(String::new(), |body| body.to_string());
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(180)))
            .build()
            .new_agent();
        let mut answer = agent.run(request.body(body).unwrap()).unwrap();
        let status = answer.status().as_u16();
        // An action's code may have 16 MiB.
        let body = answer.body_mut().with_config().limit(64 << 20);
        let text = body.read_to_string().unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// The metrics as Prometheus reads them.
    pub fn metrics(&self) -> String {
        let scrape = ureq::get(format!("{}/metrics", self.url));
        let accept = "application/openmetrics-text;version=1.0.0";
        let scrape = scrape.header("Authorization", &self.authorization);
        let mut answer = scrape.header("Accept", accept).call().unwrap();
        let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
        assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
        answer.body_mut().read_to_string().unwrap()
    }

    /// Runs one of the clients.
    pub fn client(&self, arguments: &[&str]) -> Output {
        self.client_command(arguments).output().unwrap()
    }

    /// The command line of one of the clients.
    pub fn client_command(&self, arguments: &[&str]) -> Command {
        let mut command = squeezy();
        command.args(arguments).env("SQUEEZY_URL", &self.url);
        command.env("SQUEEZY_KEY_FILE", self.key_file());
        command
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Waits for a log line that contains `part`; returns the line.
    pub fn says(&self, part: &str) -> String {
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.lock().unwrap().recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("never: {part}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Whether a line since the last one that was waited for contains `part`.
    pub fn has_said(&self, part: &str) -> bool {
        self.lines.lock().unwrap().try_iter().any(|line| line.contains(part))
    }

    /// Whether its disk was so slow that it has told clients what was not written yet. Of one that has ended.
    pub fn was_slow(&self) -> bool {
        let is_it = |line: String| line.contains("before their activations are in");
        self.lines.lock().unwrap().iter().any(is_it)
    }

    /// The number of its VMs.
    pub fn vms(&self) -> usize {
        self.vm_processes().len()
    }

    /// The process ids of its VMs.
    pub fn vm_processes(&self) -> Vec<u32> {
        let own = self.child.id().to_string();
        let list = Command::new("pgrep").args(["-P", &own, "qemu"]).output().unwrap();
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        list.split_whitespace().map(|id| id.parse().unwrap()).collect()
    }

    /// Kills its VMs.
    pub fn kill_vms(&self) {
        let own = self.child.id().to_string();
        let killed = Command::new("pkill").args(["-KILL", "-P", &own, "qemu"]).status();
        assert!(killed.unwrap().success());
    }

    /// Tells it to end, and waits until it has.
    pub fn stop(&mut self) {
        self.signal("TERM");
        assert!(self.child.wait().unwrap().success());
    }
}

/// Installs the Python packages in a requirements file of this checkout, unless an earlier run has;
/// returns where they are.
pub fn python_packages(name: &str, requirements: &str) -> Option<PathBuf> {
    let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(requirements);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let text = fs::read_to_string(&requirements).unwrap();
    let installed = directory.join("installed.txt");
    // Suites that run side by side need the same ones. Others wait until this returns.
    let turn = fs::File::create(directory.with_extension("lock")).unwrap();
    turn.lock().unwrap();
    if fs::read_to_string(&installed).is_ok_and(|earlier| earlier == text) {
        return Some(directory);
    }
    let _ = fs::remove_dir_all(&directory);
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--root-user-action", "ignore", "--target"]).arg(&directory);
    let Ok(output) = pip.arg("-r").arg(&requirements).output() else {
        skip("there is no python3: apt-get install python3-pip");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::write(installed, text).unwrap();
    Some(directory)
}

/// Checks a daemon's metrics with Prometheus's Python client and promtool, in both formats.
pub fn prometheus_reads(daemon: &Daemon) {
    let packages = python_packages("prometheus", "host/squeezy/tests/prometheus/requirements.txt");
    let Some(packages) = packages else { return };
    let mut python = Command::new("python3");
    python.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/prometheus/check.py"));
    let output = python.arg(&daemon.url).env("PYTHONPATH", packages).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The value of a series, if it exists.
pub fn value(metrics: &str, series: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

/// The number of partitions in each state, as reported by the running guests' kernels.
pub fn partitions(metrics: &str) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for series in metrics.lines().filter_map(|line| line.strip_prefix("squeezy_partitions{")) {
        let (_, state) = series.split_once("state=\"").expect("a state");
        let (state, count) = state.split_once("\"} ").expect("a value");
        *counts.entry(state).or_default() += count.parse::<u64>().expect("a count");
    }
    counts
}

/// Waits until `look` returns something. The limit is longer than anything a test waits for takes.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(180);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn base64(text: &str) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    BASE64_STANDARD.encode(text)
}
