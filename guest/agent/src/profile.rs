//! Counts calls of kernel functions with ftrace's function profiler (tracefs).

use crate::error::ApiError;
use squeezy_protocol::{FunctionCalls, Profile, ProfileRequest};
use std::{cell::RefCell, fs, io::Write, path::Path};

const TRACEFS: &str = "/sys/kernel/tracing";
const MAX_FUNCTIONS: usize = 64;
/// The kernel truncates names in `trace_stat` to this many bytes.
const SHOWN_NAME_BYTES: usize = 30;

/// Which functions are being counted.
#[derive(Debug, Default)]
pub struct Profiler {
    functions: RefCell<Vec<String>>,
}

impl Profiler {
    /// Starts counting calls of these functions, from zero.
    pub fn start(&self, request: ProfileRequest) -> Result<(), ApiError> {
        check(&request)?;
        let failed = |e| ApiError::internal("starting the kernel's function profiler", e);
        let tracefs = Path::new(TRACEFS);
        let enabled = tracefs.join("function_profile_enabled");
        if !enabled.exists() {
            return Err(ApiError::invalid(
                "this kernel has no function profiler: build it with CONFIG_FUNCTION_PROFILER",
            ));
        }
        fs::write(&enabled, "0").map_err(failed)?;
        let filter = tracefs.join("set_ftrace_filter");
        fs::write(&filter, "").map_err(failed)?;
        // One write per name, so that a name the kernel does not have fails alone.
        let mut file = fs::OpenOptions::new().append(true).open(&filter).map_err(failed)?;
        let functions: Vec<_> = request
            .functions
            .into_iter()
            .filter(|name| file.write_all(format!("{name}\n").as_bytes()).is_ok())
            .collect();
        drop(file);
        if functions.is_empty() {
            // An empty filter means every function of the kernel.
            return Err(ApiError::invalid("the kernel has none of these functions"));
        }
        fs::write(&enabled, "1").map_err(failed)?;
        *self.functions.borrow_mut() = functions;
        Ok(())
    }

    /// The counts since the last start; counting continues.
    pub fn read(&self) -> Result<Profile, ApiError> {
        let functions = self.functions.borrow();
        let mut profile = Profile::default();
        if functions.is_empty() {
            return Ok(profile);
        }
        let failed = |e| ApiError::internal("reading the kernel's function profile", e);
        for entry in fs::read_dir(Path::new(TRACEFS).join("trace_stat")).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // One file per processor: function0, function1, ...
            if name.strip_prefix("function").is_none_or(|cpu| cpu.parse::<u32>().is_err()) {
                continue;
            }
            add(&mut profile, &functions, &fs::read_to_string(&path).map_err(failed)?);
        }
        Ok(profile)
    }
}

fn check(request: &ProfileRequest) -> Result<(), ApiError> {
    if !(1..=MAX_FUNCTIONS).contains(&request.functions.len()) {
        return Err(ApiError::invalid(format!("functions: give 1 to {MAX_FUNCTIONS} names")));
    }
    // tracefs interprets '*', ':', '!' and others.
    let valid = |name: &String| {
        (1..=127).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.')
    };
    match request.functions.iter().find(|name| !valid(name)) {
        Some(name) => Err(ApiError::invalid(format!("'{name}' is not a function name"))),
        None => Ok(()),
    }
}

/// Adds one processor's table to the profile: ` schedule 12 345.678 us 28.806 us 1.000 us`.
fn add(profile: &mut Profile, functions: &[String], table: &str) {
    for line in table.lines() {
        let mut words = line.split_whitespace();
        let (Some(shown), Some(Ok(calls)), Some(Ok(micros)), Some("us")) = (
            words.next(),
            words.next().map(str::parse::<u64>),
            words.next().map(str::parse::<f64>),
            words.next(),
        ) else {
            continue;
        };
        let cut = |name: &&String| name.get(..SHOWN_NAME_BYTES).unwrap_or(name.as_str()) == shown;
        let Some(name) = functions.iter().find(cut) else { continue };
        let total: &mut FunctionCalls = profile.functions.entry(name.clone()).or_default();
        total.calls += calls;
        total.time_ns += (micros * 1000.0).round() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  Function                               Hit    Time            Avg             s^2
  --------                               ---    ----            ---             ---
  schedule                               168    22943.123 us     136.566 us      1.000 us
  virtio_mem_sbm_unplug_any_sb_o           2    12345678 us     6172839 us      0.000 us
  other                                    1    1.000 us        1.000 us        0.000 us
";

    #[test]
    fn sums_over_processors_and_restores_cut_names() {
        let functions = ["schedule".to_owned(), "virtio_mem_sbm_unplug_any_sb_online".to_owned()];
        let mut profile = Profile::default();
        add(&mut profile, &functions, TABLE);
        add(&mut profile, &functions, TABLE);
        assert_eq!(profile.functions.len(), 2);
        assert_eq!(
            profile.functions["schedule"],
            FunctionCalls { calls: 336, time_ns: 2 * 22_943_123 }
        );
        assert_eq!(profile.functions["virtio_mem_sbm_unplug_any_sb_online"].calls, 4);
    }

    #[test]
    fn refuses_what_tracefs_would_interpret() {
        for bad in ["", "a*", "!a", "a:traceoff", "a b", "a\nb"] {
            assert!(check(&ProfileRequest { functions: vec![bad.to_owned()] }).is_err(), "{bad}");
        }
        assert!(check(&ProfileRequest { functions: vec![] }).is_err());
        assert!(check(&ProfileRequest { functions: vec!["a.isra.0".to_owned()] }).is_ok());
    }
}
