//! What code is kept, and when it is removed.

use super::*;
use crate::serve::blobs::tests::has;
use axum::body::Bytes;
use serde_json::{Value, json};
use squeezy_protocol::MAX_SENT_CODE_BYTES;
use tempfile::TempDir;

fn place() -> (TempDir, Codes) {
    let directory = tempfile::tempdir().unwrap();
    let codes = open(&directory);
    (directory, codes)
}

fn open(directory: &TempDir) -> Codes {
    Codes::open(directory.path(), DiskSpace::new(1 << 30), None).unwrap()
}

/// The code as it is read for an instance.
fn read(code: &ActionCode) -> Result<Vec<u8>, CodeError> {
    let mut json = Vec::new();
    write_as_json(code, &mut json)?;
    let text: String = serde_json::from_slice(&json).unwrap();
    use base64::{Engine, prelude::BASE64_STANDARD};
    Ok(if code.binary { BASE64_STANDARD.decode(text).unwrap() } else { text.into_bytes() })
}

fn given(text: &str) -> GivenCode {
    GivenCode::new(Bytes::from(json!(text).to_string())).unwrap()
}

async fn keep(
    codes: &Codes,
    kind: &str,
    binary: Option<bool>,
    text: &str,
) -> Result<ActionCode, String> {
    let kind = Kind::find(kind).unwrap();
    let kept = match codes.keep(kind, None, binary, given(text)).await {
        Ok(code) => codes.with_drive(&Namespace::guest(), code).await,
        refused => refused,
    };
    kept.map_err(|error| error.to_string())
}

fn base64(bytes: &[u8]) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    BASE64_STANDARD.encode(bytes)
}

/// A text as it is stored.
fn stored(digest: &Digest, drive: bool) -> StoredCode {
    let kind = "python:3.11".to_owned();
    StoredCode { kind, binary: false, main: None, digest: digest.clone(), drive }
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
        assert_eq!(read(&code).unwrap().len() as u64, code.bytes().unwrap());
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
    let place = directory.path().join(DIRECTORY);
    let one = keep(&codes, "python", None, "one").await.unwrap();
    let same = keep(&codes, "nodejs", None, "one").await.unwrap();
    let two = keep(&codes, "python", None, "two").await.unwrap();
    let (digest, path) = (two.code.digest.clone(), two.code.path.clone());
    has(&place, [&one.code.digest, &digest]);
    codes.keep_named([(&Namespace::guest(), "python:3.11", &digest)].into_iter());
    drop(one);
    has(&place, [&same.code.digest, &digest]);
    drop((same, two));
    has(&place, [&digest]);

    // As a restarted daemon finds it.
    let codes = open(&directory);
    let python = Kind::find("python").unwrap();
    let (guest, stored) = (Namespace::guest(), stored(&digest, false));
    let find = || codes.find(&guest, python, &stored);
    let two = find().await.unwrap();
    assert_eq!(read(&two).unwrap(), b"two");
    drop(two);
    fs::write(&path, "new").unwrap();
    assert!(matches!(find().await, Err(CodeError::Gone(_))));
    // It is whole again after somebody has given it once more, also while an action has it.
    let two = keep(&codes, "python", None, "two").await.unwrap();
    fs::write(&path, "altered").unwrap();
    assert!(matches!(read(&two), Err(CodeError::Gone(_))));
    keep(&codes, "python", None, "two").await.unwrap();
    assert_eq!(read(&two).unwrap(), b"two");
    drop(two);
    find().await.unwrap();
    fs::remove_file(&path).unwrap();
    assert!(matches!(find().await, Err(CodeError::Gone(_))));
}

#[tokio::test]
async fn a_text_is_read_in_parts_between_characters() {
    let (_directory, codes) = place();
    // Characters of one to four bytes around the end of each part.
    for shift in 0..4 {
        let text = "x".repeat(shift) + &"aé€😀\n".repeat(60_000);
        let code = keep(&codes, "python", None, &text).await.unwrap();
        assert_eq!(read(&code).unwrap(), text.as_bytes());
    }
    let code = keep(&codes, "python", None, "a").await.unwrap();
    fs::write(&code.code.path, b"\xff\xff").unwrap();
    assert!(matches!(read(&code), Err(CodeError::Gone(_))));
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

#[tokio::test]
async fn an_instance_hears_where_code_is_that_has_a_drive() {
    let (_directory, codes) = place();
    let code = keep(&codes, "python", None, "one").await.unwrap();
    assert_eq!(code.drive(), None);
    let drive = Some(code.code.clone());
    let contract = RunsCode::new(ActionCode { drive, main: Some("m".to_owned()), ..code });
    use squeezy_node::{Contract, function::Function};
    let html = include_str!("../../../../../functions/html/function.toml");
    let first = contract.start(&Function::parse(html).unwrap()).await.unwrap();
    let body: Value = serde_json::from_slice(first.body()).unwrap();
    let right = json!({ "name": "html", "main": "m", "env": {}, "directory": "/action" });
    assert_eq!((body["value"].clone(), first.uri().path()), (right, "/init"));
}

#[tokio::test]
async fn without_a_sandbox_code_is_sent_as_long_as_it_can_be() {
    let (_directory, codes) = place();
    let archive = |length| {
        let mut archive = b"PK\x03\x04".to_vec();
        archive.resize(length, 7);
        base64(&archive)
    };
    let most = MAX_SENT_CODE_BYTES / 4 * 3;
    let sent = keep(&codes, "python", None, &archive(most)).await.unwrap();
    assert_eq!(sent.drive(), None);
    let error = keep(&codes, "python", None, &archive(most + 1)).await.unwrap_err();
    assert!(error.contains("needs a drive") && error.contains("install bubblewrap"), "{error}");
}

#[tokio::test]
async fn what_was_stored_without_a_drive_is_found_without_one() {
    let (_directory, codes) = place();
    // Here it cannot have one, and is too long to be without it.
    let code = codes.blobs.add(|unfinished| {
        let mut file = unfinished.file(unfinished.path().to_owned())?;
        file.write(&vec![b'#'; MAX_SENT_CODE_BYTES + 1])?;
        file.finish()
    });
    let code = code.unwrap();
    let (guest, python) = (Namespace::guest(), Kind::find("python").unwrap());
    let find = async |drive| codes.find(&guest, python, &stored(&code.digest, drive)).await;
    assert_eq!(find(false).await.unwrap().drive(), None);
    assert!(matches!(find(true).await, Err(CodeError::NoSandbox(_))));
}

#[tokio::test]
async fn code_that_was_put_on_the_disk_is_the_same() {
    let (directory, codes) = place();
    let keep_spooled = async |kind: &str, binary, text: &[u8]| {
        let mut spool = codes.spool().await.unwrap();
        spool.write(text).unwrap();
        let kind = Kind::find(kind).unwrap();
        let given = GivenCode::spooled(spool).unwrap();
        let least_bytes = given.least_bytes();
        let kept = codes.keep(kind, None, binary, given).await;
        if let Ok(kept) = &kept {
            assert!(kept.bytes().unwrap() >= least_bytes || text.starts_with(b" "));
        }
        kept.map_err(|error| error.to_string())
    };
    assert!(GivenCode::spooled(codes.spool().await.unwrap()).is_none());
    let archive: Vec<u8> =
        b"PK\x03\x04".iter().copied().chain((0..200_000).map(|n| n as u8)).collect();
    let blanks = " \n".repeat(70_000);
    for (kind, binary, text) in [
        ("python", None, base64(&archive)),
        ("python", Some(true), format!("{blanks}{}{blanks}", base64(&archive))),
        ("native", None, base64(b"\x7fELF and so on")),
        ("python", None, format!("x{}", "aé€😀\n".repeat(20_000))),
    ] {
        let there = keep(&codes, kind, binary, &text).await.unwrap();
        let here = keep_spooled(kind, binary, text.as_bytes()).await.unwrap();
        assert_eq!((&here.code.digest, here.binary), (&there.code.digest, there.binary));
    }
    for (binary, text, part) in [
        (Some(true), b"UEsDBA=*".to_vec(), "not in base64"),
        (None, format!("{}====AAAA", base64(b"PK\x03\x04").repeat(40_000)).into(), "base64"),
        (Some(true), base64(b"def main").into(), "zip archive"),
        (None, b"def main\xff".to_vec(), "neither a text"),
        (None, "é".as_bytes()[..1].to_vec(), "neither a text"),
    ] {
        let error = keep_spooled("python", binary, &text).await.unwrap_err();
        assert!(error.starts_with("exec.code: ") && error.contains(part), "{error}");
    }
    // What was on the way is gone.
    codes.keep_named(std::iter::empty());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while names(&directory) > 0 {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
