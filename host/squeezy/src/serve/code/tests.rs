//! What code is kept, and when it is removed.

use super::*;
use axum::body::Bytes;
use serde_json::{Value, json};
use tempfile::TempDir;

fn place() -> (TempDir, Arc<Codes>) {
    let directory = tempfile::tempdir().unwrap();
    let codes = Arc::new(Codes::open(directory.path()).unwrap());
    (directory, codes)
}

fn given(text: &str) -> GivenCode {
    GivenCode::new(Bytes::from(json!(text).to_string()), Arc::from([])).unwrap()
}

async fn keep(
    codes: &Arc<Codes>,
    kind: &str,
    binary: Option<bool>,
    text: &str,
) -> Result<ActionCode, String> {
    let kind = Kind::find(kind).unwrap();
    codes.keep(kind, None, binary, given(text)).await.map_err(|error| error.to_string())
}

fn base64(bytes: &[u8]) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    BASE64_STANDARD.encode(bytes)
}

/// Names in the directory of code.
fn names(directory: &TempDir) -> usize {
    fs::read_dir(directory.path().join(DIRECTORY)).map_or(0, Iterator::count)
}

#[tokio::test]
async fn code_is_given_back_as_it_came() {
    let (_directory, codes) = place();
    let archive: Vec<u8> =
        b"PK\x03\x04".iter().copied().chain((0..200_000).map(|n| n as u8)).collect();
    let texts = [
        ("python", "def main(a):\n\treturn {\"é\": '\\n'}".to_owned()),
        ("python", base64(&archive)),
        ("nodejs", base64(&archive[..199_999])),
        ("native", base64(b"\x7fELF and so on")),
        ("native", "#!/bin/sh\n".to_owned()),
    ];
    for (kind, text) in texts {
        let code = keep(&codes, kind, None, &text).await.unwrap();
        let mut json = Vec::new();
        write_as_json(&code, &mut json).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&json).unwrap(), json!(text));
        assert_eq!(code.code.read().unwrap().len() as u64, code.code.bytes);
        assert_eq!(code.binary, !text.contains(['(', '#']), "{text:.10}");
    }
}

#[tokio::test]
async fn what_is_no_code_is_refused_and_leaves_nothing() {
    let (directory, codes) = place();
    for (kind, binary, text, part) in [
        ("python", Some(true), "UEsDBA=*".to_owned(), "not in base64"),
        ("python", None, format!("UEsDBAAA{}", "*".repeat(100_000)), "not in base64"),
        ("python", None, format!("{}====AAAA", base64(b"PK\x03\x04").repeat(40_000)), "base64"),
        ("python", Some(true), base64(b"def main"), "zip archive"),
        ("python", None, base64(b"\x7fELF"), "zip archive"),
        ("java", None, "class Hello {}".to_owned(), "archive in base64"),
    ] {
        let error = keep(&codes, kind, binary, &text).await.unwrap_err();
        assert!(error.starts_with("exec.code: ") && error.contains(part), "{error}");
        assert_eq!(names(&directory), 0);
    }
}

#[tokio::test]
async fn code_is_there_as_long_as_it_is_used_and_is_verified() {
    let (directory, codes) = place();
    let one = keep(&codes, "python", None, "one").await.unwrap();
    let same = keep(&codes, "nodejs", None, "one").await.unwrap();
    let two = keep(&codes, "python", None, "two").await.unwrap();
    assert_eq!((names(&directory), &one.code.digest), (2, &same.code.digest));
    drop(one);
    codes.sweep(BTreeSet::from([two.code.digest.clone()])).await;
    assert_eq!(names(&directory), 2, "an action still has it");
    let (digest, path) = (two.code.digest.clone(), two.code.path.clone());
    drop((same, two));
    codes.sweep(BTreeSet::from([digest.clone()])).await;
    assert_eq!(names(&directory), 1);

    // As a restarted daemon finds it.
    fs::write(path.with_extension("new"), "half").unwrap();
    let codes = Arc::new(Codes::open(directory.path()).unwrap());
    assert_eq!(names(&directory), 1);
    assert_eq!(codes.find(&digest).await.unwrap().read().unwrap(), b"two");
    fs::write(&path, "new").unwrap();
    assert!(matches!(codes.find(&digest).await, Err(CodeError::Gone(_))));
    // It is whole again after somebody has given it once more, also while an action has it.
    let two = keep(&codes, "python", None, "two").await.unwrap();
    fs::write(&path, "altered").unwrap();
    assert!(matches!(two.code.read(), Err(CodeError::Gone(_))));
    keep(&codes, "python", None, "two").await.unwrap();
    assert_eq!(two.code.read().unwrap(), b"two");
    drop(two);
    codes.find(&digest).await.unwrap();
    fs::remove_file(&path).unwrap();
    assert!(matches!(codes.find(&digest).await, Err(CodeError::Gone(_))));
}

#[tokio::test]
async fn instances_that_start_at_once_share_the_request() {
    let (_directory, codes) = place();
    let code = keep(&codes, "python", None, "one").await.unwrap();
    let contract = RunsCode::new(code);
    use squeezy_node::{Contract, function::Function};
    let html = include_str!("../../../../../functions/html/function.toml");
    let function = Function::parse(html).unwrap();
    let (first, second) = tokio::join!(contract.start(&function), contract.start(&function));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.body().as_ptr(), second.body().as_ptr());
    let body: Value = serde_json::from_slice(first.body()).unwrap();
    assert_eq!((&body["value"]["code"], &body["value"]["main"]), (&json!("one"), &json!("main")));
}
