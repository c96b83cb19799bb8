//! What a kernel writes on its console when something is wrong with it.

/// Words that no healthy kernel writes.
const SIGNS: [&str; 18] = [
    "BUG:",
    "WARNING:",
    "Oops:",
    "Kernel panic",
    "KASAN:",
    "UBSAN:",
    "general protection fault",
    "Bad page state",
    "page allocation failure",
    "bad page map",
    "possible circular locking",
    "possible recursive locking",
    "inconsistent lock state",
    "suspicious RCU usage",
    "rcu: INFO:",
    "INFO: task",
    "soft lockup",
    "sleeping function called from invalid context",
];

/// The lines of a console in which the kernel complains.
pub fn complaints<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    lines.into_iter().filter(|line| SIGNS.iter().any(|sign| line.contains(sign))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oom_kill_is_no_complaint_and_a_lockdep_report_is() {
        let lines = [
            "memhog invoked oom-killer: gfp_mask=0x0",
            "Call Trace:",
            "WARNING: possible circular locking",
        ];
        assert_eq!(complaints(lines), ["WARNING: possible circular locking"]);
    }
}
