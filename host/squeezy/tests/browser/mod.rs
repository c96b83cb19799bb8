//! Headless Chromium, over the WebDriver protocol.

use crate::common::skip;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// How long to wait for a page to reach an expected state, and for the browser to do as it is told.
const LIMIT: Duration = Duration::from_secs(180);

/// Chromium has no sandbox as root, which tests with VMs may run as. It must contact nothing but
/// the daemon; by default it would fetch updates and lists of malicious sites.
const ARGUMENTS: [&str; 11] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-default-browser-check",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// A window, closed on drop.
pub struct Browser {
    driver: Child,
    session: String,
}

impl Browser {
    /// Starts Chromium, if it is installed.
    pub fn start() -> Option<Self> {
        let mut command = Command::new("chromedriver");
        let driver = command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut driver) = driver else {
            skip("there is no chromedriver: scripts/install-dependencies.sh test");
            return None;
        };
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
            line.split_once("started successfully on port ")
                .map(|(_, port)| port.trim_end_matches('.').to_owned())
        });
        std::thread::spawn(move || lines.for_each(drop));
        let mut browser = Self { driver, session: String::new() };
        let address = format!("http://127.0.0.1:{}", port.expect("it says its port"));
        let options = json!({ "args": ARGUMENTS });
        let capabilities = json!({
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let body = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let session = send("POST", &format!("{address}/session"), &body);
        let id = session["sessionId"].as_str().unwrap();
        browser.session = format!("{address}/session/{id}");
        Some(browser)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        send("POST", &format!("{}/{path}", self.session), body)
    }

    /// A command of the DevTools protocol.
    fn tell(&self, command: &str, parameters: Value) -> Value {
        self.post("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Emulates a screen of this size and kind.
    pub fn screen(&self, width: u32, height: u32, phone: bool, dark: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.tell("Emulation.setEmulatedMedia", json!({ "features": features }));
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone,
        });
        self.tell("Emulation.setDeviceMetricsOverride", metrics);
        self.tell("Emulation.setTouchEmulationEnabled", json!({ "enabled": phone }));
    }

    pub fn open(&self, url: &str) {
        self.post("url", &json!({ "url": url }));
    }

    /// Evaluates an expression in the page.
    pub fn read(&self, expression: &str) -> Value {
        let script = format!("return ({expression});");
        self.post("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression is true.
    pub fn wait(&self, expression: &str) {
        let until = Instant::now() + LIMIT;
        while self.read(expression) != json!(true) {
            if Instant::now() > until {
                let text = self.read("document.body.innerText");
                panic!(
                    "timed out waiting for {expression}; the page says: {}",
                    text.as_str().unwrap_or("")
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Clicks the first element that matches a selector; it must be visible.
    pub fn click(&self, selector: &str) {
        let element = self.find(selector);
        self.post(&format!("element/{element}/click"), &json!({}));
    }

    pub fn fill(&self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.post(&format!("element/{element}/value"), &json!({ "text": text }));
    }

    fn find(&self, selector: &str) -> String {
        let found = self.post("element", &json!({ "using": "css selector", "value": selector }));
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    /// Console messages since the last call.
    pub fn console(&self) -> Vec<String> {
        let lines = self.post("se/log", &json!({ "type": "browser" }));
        let text = |line: &Value| line["message"].as_str().unwrap_or_default().to_owned();
        lines.as_array().unwrap().iter().map(text).collect()
    }

    /// Takes a screenshot of the visible part of the page, or of the whole page.
    pub fn picture(&self, file: &Path, whole: bool) {
        let parameters = json!({ "format": "png", "captureBeyondViewport": whole });
        let mut parameters = parameters;
        if whole {
            let size = self.read(
                "[document.documentElement.clientWidth, document.documentElement.scrollHeight]",
            );
            let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
            parameters["clip"] = clip;
        }
        let picture = self.tell("Page.captureScreenshot", parameters);
        let picture = BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        std::fs::write(file, picture).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // Ends the browser, which would outlive its driver.
            let request = http::Request::delete(&self.session).body(()).unwrap();
            let _ = agent().run(request);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(LIMIT))
        .build()
        .new_agent()
}

fn send(method: &str, url: &str, body: &Value) -> Value {
    let request = http::Request::builder()
        .method(method)
        .uri(url)
        .header("Content-Type", "application/json")
        .body(body.to_string())
        .unwrap();
    let mut answer = agent().run(request).unwrap();
    let body = answer.body_mut().with_config().limit(64 << 20).read_to_string().unwrap();
    let mut body: Value = serde_json::from_str(&body).unwrap();
    let value = body["value"].take();
    assert!(answer.status().is_success(), "{url}: {}: {}", value["error"], value["message"]);
    value
}
