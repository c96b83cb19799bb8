//! Whether large code can be a drive of its VM.

use super::finding::Finding;
use crate::serve::probe_packer;

const SUBJECT: &str = "drives of large code";

/// Tries the sandbox in which they would be made.
pub async fn examine() -> Finding {
    found(probe_packer().await)
}

fn found(probed: Result<(), String>) -> Finding {
    match probed {
        Ok(()) => Finding::good(SUBJECT, "can be made"),
        // Most code is small, and more of it can be sent.
        Err(problem) => Finding::slow(
            SUBJECT,
            format!("cannot be made, so each instance gets the code: {problem}"),
            "install bubblewrap and erofs-utils, and let users make namespaces",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Verdict::Slow, *};

    #[test]
    fn without_them_code_is_slow() {
        assert_eq!(found(Err("missing: mkfs.erofs".to_owned())).verdict, Slow);
    }
}
