//! Images that mean harm, from a real registry.

use super::{PROGRAM, Place, Registry, pull, refused};
use crate::common::until;
use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
};

#[test]
fn images_that_mean_harm_are_refused_or_harmless() {
    let (registry, place) = (Registry::start(), Place::new());
    let configuration = format!("actions_disk = \"256M\"\n{}", registry.configuration());
    let daemon = place.daemon(&configuration);
    let out = place.path("out");
    let out = out.display();
    let way_out = "../../../../../../../../../../..";
    for (name, layers, more, status, part) in [
        (
            "above",
            format!("[layer({PROGRAM}, entry('{way_out}{out}', b'!'))]"),
            "",
            400,
            "leads out of the image",
        ),
        (
            "hard",
            format!("[layer({PROGRAM}, hard_link('a', '{way_out}/etc/passwd'))]"),
            "",
            400,
            "leads out of the image",
        ),
        (
            "proc",
            format!("[layer({PROGRAM}, link('proc', '/'))]"),
            "",
            400,
            "/proc of the image is not a directory",
        ),
        (
            "layers",
            format!(
                "[layer({PROGRAM})] + [layer(entry('a', str(i).encode())) for i in range(140)]"
            ),
            "",
            400,
            "141 layers",
        ),
        // What the checker would take for files, and what is behind the end of the archive.
        (
            "ambiguous",
            format!("[ambiguous(layer(entry('a', layer(entry('hidden'))), {PROGRAM}))]"),
            "",
            400,
            "layer 1 is damaged: a number that is none",
        ),
        (
            "behind",
            format!("[layer({PROGRAM}) + layer(entry('hidden'))]"),
            "",
            400,
            "something follows its end",
        ),
        (
            "damaged",
            format!("[layer({PROGRAM})]"),
            ", compress=lambda content: gzip.compress(content)[:-20]",
            400,
            "",
        ),
        // A bomb: 60 MB of zeros in 60 kB, three times.
        ("bomb", "[layer(entry('a', bytes(60_000_000)))] * 3".to_owned(), "", 507, "actions_disk"),
        ("deep", format!("[layer({PROGRAM}, entry('d/' * 40_000 + 'f'))]"), "", 0, ""),
        // Directories that no entry names.
        (
            "files",
            format!(
                "[layer({PROGRAM}, *[entry(f'{{i}}/' + 'd/' * 1000 + 'f') for i in range(1100)])]"
            ),
            "",
            0,
            "",
        ),
        (
            "environment",
            format!("[layer({PROGRAM})]"),
            ", Env=['A=' + 'x' * 2_000_000]",
            400,
            "longer than 1 MiB",
        ),
        ("port", format!("[layer({PROGRAM})]"), ", ExposedPorts={'99999/tcp': {}}", 400, "99999"),
        ("user", format!("[layer({PROGRAM})]"), ", User='nobody-here'", 400, "no user"),
    ] {
        let more = format!("Cmd=['serve']{more}");
        let image = registry.push(&format!("{name}:1"), &layers, &more);
        let answer = pull(&daemon, &image);
        match status {
            0 => assert!([400, 507].contains(&answer.0), "{name}: {answer:?}"),
            status => refused(answer, status, part),
        }
        assert!(fs::metadata(place.path("out")).is_err(), "{name}");
        place.has(0);
    }
}

#[test]
fn links_devices_and_whiteouts_stay_in_the_image() {
    let (registry, place) = (Registry::start(), Place::new());
    let daemon = place.daemon(&registry.configuration());
    let victim = place.path("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("file"), "mine").unwrap();
    let victim = victim.display();
    let first = format!(
        "layer({PROGRAM}, link('way', '{victim}'), link('up', '../../../../../../../..'), \
         entry('dev/disk', kind=tarfile.BLKTYPE, devmajor=8, devminor=0), directory('closed', mode=0), \
         entry('closed/in', b'1', uid=33, mode=0), entry('bin/as-owner', b'2', mode=0o4755))"
    );
    let second = format!(
        "layer(entry('way/new', b'!'), entry('way/.wh.file'), entry('up{victim}/other', b'!'), entry('/absolute', b'a'))"
    );
    let image = registry.push("links:1", &format!("[{first}, {second}]"), "Cmd=['serve']");
    let (status, pulled) = pull(&daemon, &image);
    assert_eq!(status, 200, "{pulled}");
    let names: Vec<_> =
        fs::read_dir(place.path("victim")).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, ["file"]);
    assert_eq!(fs::read_to_string(place.path("victim/file")).unwrap(), "mine");
    place.has(1);
    until("it to go", || {
        (daemon
            .ask(
                "DELETE",
                &format!("/namespaces/_/images/{}", pulled["digest"].as_str().unwrap()),
                None,
            )
            .0
            == 200)
            .then_some(())
    });
    place.has(0);
}

#[test]
fn what_grows_when_it_is_compressed_again_is_stopped() {
    let (registry, place) = (Registry::start(), Place::new());
    // A MiB that cannot be compressed, 60 times: zstd says it once, and gzip cannot see that far back.
    let zstd = ", kind=LAYER.replace('gzip', 'zstd'), compress=lambda content: \
        __import__('subprocess').run(['zstd', '-q'], input=content, capture_output=True, check=True).stdout";
    let layers = format!("[layer({PROGRAM}, entry('a', os.urandom(1 << 20) * 60))]");
    let image = registry.push("bomb:1", &layers, &format!("Cmd=['serve']{zstd}"));
    let mut daemon = place.daemon(&format!("actions_disk = \"64M\"\n{}", registry.configuration()));
    refused(pull(&daemon, &image), 507, "more than 32 MiB while it is made, half of actions_disk");
    place.has(0);
    daemon.stop();
    let daemon = place.daemon(&registry.configuration());
    let (status, pulled) = pull(&daemon, &image);
    assert_eq!(status, 200, "{pulled}");
}

#[test]
fn what_a_registry_says_of_other_machines_is_not_passed_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let realm = host.clone();
    let asked = std::thread::spawn(move || {
        let mut paths = Vec::new();
        while !paths.iter().any(|path: &String| path.starts_with("/inside")) {
            let (mut client, _) = listener.accept().unwrap();
            let (mut request, mut part) = (Vec::new(), [0; 1024]);
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                match client.read(&mut part) {
                    Ok(length @ 1..) => request.extend_from_slice(&part[..length]),
                    _ => break,
                }
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            let head = match &*path {
                path if path.starts_with("/inside") => "418 the-answer-from-inside".to_owned(),
                _ => format!(
                    "401 no\r\nWWW-Authenticate: Bearer realm=\"http://{realm}/inside\",service=\"x\""
                ),
            };
            let body = "the-answer-from-inside";
            let _ = write!(
                client,
                "HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            paths.push(path);
        }
    });
    let place = Place::new();
    let mut daemon = place.daemon("");
    refused(pull(&daemon, &format!("{host}/a:1")), 400, "lists no registry");
    daemon.stop();
    let listed = format!("registries = [{{ host = {host:?}, plain_http = true }}]\n");
    let daemon = place.daemon(&listed);
    let answer = pull(&daemon, &format!("{host}/a:1"));
    assert!(!answer.1.to_string().contains("inside") && !answer.1.to_string().contains("418"));
    refused(answer, 502, "cannot be reached, or does not give it; the daemon's log says more");
    asked.join().unwrap();
}
