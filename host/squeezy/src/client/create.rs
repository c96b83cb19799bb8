//! `squeezy function create`.

use super::{
    ClientError, Connection, action, code::CodeFile, image::Source, made::Made, networks::Networks,
    parameters::parameters, pulled::while_pulling,
};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use squeezy_node::function::{MAX_CALLS_PER_INSTANCE, parse_memory};
use squeezy_openwhisk::{
    MAX_TIMEOUT_MS,
    action::{MINIMUM_INSTANCES, NETWORK, NETWORK_ALLOW, NETWORK_DENY},
};
use squeezy_protocol::NetworkAccess;
use std::{path::PathBuf, time::Duration};

/// Creates or changes a function.
///
/// squeezy function create hello hello.py
#[derive(Clone, Debug, Args)]
pub struct Create {
    /// With a FILE, the function's name; otherwise what it is made from.
    ///
    /// That is a file with code, a directory with a function.toml, an OCI image, or the name of an
    /// image.
    ///
    /// The image of a directory with a function.toml must already be built, unless its
    /// function.toml names an OCI image: that, an archive (as made by `docker save`) and an
    /// OCI layout directory are converted into an image first, which needs root and a daemon
    /// on this machine.
    #[arg(value_name = "FUNCTION|NAME")]
    function: PathBuf,
    /// What it is made from.
    ///
    /// A .py, .js, .jar or .zip file, or a program or script for Linux, is code: one of the runtimes
    /// (the packages squeezy-runtime-NAME, or `make runtimes`) runs it.
    file: Option<PathBuf>,
    /// An image in a registry that it is made from, such as registry.example/team/thing:1.2.
    ///
    /// The daemon pulls it, and keeps to the digest that a tag means now.
    #[arg(long, value_name = "REFERENCE", conflicts_with_all = ["file", "kind", "main", "name"])]
    image: Option<String>,
    /// Functions that it calls one after the other, each with the result of the one before.
    ///
    /// squeezy function create both --sequence first,package/second
    #[arg(
        long,
        value_name = "FUNCTIONS",
        value_delimiter = ',',
        conflicts_with_all = [
            "file",
            "image",
            "kind",
            "main",
            "name",
            "memory",
            "timeout",
            "calls_per_instance",
            "network",
            "network_deny",
            "network_allow",
            "minimum_instances",
        ]
    )]
    sequence: Vec<String>,
    /// The function's name; the default is that of its image or its file.
    #[arg(long, conflicts_with = "file")]
    name: Option<String>,
    /// The kind of its code, such as python:3.11; the default is what the file looks like.
    #[arg(long)]
    kind: Option<String>,
    /// The name of its code's entry point, which Java needs.
    #[arg(long)]
    main: Option<String>,
    /// An instance's memory, such as 512M, of which its files may take half.
    ///
    /// The default is what it had or, for a new function, what its definition says: 256M for code.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<u64>,
    /// How long a call may take, in seconds.
    ///
    /// The default is what it had or, for a new function, what its definition says: 60 for code.
    #[arg(long, value_name = "SECONDS", value_parser = call_time)]
    timeout: Option<Duration>,
    /// How many calls an instance serves at a time, which OpenWhisk calls its concurrency.
    ///
    /// An image has to have a server that can; of code, only nodejs:20 serves more than one. The default is what it
    /// had or, for a new function, what its definition says: 1 for code.
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CALLS_PER_INSTANCE))
    )]
    calls_per_instance: Option<u16>,
    /// An argument that calls get which do not say it; the value is JSON, otherwise a text. May be given several times.
    ///
    /// Those that are given replace all that it had.
    #[arg(long = "param", short, num_args = 2, value_names = ["KEY", "VALUE"])]
    parameters: Vec<String>,
    /// Its network: none, or outbound.
    ///
    /// The default is what it had or, for a new function, what its definition or the daemon's configuration
    /// says.
    #[arg(long, value_name = "NETWORK")]
    network: Option<NetworkAccess>,
    /// Networks that it does not reach, such as 0.0.0.0/0 or 10.1.2.3:5432, with commas between them, or none.
    ///
    /// Whatever its image allows, these are closed, but for smaller ones in --network-allow. The default is what it
    /// had.
    #[arg(long, value_name = "NETWORKS")]
    network_deny: Option<Networks>,
    /// Networks that it reaches although --network-deny lists larger ones or they are private, or none.
    ///
    /// Private ones are only for those to whose namespace the operator allows them (`squeezy namespace set`),
    /// or whose image does. The default is what it had.
    #[arg(long, value_name = "NETWORKS")]
    network_allow: Option<Networks>,
    /// How many instances are kept up without calls, so that calls find one.
    ///
    /// The default is what it had, or none.
    #[arg(long, value_name = "COUNT")]
    minimum_instances: Option<u32>,
    /// Whether anybody may call it over HTTP, without the key: yes, no, or raw.
    ///
    /// Its address is then /api/v1/web/guest/default/NAME. With raw, it gets the requests as they are.
    #[arg(long, value_name = "WEB")]
    web: Option<Web>,
    /// Changes an existing function: what it is made from, and what else is given. The rest stays as it was.
    #[arg(long)]
    overwrite: bool,
}

impl Create {
    /// Runs the command; returns the function as it is then.
    pub fn run(self, connection: &Connection) -> Result<Value, ClientError> {
        let made = self.made()?;
        let path = format!("/actions/{}", action(&self.name(&made))?);
        // Checked first, because building an image takes a while.
        let existing = connection.send("GET", &format!("{path}?code=false"), None)?;
        let existing = match existing {
            (200, _) if !self.overwrite => return Err(ClientError::Exists),
            (200 | 404, existing) => existing,
            (status, answer) => return Err(ClientError::refused(status, &answer)),
        };
        let body = self.body(made.exec()?, &existing);
        let path = format!("{path}?overwrite={}", self.overwrite);
        let put = || connection.ask_patiently("PUT", &path, Some(&body));
        while_pulling(connection, put).map_err(|error| match error {
            ClientError::Refused { status: 409, .. } => ClientError::Exists,
            other => other,
        })
    }

    /// What it is made from.
    fn made(&self) -> Result<Made, ClientError> {
        if let Some(image) = &self.image {
            return Ok(Made::Pulled(image.clone()));
        }
        if !self.sequence.is_empty() {
            return Ok(Made::Sequence(self.sequence.clone()));
        }
        let file = self.file.as_ref().unwrap_or(&self.function);
        match CodeFile::find(file, self.kind.as_deref(), self.main.as_deref())? {
            Some(code) => Ok(Made::Code(code)),
            None => Ok(Made::Image(Source::find(file)?)),
        }
    }

    /// Its name.
    fn name(&self, made: &Made) -> String {
        if self.file.is_some() || self.image.is_some() || !self.sequence.is_empty() {
            return self.function.to_string_lossy().into_owned();
        }
        self.name.clone().unwrap_or_else(|| made.name())
    }

    /// What the daemon is to make of an `existing` function, or of none: what is left out stays as it was.
    fn body(&self, exec: Value, existing: &Value) -> Value {
        let mut body = json!({ "exec": exec });
        let limits = self.limits();
        if !limits.is_empty() {
            body["limits"] = limits.into();
        }
        if !self.parameters.is_empty() {
            let pairs = parameters(&self.parameters);
            let pairs = pairs.map(|(key, value)| json!({ "key": key, "value": value }));
            body["parameters"] = pairs.collect();
        }
        let annotations = self.annotations();
        if !annotations.is_empty() {
            body["annotations"] = with(&existing["annotations"], annotations);
        }
        body
    }

    /// The limits that are given, under OpenWhisk's names.
    fn limits(&self) -> Map<String, Value> {
        let limits = [
            ("memory", self.memory.map(|bytes| bytes.div_ceil(1 << 20))),
            ("timeout", self.timeout.map(|timeout| timeout.as_millis() as u64)),
            ("concurrency", self.calls_per_instance.map(u64::from)),
        ];
        let given = limits.into_iter();
        given.filter_map(|(name, limit)| Some((name.to_owned(), Value::from(limit?)))).collect()
    }

    /// The annotations that are given.
    fn annotations(&self) -> Vec<(&'static str, Value)> {
        let single = [
            (NETWORK, self.network.map(|network| json!(network))),
            (NETWORK_DENY, self.network_deny.as_ref().map(|networks| json!(networks))),
            (NETWORK_ALLOW, self.network_allow.as_ref().map(|networks| json!(networks))),
            (MINIMUM_INSTANCES, self.minimum_instances.map(|minimum| json!(minimum))),
        ];
        let single = single.into_iter().filter_map(|(key, value)| Some((key, value?)));
        single.chain(self.web.into_iter().flat_map(Web::annotations)).collect()
    }
}

fn call_time(text: &str) -> Result<Duration, String> {
    let most = Duration::from_millis(MAX_TIMEOUT_MS);
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| (Duration::from_millis(1)..=most).contains(time))
        .ok_or_else(|| format!("expected a number of seconds from 0.001 to {}", most.as_secs()))
}

/// These annotations, and those that are set.
fn with(annotations: &Value, set: Vec<(&str, Value)>) -> Value {
    let is_set = |pair: &&Value| set.iter().any(|(key, _)| pair["key"] == *key);
    let others = annotations.as_array().into_iter().flatten().filter(|pair| !is_set(pair));
    let set = set.iter().map(|(key, value)| json!({ "key": key, "value": value }));
    others.cloned().chain(set).collect()
}

/// Whether anybody may call a function over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Web {
    #[value(alias = "true")]
    Yes,
    Raw,
    #[value(alias = "false")]
    No,
}

impl Web {
    /// The annotations that say so.
    fn annotations(self) -> Vec<(&'static str, Value)> {
        let is_web = self != Self::No;
        vec![
            ("web-export", is_web.into()),
            ("raw-http", (self == Self::Raw).into()),
            ("final", is_web.into()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        create: Create,
    }

    fn parse(arguments: &str) -> Result<Create, clap::Error> {
        let line = Line::try_parse_from(["create"].into_iter().chain(arguments.split(' ')));
        line.map(|line| line.create)
    }

    #[test]
    fn what_is_given_is_sent_and_nothing_else() {
        let body =
            |arguments: &str, existing: Value| parse(arguments).unwrap().body(json!({}), &existing);
        let limits = "f --memory 512M --timeout 1.005 --calls-per-instance 7";
        let right = json!({ "memory": 512, "timeout": 1005, "concurrency": 7 });
        assert_eq!(body(limits, json!(null)), json!({ "exec": {}, "limits": right }));
        let part = body("f f.py --memory 33000K", json!(null));
        assert_eq!(part["limits"], json!({ "memory": 33 }));
        let parameters = body("f f.js --param a [1] -p b x", json!(null));
        let right = json!([{ "key": "a", "value": [1] }, { "key": "b", "value": "x" }]);
        assert_eq!(parameters, json!({ "exec": {}, "parameters": right }));
        let existing = json!({ "annotations": [{ "key": "note", "value": 1 }] });
        assert_eq!(body("f", existing.clone()), json!({ "exec": {} }));
        let right = json!([{ "key": "note", "value": 1 }, { "key": NETWORK, "value": "none" }]);
        assert_eq!(body("f --network none", existing)["annotations"], right);
    }

    #[test]
    fn what_there_cannot_be_is_no_command() {
        assert!(parse("s --sequence a,b --param c 1").is_ok());
        for (arguments, part) in [
            ("f --memory 512", "must be at least 32M"),
            ("f --memory 2T", "must be at most 1024G"),
            ("f --timeout 0", "from 0.001 to 86400"),
            ("f --timeout 86401", "from 0.001 to 86400"),
            ("f --timeout NaN", "from 0.001 to 86400"),
            ("f --calls-per-instance 0", "1..=100"),
            ("f --calls-per-instance 101", "1..=100"),
            ("f --param a", "2 values required"),
            ("s --sequence a,b --memory 64M", "cannot be used with"),
            ("s --sequence a,b --timeout 1", "cannot be used with"),
            ("s --sequence a,b --calls-per-instance 2", "cannot be used with"),
        ] {
            let error = parse(arguments).unwrap_err().to_string();
            assert!(error.contains(part), "{arguments}: {error}");
        }
    }
}
