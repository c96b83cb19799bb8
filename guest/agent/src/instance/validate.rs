//! Checks a specification before anything is done with it.

use crate::error::ApiError;
use squeezy_protocol::{InstanceSpec, InstanceUser, Layer, PartitionChoice};

/// The kernel's limit on one argument or variable (`MAX_ARG_STRLEN`), in bytes.
const MAX_STRING_BYTES: usize = 128 << 10;
/// Minimum memory limit, in bytes: no instance can do anything with less.
const MIN_MEMORY_BYTES: u64 = 1 << 20;
/// The kernel accepts no quota below 1 ms in 100 ms.
const MIN_CPU_MILLIS: u32 = 10;
const MAX_CPU_MILLIS: u32 = 1 << 20;
/// The maximum number of partitions in the kernel's interface.
const MAX_PARTITIONS: u16 = 255;

/// Fails at the first invalid field, with one line that says what is wrong.
pub fn check(spec: &InstanceSpec) -> Result<(), ApiError> {
    let fail = |text: String| Err(ApiError::invalid(text));
    match spec.command.first() {
        Some(program) if !program.is_empty() => {}
        _ => return fail("command: give the program".to_owned()),
    }
    if spec.user.other_groups.len() > InstanceUser::MAX_GROUPS {
        return fail(format!("user: it has at most {} other groups", InstanceUser::MAX_GROUPS));
    }
    if spec.image.is_some() && !spec.layers.is_empty() {
        return fail("layers: the root is an image already".to_owned());
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
    let limits = [
        ("memory_limit_bytes", spec.memory_limit_bytes),
        ("files_limit_bytes", spec.files_limit_bytes),
    ];
    for (name, bytes) in limits {
        if let Some(bytes) = bytes
            && bytes < MIN_MEMORY_BYTES
        {
            return fail(format!("{name}: {bytes} is less than {MIN_MEMORY_BYTES}"));
        }
    }
    let limits =
        [("cpu_share_millis", spec.cpu_share_millis), ("cpu_limit_millis", spec.cpu_limit_millis)];
    for (name, millis) in limits {
        if let Some(millis) = millis
            && !(MIN_CPU_MILLIS..=MAX_CPU_MILLIS).contains(&millis)
        {
            return fail(format!(
                "{name}: {millis} is not between {MIN_CPU_MILLIS} and {MAX_CPU_MILLIS}"
            ));
        }
    }
    if spec.port == Some(0) {
        return fail("port: 0 is not a port".to_owned());
    }
    Ok(())
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
            ("files_limit_bytes", json!(0), "files_limit_bytes"),
            ("cpu_limit_millis", json!(9), "cpu_limit_millis"),
            ("cpu_share_millis", json!(0), "cpu_share_millis"),
            ("port", json!(0), "port"),
            ("id", json!("A"), "id is"),
            ("unknown", json!(1), "unknown"),
        ] {
            let error = with(field, value).unwrap_err();
            assert!(error.contains(word), "{field}: {error}");
        }
    }
}
