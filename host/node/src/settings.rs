//! Settings that override parts of a function's definition.

use crate::function::{self, Function, FunctionError, ReachSettings, set, value};
use squeezy_protocol::NetworkAccess;
use squeezy_vmm::network::TapName;
use std::{num::NonZeroU16, time::Duration};

/// Keys of `function.toml` that can be overridden; absent ones keep the definition's value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionSettings {
    /// The program of an instance and its arguments.
    pub command: Option<Vec<String>>,
    /// An instance's memory, such as `768M`.
    pub memory_limit: Option<String>,
    /// An instance's share of the processors.
    pub vcpus: Option<f64>,
    /// Maximum number of instances at a time.
    pub concurrency: Option<u16>,
    /// How many calls an instance serves at a time.
    pub calls_per_instance: Option<u16>,
    /// How many instances are kept up without calls.
    pub minimum_instances: Option<u16>,
    /// How long an idle instance is kept, in seconds.
    pub keep_alive_seconds: Option<f64>,
    /// What network instances have.
    pub network: Option<NetworkAccess>,
    /// What they reach if they have one.
    pub reach: ReachSettings,
    /// The tap device that is their network.
    pub tap: Option<TapName>,
}

/// [`FunctionSettings`] that have been checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckedSettings {
    command: Option<Vec<String>>,
    memory_bytes: Option<u64>,
    cpu_millis: Option<u32>,
    concurrency: Option<u16>,
    calls_per_instance: Option<NonZeroU16>,
    minimum_instances: Option<u16>,
    keep_alive: Option<Duration>,
    network: Option<NetworkAccess>,
    reach: ReachSettings,
    tap: Option<TapName>,
}

impl FunctionSettings {
    /// Checks each value like [`Function::parse`] does.
    pub fn check(self) -> Result<CheckedSettings, FunctionError> {
        if self.tap.is_some() && self.network == Some(NetworkAccess::None) {
            return value("network_tap", "network is \"none\": leave out one of them");
        }
        if self.tap.is_some() && self.reach != ReachSettings::default() {
            let problem = "what is reached by a tap device is up to the host's firewall: leave out network_allow, \
                           network_deny, network_rate and network_connections";
            return value("network_tap", problem);
        }
        Ok(CheckedSettings {
            command: self.command.map(function::command).transpose()?,
            memory_bytes: self.memory_limit.as_deref().map(function::memory_bytes).transpose()?,
            cpu_millis: self.vcpus.map(function::cpu_millis).transpose()?,
            concurrency: self.concurrency.map(function::concurrency).transpose()?,
            calls_per_instance: self
                .calls_per_instance
                .map(function::calls_per_instance)
                .transpose()?,
            minimum_instances: self.minimum_instances,
            keep_alive: self.keep_alive_seconds.map(function::keep_alive).transpose()?,
            network: self.network,
            reach: self.reach.check()?,
            tap: self.tap,
        })
    }
}

impl CheckedSettings {
    /// The settings that there are, each as a key and its value.
    pub fn describe(&self) -> impl Iterator<Item = String> {
        let Self {
            command,
            memory_bytes,
            cpu_millis,
            concurrency,
            calls_per_instance,
            minimum_instances,
            keep_alive,
            network,
            reach,
            tap,
        } = self;
        let command = command.as_ref().map(|words| format!("command {}", words.join(" ")));
        let memory = memory_bytes.map(|bytes| format!("memory_limit {} MiB", bytes >> 20));
        let vcpus = cpu_millis.map(|millis| format!("vcpus {}", f64::from(millis) / 1e3));
        let concurrency = concurrency.map(|most| format!("concurrency {most}"));
        let calls = calls_per_instance.map(|calls| format!("calls_per_instance {calls}"));
        let minimum = minimum_instances.map(|least| format!("minimum_instances {least}"));
        let keep_alive =
            keep_alive.map(|time| format!("keep_alive_seconds {}", time.as_secs_f64()));
        let network = network.map(|access| format!("network {access}"));
        let tap = tap.as_ref().map(|tap| format!("network_tap {tap}"));
        let single =
            [command, memory, vcpus, concurrency, calls, minimum, keep_alive, network, tap];
        single.into_iter().flatten().chain(reach.describe())
    }

    /// Applies the settings to a function.
    pub fn apply(&self, function: &mut Function) {
        set(&mut function.command, self.command.as_ref());
        set(&mut function.memory_bytes, self.memory_bytes.as_ref());
        set(&mut function.cpu_millis, self.cpu_millis.as_ref());
        set(&mut function.concurrency, self.concurrency.as_ref());
        set(&mut function.calls_per_instance, self.calls_per_instance.as_ref());
        set(&mut function.minimum_instances, self.minimum_instances.as_ref());
        set(&mut function.keep_alive, self.keep_alive.as_ref());
        function.network = self.network.or(function.network);
        self.reach.apply(&mut function.reach);
        if let Some(tap) = &self.tap {
            function.tap = Some(tap.clone());
            function.network = Some(NetworkAccess::Outbound);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_goes_before_what_the_function_says() {
        let html = include_str!("../../../functions/html/function.toml");
        let plain = Function::parse(html).unwrap();
        let mut function = plain.clone();
        FunctionSettings::default().check().unwrap().apply(&mut function);
        assert_eq!(function, plain);
        let settings = FunctionSettings {
            memory_limit: Some("256M".to_owned()),
            keep_alive_seconds: Some(1.5),
            network: Some(NetworkAccess::Outbound),
            reach: ReachSettings { connections: Some(7), ..ReachSettings::default() },
            ..FunctionSettings::default()
        };
        let settings = settings.check().unwrap();
        let described: Vec<_> = settings.describe().collect();
        assert_eq!(described[2..], ["network outbound", "network_connections 7"]);
        settings.apply(&mut function);
        assert_eq!(function.network, Some(NetworkAccess::Outbound));
        assert_eq!(function.reach.connections, 7);
        assert_eq!(function.reach.rules, plain.reach.rules);
        assert_eq!(function.memory_bytes, 256 << 20);
        assert_eq!(function.keep_alive, Duration::from_millis(1500));
        assert_eq!(function.concurrency, plain.concurrency);
    }

    #[test]
    fn a_tap_device_is_a_network_without_rules() {
        let tap = || FunctionSettings { tap: "tap0".parse().ok(), ..FunctionSettings::default() };
        let mut function =
            Function::parse(include_str!("../../../functions/html/function.toml")).unwrap();
        let settings = tap().check().unwrap();
        assert_eq!(settings.describe().collect::<Vec<_>>(), ["network_tap tap0"]);
        settings.apply(&mut function);
        assert_eq!(function.tap, "tap0".parse().ok());
        assert_eq!(function.network, Some(NetworkAccess::Outbound));
        let none = FunctionSettings { network: Some(NetworkAccess::None), ..tap() };
        let reach = ReachSettings { connections: Some(7), ..ReachSettings::default() };
        for (wrong, expected) in [
            (none, "network is \"none\""),
            (FunctionSettings { reach, ..tap() }, "up to the host's firewall"),
        ] {
            let error = wrong.check().unwrap_err().to_string();
            assert!(error.starts_with("network_tap: ") && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn what_no_function_may_say_nobody_may_set() {
        let wrong = FunctionSettings { vcpus: Some(0.0), ..FunctionSettings::default() };
        let error = wrong.check().unwrap_err().to_string();
        assert!(error.starts_with("vcpus: must be"), "{error}");
    }
}
