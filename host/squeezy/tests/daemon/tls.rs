//! A daemon with a certificate.

use super::{
    certificate,
    common::{Daemon, NO_VM, own_empty_build, until},
    said,
};
use std::fs;

#[test]
fn clients_that_trust_the_certificate_are_answered_also_after_it_was_replaced() {
    let directory = own_empty_build();
    let directory = directory.path();
    let (certificate, key) = certificate::make(directory, "first");
    let configuration =
        format!("{NO_VM}\ntls_certificate = \"first.pem\"\ntls_key = \"first.key\"");
    let daemon = Daemon::start_in(directory, directory, &configuration, &[]);
    let with = |ca: &str, command: &str| {
        let mut client = daemon.client_command(&[command]);
        client.env("SQUEEZY_CA_FILE", directory.join(ca)).output().unwrap()
    };
    fs::copy(&certificate, directory.join("trusted.pem")).unwrap();
    let (out, error) = said(&with("trusted.pem", "status"));
    assert!(out.contains(" at https://127.0.0.1:"), "{out}{error}");
    assert!(with("trusted.pem", "activations").status.success());

    // Renewed, in two steps: the daemon keeps what it has until both belong together.
    let (second, second_key) = certificate::make(directory, "second");
    fs::copy(&second, &certificate).unwrap();
    daemon.signal("HUP");
    daemon.says("cannot be used together: ");
    assert!(with("trusted.pem", "status").status.success());
    fs::copy(&second_key, &key).unwrap();
    daemon.signal("HUP");
    daemon.says("new connections have the new certificate");
    until("the new certificate", || with("second.pem", "status").status.success().then_some(()));
    let refused = with("trusted.pem", "status");
    let (_, error) = said(&refused);
    assert_eq!(refused.status.code(), Some(1));
    assert!(error.contains("cannot be reached: ") && error.lines().count() == 1, "{error}");

    for (ca, part) in [("none.pem", "No such file"), ("second.key", "no certificate in PEM")] {
        let (_, error) = said(&with(ca, "status"));
        assert!(
            error.contains(ca) && error.contains(part) && error.lines().count() == 1,
            "{error}"
        );
    }
}
