//! Checks a specification before anything is done with it.

use crate::error::ApiError;
use squeezy_protocol::{
    Company, InstanceSpec, InstanceUser, Layer, LimitsRequest, NetworkAccess, OutputKind,
    PartitionChoice, ResourceLimit, SystemCallFilter, Volume, is_path,
};

/// The kernel's limit on one argument or variable (`MAX_ARG_STRLEN`), in bytes.
const MAX_STRING_BYTES: usize = 128 << 10;
/// The highest limit of files, in bytes. The kernel rounds it up to pages, and what becomes zero by that would be none.
const MAX_FILES_BYTES: u64 = i64::MAX as u64;
/// The maximum number of partitions in the kernel's interface.
const MAX_PARTITIONS: u16 = 255;

/// Fails at the first invalid field, with one line that says what is wrong.
pub fn check(spec: &InstanceSpec) -> Result<(), ApiError> {
    let fail = |text: String| Err(ApiError::invalid(text));
    match spec.command.first() {
        Some(program) if program.is_empty() => return fail("command: give the program".to_owned()),
        Some(_) => {}
        None => {
            if let Some(field) = field_of_command(spec) {
                return fail(format!("{field}: without a command, there is nothing to have it"));
            }
        }
    }
    if spec.user.other_groups.len() > InstanceUser::MAX_GROUPS {
        return fail(format!("user: it has at most {} other groups", InstanceUser::MAX_GROUPS));
    }
    if spec.image.is_some() && !spec.layers.is_empty() {
        return fail("layers: the root is an image already".to_owned());
    }
    if spec.code.is_some() && spec.image.is_none() {
        return fail("code: its files are over those of an image, and there is none".to_owned());
    }
    if spec.layers.len() > Layer::MAX_OF_ROOT {
        return fail(format!("layers: a root has at most {}", Layer::MAX_OF_ROOT));
    }
    if !spec.working_directory.starts_with('/') {
        return fail(format!(
            "working_directory: {:?} is not an absolute path",
            spec.working_directory
        ));
    }
    if spec.volumes.len() > Volume::MAX_OF_INSTANCE {
        return fail(format!("volumes: an instance has at most {}", Volume::MAX_OF_INSTANCE));
    }
    if let Some(error) = spec.volumes.iter().find_map(|mount| mount.check().err()) {
        return fail(format!("volumes: {error}"));
    }
    check_process(spec)?;
    for (name, paths) in
        [("hidden_paths", &spec.hidden_paths), ("read_only_paths", &spec.read_only_paths)]
    {
        if paths.len() > InstanceSpec::MAX_PATHS {
            return fail(format!("{name}: there are at most {}", InstanceSpec::MAX_PATHS));
        }
        if let Some(path) = paths.iter().find(|path| !is_path(path)) {
            return fail(format!("{name}: {path:?} is no absolute path"));
        }
    }
    let mut strings = spec
        .command
        .iter()
        .chain(spec.environment.keys())
        .chain(spec.environment.values())
        .chain([&spec.working_directory]);
    if strings.any(|s| s.contains('\0') || s.len() >= MAX_STRING_BYTES) {
        return fail("a string contains a zero byte or is 128 KiB or longer".to_owned());
    }
    if let Some(name) = spec.environment.keys().find(|name| name.is_empty() || name.contains('=')) {
        return fail(format!("environment: {name:?} is not a variable name"));
    }
    if let PartitionChoice::Number(number) = spec.partition
        && number.0 >= MAX_PARTITIONS
    {
        return fail(format!("partition: {number} is not below {MAX_PARTITIONS}"));
    }
    check_memory("memory_limit_bytes", spec.memory_limit_bytes)?;
    check_memory("company_memory_limit_bytes", spec.company_memory_limit_bytes)?;
    check_limits(&LimitsRequest {
        private_limit_bytes: spec.private_limit_bytes,
        files_limit_bytes: spec.files_limit_bytes,
        cpu_share_millis: spec.cpu_share_millis,
        cpu_limit_millis: spec.cpu_limit_millis,
    })?;
    if spec.port == Some(0) {
        return fail("port: 0 is not a port".to_owned());
    }
    if spec.terminal.is_some() && spec.output != OutputKind::Streams {
        return fail("terminal: its output is a stream and not a log".to_owned());
    }
    if spec.sees_limits && !spec.files_limit_changes {
        return fail("sees_limits: it needs files_limit_changes".to_owned());
    }
    if spec.shared_processes && !matches!(spec.company, Company::Beside(_)) {
        return fail("shared_processes: it is beside no other instance".to_owned());
    }
    if spec.in_network.is_some() && spec.network != NetworkAccess::None {
        return fail("in_network: it has a network of its own".to_owned());
    }
    match shared_field(spec) {
        Some(field) => fail(format!("{field}: it is that of the instance that it is company of")),
        None => Ok(()),
    }
}

/// Checks limits that can change while an instance runs.
pub fn check_limits(limits: &LimitsRequest) -> Result<(), ApiError> {
    const MILLIS: std::ops::RangeInclusive<u32> =
        InstanceSpec::MIN_CPU_MILLIS..=InstanceSpec::MAX_CPU_MILLIS;
    check_memory("private_limit_bytes", limits.private_limit_bytes)?;
    check_memory("files_limit_bytes", limits.files_limit_bytes)?;
    if let Some(bytes) = limits.files_limit_bytes.filter(|bytes| *bytes > MAX_FILES_BYTES) {
        let message = format!("files_limit_bytes: {bytes} is more than {MAX_FILES_BYTES}");
        return Err(ApiError::invalid(message));
    }
    for (name, millis) in [
        ("cpu_share_millis", limits.cpu_share_millis),
        ("cpu_limit_millis", limits.cpu_limit_millis),
    ] {
        if let Some(millis) = millis
            && !MILLIS.contains(&millis)
        {
            return Err(ApiError::invalid(format!(
                "{name}: {millis} is not between {} and {}",
                MILLIS.start(),
                MILLIS.end()
            )));
        }
    }
    Ok(())
}

fn check_memory(name: &str, bytes: Option<u64>) -> Result<(), ApiError> {
    const LEAST: u64 = InstanceSpec::MIN_MEMORY_BYTES;
    match bytes {
        Some(bytes) if bytes < LEAST => {
            Err(ApiError::invalid(format!("{name}: {bytes} is less than {LEAST}")))
        }
        _ => Ok(()),
    }
}

/// Checks what the spec says of its processes beside what they execute.
fn check_process(spec: &InstanceSpec) -> Result<(), ApiError> {
    let fail = |text: String| Err(ApiError::invalid(text));
    if spec.resource_limits.len() > ResourceLimit::MAX_COUNT {
        return fail(format!("resource_limits: there are at most {}", ResourceLimit::MAX_COUNT));
    }
    if let Some(limit) = spec.resource_limits.iter().find(|limit| limit.soft > limit.hard) {
        return fail(format!(
            "resource_limits: {:?} has a soft limit above its hard one",
            limit.resource
        ));
    }
    if spec.filters.len() > SystemCallFilter::MAX_COUNT {
        return fail(format!("filters: there are at most {}", SystemCallFilter::MAX_COUNT));
    }
    if let Some(error) = spec.filters.iter().find_map(|filter| filter.check().err()) {
        return fail(format!("filters: {error}"));
    }
    if spec.oom_score_adj > InstanceSpec::MAX_OOM_SCORE_ADJ {
        return fail(format!("oom_score_adj: it is at most {}", InstanceSpec::MAX_OOM_SCORE_ADJ));
    }
    match &spec.host_name {
        Some(name)
            if name.is_empty()
                || name.len() > InstanceSpec::MAX_HOST_NAME_BYTES
                || name.contains('\0') =>
        {
            fail(format!(
                "host_name: it has 1 to {} bytes, none of them zero",
                InstanceSpec::MAX_HOST_NAME_BYTES
            ))
        }
        _ => Ok(()),
    }
}

/// A field that says something of what only a command has.
fn field_of_command(spec: &InstanceSpec) -> Option<&'static str> {
    let fields = [
        ("image", spec.image.is_some()),
        ("layers", !spec.layers.is_empty()),
        ("volumes", !spec.volumes.is_empty()),
        ("port", spec.port.is_some()),
        ("input", spec.input),
        ("terminal", spec.terminal.is_some()),
        ("shared_processes", spec.shared_processes),
        ("company", matches!(spec.company, Company::Inside(_))),
    ];
    fields.into_iter().find_map(|(field, is_said)| is_said.then_some(field))
}

/// A field that says something of what the instance shares with another one.
fn shared_field(spec: &InstanceSpec) -> Option<&'static str> {
    let always = [
        ("partition", spec.partition != PartitionChoice::None),
        ("memory_node", spec.memory_node.is_some()),
        ("company_memory_limit_bytes", spec.company_memory_limit_bytes.is_some()),
        ("network", spec.network != NetworkAccess::None),
        ("host_name", spec.host_name.is_some()),
        ("in_network", spec.in_network.is_some()),
    ];
    let inside = [
        ("image", spec.image.is_some()),
        ("layers", !spec.layers.is_empty()),
        ("memory_limit_bytes", spec.memory_limit_bytes.is_some()),
        ("private_limit_bytes", spec.private_limit_bytes.is_some()),
        ("files_limit_bytes", spec.files_limit_bytes.is_some()),
        ("files_limit_changes", spec.files_limit_changes),
        ("cpu_share_millis", spec.cpu_share_millis.is_some()),
        ("cpu_limit_millis", spec.cpu_limit_millis.is_some()),
        ("read_only_root", spec.read_only_root),
        ("pseudoterminals", spec.pseudoterminals),
        ("sees_limits", spec.sees_limits),
        ("sees_message_queues", spec.sees_message_queues),
        ("hidden_paths", !spec.hidden_paths.is_empty()),
        ("read_only_paths", !spec.read_only_paths.is_empty()),
        ("volumes", !spec.volumes.is_empty()),
        ("port", spec.port.is_some()),
    ];
    let fields = match &spec.company {
        Company::None => Vec::new(),
        Company::Beside(_) => always.to_vec(),
        Company::Inside(_) => [always.as_slice(), inside.as_slice()].concat(),
    };
    fields.into_iter().find_map(|(field, is_said)| is_said.then_some(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: &str, value: serde_json::Value) -> Result<(), String> {
        let mut spec = serde_json::json!({
            "id": "a", "command": ["/bin/true"], "image": null, "partition": "none",
            "memory_limit_bytes": 1 << 26, "cpu_limit_millis": 250, "port": 8080
        });
        spec[change] = value;
        let spec = serde_json::from_value(spec).map_err(|e| e.to_string())?;
        check(&spec).map_err(|e| e.to_string())
    }

    #[test]
    fn a_plain_one_passes() {
        assert_eq!(with("id", "b".into()), Ok(()));
    }

    #[test]
    fn each_bad_field_is_named() {
        use serde_json::json;
        for (field, value, word) in [
            ("command", json!([]), "command"),
            ("command", json!([""]), "command"),
            ("code", json!(1), "over those of an image"),
            ("layers", json!(vec![4096; 129]), "at most 128"),
            ("user", json!({"user": 65536, "group": 0}), "65536"),
            ("user", json!({"user": 1, "group": 1, "other_groups": vec![1; 65]}), "at most 64"),
            ("command", json!(["/a\u{0}b"]), "zero byte"),
            ("command", json!(["/a", "x".repeat(128 << 10)]), "128 KiB"),
            ("environment", json!({"A=B": "1"}), "environment"),
            ("environment", json!({"": "1"}), "environment"),
            ("working_directory", json!("tmp"), "working_directory"),
            ("partition", json!({"number": 255}), "partition"),
            ("memory_limit_bytes", json!(4096), "memory_limit_bytes"),
            ("company_memory_limit_bytes", json!(4096), "company_memory_limit_bytes"),
            ("files_limit_bytes", json!(0), "files_limit_bytes"),
            ("files_limit_bytes", json!(u64::MAX), "is more than"),
            ("private_limit_bytes", json!(4096), "private_limit_bytes"),
            ("cpu_limit_millis", json!(9), "cpu_limit_millis"),
            ("cpu_share_millis", json!(0), "cpu_share_millis"),
            ("volumes", json!([{"volume": 0, "target": "a", "read_only": true}]), "absolute path"),
            ("privileges", json!({"capabilities": ["SYS_ADMIN"]}), "SYS_ADMIN"),
            (
                "resource_limits",
                json!([{"resource": "CORE", "soft": 2, "hard": 1}]),
                "above its hard one",
            ),
            (
                "resource_limits",
                json!(vec![json!({"resource": "CORE", "soft": 0, "hard": 0}); 17]),
                "at most 16",
            ),
            ("resource_limits", json!([{"resource": "FILES", "soft": 0, "hard": 0}]), "FILES"),
            ("filters", json!(["AAA="]), "1 to 4096 instructions"),
            ("filters", json!(vec!["BgAAAAAA/38="; 9]), "at most 8"),
            ("oom_score_adj", json!(1001), "at most 1000"),
            ("oom_score_adj", json!(-1), "-1"),
            ("host_name", json!(""), "1 to 64"),
            ("host_name", json!("x".repeat(65)), "1 to 64"),
            ("hidden_paths", json!(["proc/keys"]), "no absolute path"),
            ("read_only_paths", json!(["/proc/../x"]), "no absolute path"),
            ("read_only_paths", json!(vec!["/x"; 257]), "at most 256"),
            ("port", json!(0), "port"),
            ("id", json!("A"), "id is"),
            ("company", json!({"beside": "A"}), "id is"),
            ("terminal", json!({"columns": 80, "rows": 24}), "not a log"),
            ("terminal", json!({"columns": 65536, "rows": 24}), "65536"),
            ("company", json!({"inside": "b"}), "memory_limit_bytes"),
            ("shared_processes", json!(true), "beside no other"),
            ("sees_limits", json!(true), "files_limit_changes"),
            ("unknown", json!(1), "unknown"),
        ] {
            let error = with(field, value).unwrap_err();
            assert!(error.contains(word), "{field}: {error}");
        }
    }

    #[test]
    fn an_instance_without_a_command_has_nothing_of_one() {
        use serde_json::json;
        let with = |field: &str, value: serde_json::Value| {
            let mut spec = json!({
                "id": "a", "command": [], "image": null, "partition": "any", "port": null,
                "memory_limit_bytes": 1 << 26
            });
            spec[field] = value;
            check(&serde_json::from_value(spec).unwrap()).map_err(|error| error.to_string())
        };
        assert_eq!(with("id", "b".into()), Ok(()));
        for (field, value) in [
            ("image", json!(0)),
            ("layers", json!([4096])),
            ("volumes", json!([{"volume": 0, "target": "/a", "read_only": true}])),
            ("port", json!(8080)),
            ("input", json!(true)),
            ("terminal", json!({"columns": 80, "rows": 24})),
            ("shared_processes", json!(true)),
            ("company", json!({"inside": "b"})),
        ] {
            let error = with(field, value).unwrap_err();
            assert!(error.starts_with(field) && error.contains("without a command"), "{error}");
        }
    }

    #[test]
    fn company_has_what_it_shares_as_the_other_one_has_it() {
        use serde_json::json;
        let plain = |company: &str| {
            json!({
                "id": "a", "command": ["/bin/true"], "image": null, "partition": "none",
                "company": {company: "b"}
            })
        };
        let fields: [(&str, serde_json::Value, &[&str]); 18] = [
            ("partition", json!("any"), &["beside", "inside"]),
            ("network", json!("outbound"), &["beside", "inside"]),
            ("in_network", json!(0), &["beside", "inside"]),
            ("memory_node", json!(0), &["beside", "inside"]),
            ("company_memory_limit_bytes", json!(1 << 26), &["beside", "inside"]),
            ("volumes", json!([{"volume": 0, "target": "/a", "read_only": true}]), &["inside"]),
            ("host_name", json!("x"), &["beside", "inside"]),
            ("pseudoterminals", json!(true), &["inside"]),
            ("sees_message_queues", json!(true), &["inside"]),
            ("hidden_paths", json!(["/proc/keys"]), &["inside"]),
            ("image", json!(0), &["inside"]),
            ("layers", json!([4096]), &["inside"]),
            ("private_limit_bytes", json!(1 << 20), &["inside"]),
            ("files_limit_bytes", json!(1 << 20), &["inside"]),
            ("files_limit_changes", json!(true), &["inside"]),
            ("cpu_limit_millis", json!(100), &["inside"]),
            ("read_only_root", json!(true), &["inside"]),
            ("port", json!(80), &["inside"]),
        ];
        for company in ["beside", "inside"] {
            let checked = |spec: serde_json::Value| check(&serde_json::from_value(spec).unwrap());
            checked(plain(company)).unwrap();
            for (field, value, refused) in &fields {
                let mut spec = plain(company);
                spec[*field] = value.clone();
                let result = checked(spec).map_err(|error| error.to_string());
                let is_refused = result.as_ref().is_err_and(|error| error.starts_with(field));
                assert_eq!(is_refused, refused.contains(&company), "{company} {field}: {result:?}");
            }
        }
    }
}
