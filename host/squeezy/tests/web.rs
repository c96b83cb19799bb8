//! The web page and the metrics of a daemon with a VM, in Chromium and Prometheus.

mod browser;
mod common;

use browser::Browser;
use common::{Daemon, NO_VM, build, own_empty_build, prometheus_reads, until, value};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Elements that overflow the screen or their card.
const TOO_WIDE: &str = "[...document.querySelectorAll('body *')].filter((element) => {
    const box = element.getBoundingClientRect();
    const card = element.closest('.card')?.getBoundingClientRect();
    return box.width && box.right > Math.min(innerWidth, card?.right ?? innerWidth) + 0.5;
}).map((element) => element.outerHTML.slice(0, 80))";

/// Where screenshots go: $SQUEEZY_SCREENSHOTS, or the directory for tests' files.
fn pictures() -> PathBuf {
    let directory = std::env::var_os("SQUEEZY_SCREENSHOTS")
        .map_or(Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots"), PathBuf::from);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Waits until a series has at least this value.
fn reaches(daemon: &Daemon, series: &str, least: f64) {
    let read = || value(&daemon.metrics(), &format!("squeezy_{series}"));
    until(series, || read().filter(|value| *value >= least));
}

fn call(daemon: &Daemon, arguments: serde_json::Value) -> u16 {
    daemon.ask("POST", "/namespaces/_/actions/html?blocking=true", Some(arguments)).0
}

#[test]
fn the_page_shows_what_goes_on() {
    let Some(build) = build() else { return };
    let Some(browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let image = short_lived(&build, directory.path());
    let configuration = "memory = \"3G\"\nfreeze_after_seconds = 1.5\n";
    let daemon = Daemon::start_in(directory.path(), &build, configuration, &[&image]);
    let pictures = pictures();

    // Before any call.
    browser.screen(1280, 800, false, false);
    browser.open(&daemon.url);
    browser.wait("document.querySelector('#connection').textContent === 'live'");
    browser.wait("document.querySelectorAll('.function').length === 1");
    assert_eq!(browser.read("document.querySelector('.function .chip').textContent"), "no VM");

    assert_eq!(call(&daemon, json!({ "username": "<b id=bold>x</b>", "items": 3 })), 200);
    for _ in 0..2 {
        let later = Some(json!({ "items": 200 }));
        assert_eq!(daemon.ask("POST", "/namespaces/_/actions/html", later).0, 202);
    }
    assert_eq!(call(&daemon, json!({ "items": "<img src=x id=bad onerror=alert(1)>" })), 502);
    for items in 1..8 {
        assert_eq!(call(&daemon, json!({ "items": items })), 200);
    }

    // What Prometheus gets.
    reaches(&daemon, "run_seconds_count{function=\"html\"}", 11.0);
    let read = until("a guest that answers in time", || {
        Some(daemon.metrics()).filter(|read| value(read, "squeezy_vms_silent") == Some(0.0))
    });
    assert!(read.ends_with("# EOF\n"));
    let of = |series: &str| value(&read, &format!("squeezy_{series}"));
    assert!(of("starts_total{function=\"html\",start=\"cold\"}").unwrap() >= 1.0, "{read}");
    assert!(of("starts_total{function=\"html\",start=\"warm\"}").unwrap() >= 8.0, "{read}");
    assert_eq!(of("run_seconds_count{function=\"html\"}"), Some(11.0), "{read}");
    assert!(of("partitions{function=\"html\",state=\"assigned\"}").unwrap() >= 1.0, "{read}");
    assert!(of("resident_bytes{function=\"html\"}").unwrap() > (32 << 20) as f64, "{read}");
    assert!(of("plug_seconds_count{function=\"html\"}").unwrap() >= 1.0, "{read}");

    // Memory is reclaimed, and an instance is started again.
    let plugs = of("plug_seconds_count{function=\"html\"}").unwrap();
    reaches(&daemon, "unplug_seconds_count{function=\"html\"}", plugs);
    assert_eq!(call(&daemon, json!({ "items": 2 })), 200);
    let recreated = "squeezy_starts_total{function=\"html\",start=\"recreated\"}";
    assert_eq!(value(&daemon.metrics(), recreated), Some(1.0));

    browser.wait("document.querySelector('.function .chip').textContent === 'VM runs'");
    browser.wait("document.querySelectorAll('.reclaims li').length > 0");
    browser.wait("document.querySelectorAll('.times tbody tr').length >= 5");
    let label = browser.read("document.querySelector('.plot').getAttribute('aria-label')");
    assert!(label.as_str().unwrap().contains("MiB"), "{label}");

    // No activations without the key, nor with a wrong one.
    assert_eq!(browser.read("document.querySelectorAll('#activations details').length"), 0);
    browser.fill("#key", "nobody:nothing-that-would-be-right");
    browser.click("#key-form button");
    browser.wait("document.querySelector('#key-error').textContent.includes('not the daemon')");
    let refused = browser.console();
    assert!(refused.iter().all(|line| line.contains("401")), "{refused:?}");
    browser.fill("#key", fs::read_to_string(daemon.key_file()).unwrap().trim());
    browser.click("#key-form button");
    browser.wait("document.querySelectorAll('#activations details').length === 12");

    // Functions' output is shown as text.
    browser.read("[...document.querySelectorAll('#activations details')].filter((entry) => entry.textContent.includes('✗')).forEach((entry) => (entry.open = true)) ?? true");
    browser.wait("document.querySelector('#activations details[open] pre')?.textContent.includes('ValueError') ?? false");
    browser.read("[...document.querySelectorAll('#activations details')].at(-1).open = true");
    browser.wait("[...document.querySelectorAll('#activations details')].at(-1).textContent.includes('id=bold')");
    assert_eq!(browser.read("document.querySelector('#bold, #bad, img[src=x]')"), json!(null));

    for (name, width, height, phone, dark) in [
        ("laptop", 1280, 800, false, false),
        ("laptop-dark", 1280, 800, false, true),
        ("phone", 390, 844, true, false),
        ("phone-dark", 390, 844, true, true),
        ("phone-small", 360, 640, true, false),
    ] {
        browser.screen(width, height, phone, dark);
        browser.read("scrollTo(0, 0)");
        // A second for the charts to be redrawn.
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(browser.read(TOO_WIDE), json!([]), "{name}");
        let scrolls = "document.documentElement.scrollWidth > innerWidth";
        assert_eq!(browser.read(scrolls), false, "{name} scrolls sideways");
        browser.picture(&pictures.join(format!("{name}.png")), false);
        browser.picture(&pictures.join(format!("{name}-whole.png")), true);
    }
    assert_eq!(browser.console(), Vec::<String>::new());
    prometheus_reads(&daemon);

    // The page shows that the daemon is gone.
    drop(daemon);
    browser.wait("document.querySelector('#connection').textContent.includes('not answer')");
    println!("the pictures are in {}", pictures.display());
}

#[test]
fn the_page_says_why_calls_are_turned_away() {
    let Some((_directory, daemon, browser)) = page_without_a_vm() else { return };
    browser.wait("document.querySelector('.problem')?.hidden ?? false");
    assert_eq!(daemon.ask("POST", "/namespaces/_/actions/f?blocking=true", None).0, 500);
    let says =
        |text: &str| format!("document.querySelector('.problem').textContent.includes('{text}')");
    browser.wait(&says("could not be booted, or has ended: the key"));
    browser.fill("#key", fs::read_to_string(daemon.key_file()).unwrap().trim());
    browser.click("#key-form button");
    browser.wait(&says("B of memory are needed"));
    browser.wait("document.querySelector('.starts').textContent.includes('1 failed')");
    assert_eq!(browser.read(TOO_WIDE), json!([]));
    browser.picture(&pictures().join("phone-problem.png"), true);
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn the_page_shows_few_instances_beside_many_calls() {
    let Some((_directory, _daemon, browser)) = page_without_a_vm() else { return };
    // The maxima of the left and the right axis.
    let axes = |waiting: u32| {
        browser.read(&format!(
            "import('/ui/chart.js').then(({{ Chart, countTicks }}) => {{
                const chart = new Chart('instances', [
                    {{ field: 'busy', label: 'busy', kind: 'stack' }},
                    {{ field: 'queued', label: 'calls waiting', kind: 'line', apart: true }},
                ], String, countTicks);
                document.body.append(chart.element);
                chart.show([{{ at: 0, busy: 3, queued: {waiting} }}], 0, 1000);
                const most = (ticks) => Math.max(...[...chart.plot.querySelectorAll(ticks)]
                    .map((tick) => Number(tick.textContent)).filter(Number.isFinite));
                return [most('.tick:not(.apart)'), most('.tick.apart')];
            }})"
        ))
    };
    assert_eq!(axes(2), json!([3, null]));
    assert_eq!(axes(500), json!([3, 600]));
    let medians =
        "import('/ui/format.js').then(({ median }) => [median([10, 1, 3, 2]), median([3, 1, 2])])";
    assert_eq!(browser.read(medians), json!([2.5, 2]));
}

#[test]
fn a_vm_that_hangs_does_not_hold_up_a_scrape() {
    let Some(build) = build() else { return };
    let daemon = Daemon::start(&build, "memory = \"3G\"\n");
    assert_eq!(call(&daemon, json!({ "items": 1 })), 200);
    let [vm] = daemon.vm_processes()[..] else { panic!("one VM") };
    let stop = Command::new("kill").args(["-s", "STOP", &vm.to_string()]).status();
    assert!(stop.unwrap().success());
    let start = Instant::now();
    let read = daemon.metrics();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(value(&read, "squeezy_vms_silent"), Some(1.0), "{read}");
    assert_eq!(value(&read, "squeezy_run_seconds_count{function=\"html\"}"), Some(1.0), "{read}");
    assert!(!read.contains("squeezy_plugged_bytes{"), "{read}");
    // The page keeps working too.
    let page = ureq::get(format!("{}/ui/state.json", daemon.url)).call().unwrap();
    assert_eq!(page.status(), 200);
}

/// The page of a daemon that cannot boot a VM, on a phone; and the directory of the daemon's files.
fn page_without_a_vm() -> Option<(TempDir, Daemon, Browser)> {
    let browser = Browser::start()?;
    let directory = own_empty_build();
    let function = directory.path().join("images/f.erofs");
    let daemon = Daemon::start_in(directory.path(), directory.path(), NO_VM, &[&function]);
    browser.screen(390, 844, true, false);
    browser.open(&daemon.url);
    Some((directory, daemon, browser))
}

/// The function `html`, with a keep-alive of a few seconds.
fn short_lived(build: &Path, directory: &Path) -> PathBuf {
    let image = directory.join("html.erofs");
    std::os::unix::fs::symlink(build.join("images/html.erofs"), &image).unwrap();
    let definition = fs::read_to_string(build.join("images/html.toml")).unwrap();
    let lines = definition.lines().map(|line| match line.split_once(" = ") {
        Some(("keep_alive_seconds", _)) => "keep_alive_seconds = 4.0".to_owned(),
        _ => line.to_owned(),
    });
    let definition = lines.collect::<Vec<_>>().join("\n");
    fs::write(image.with_extension("toml"), definition).unwrap();
    image
}
