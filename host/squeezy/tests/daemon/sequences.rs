//! Sequences through HTTP and the command line, as far as that needs no VM: their components fail.

use super::*;

#[test]
fn a_sequence_is_made_called_and_found() {
    let directory = own_empty_build();
    let directory = directory.path();
    let mut daemon = daemon(directory);
    let output =
        daemon.client(&["function", "create", "s", "--sequence", "f,/_/f", "--web", "yes"]);
    let (shown, error) = said(&output);
    assert!(shown.contains("\"/guest/f\""), "{shown} {error}");
    let (table, _) = said(&daemon.client(&["function", "list"]));
    assert!(table.contains("/guest/f,/guest/f"), "{table}");
    for (components, part) in [
        (json!(["/_/s"]), "refer to itself"),
        (json!(["/_/none"]), "does not exist"),
        (json!(["f"]), "/NAMESPACE/NAME"),
        (json!(["/acme/f"]), "own namespace"),
    ] {
        let exec = json!({ "exec": { "kind": "sequence", "components": components } });
        let put = "/namespaces/_/actions/s?overwrite=true";
        let (status, answer) = daemon.ask("PUT", put, Some(exec));
        assert_eq!(status, 400, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(part), "{answer}");
    }

    let invoke = "/namespaces/_/actions/s?blocking=true";
    let (status, whole) = daemon.ask("POST", invoke, Some(json!({})));
    assert_eq!((status, &whole["response"]["success"]), (500, &json!(false)), "{whole}");
    let annotations = whole["annotations"].as_array().unwrap();
    for (key, value) in
        [("kind", json!("sequence")), ("topmost", json!(true)), ("path", json!("guest/s"))]
    {
        assert!(annotations.contains(&json!({ "key": key, "value": value })), "{whole}");
    }
    let limits = annotations.iter().find(|pair| pair["key"] == "limits").unwrap();
    assert!(limits["value"]["memory"].is_number(), "{whole}");
    assert_eq!(whole["logs"].as_array().unwrap().len(), 1, "{whole}");
    let part = format!("/namespaces/_/activations/{}", whole["logs"][0].as_str().unwrap());
    let (status, part) = daemon.ask("GET", &part, None);
    assert_eq!((status, &part["name"], &part["cause"]), (200, &json!("f"), &whole["activationId"]));
    assert_eq!(part["response"], whole["response"]);
    assert_eq!(part["duration"], whole["duration"]);

    // Who does not wait is told an ID that there is after the next start.
    let (status, taken) = daemon.ask("POST", "/namespaces/_/actions/s", Some(json!({})));
    assert_eq!(status, 202, "{taken}");
    daemon.signal("KILL");
    daemon.child.wait().unwrap();
    let was_slow = daemon.was_slow();
    let daemon = super::daemon(directory);
    let id = taken["activationId"].as_str().unwrap();
    let (status, found) = daemon.ask("GET", &format!("/namespaces/_/activations/{id}"), None);
    assert!(was_slow || (status, &found["name"]) == (200, &json!("s")), "{found}");
    let (status, again) = daemon.ask("GET", "/namespaces/_/actions/s", None);
    assert_eq!((status, &again["exec"]["kind"]), (200, &json!("sequence")), "{again}");
}

#[test]
fn the_feed_of_alarms_is_said_to_be_missing() {
    let directory = own_empty_build();
    let directory = directory.path();
    let daemon = daemon(directory);
    let path = "/namespaces/whisk.system/actions/alarms/alarm?blocking=true";
    let (status, answer) = daemon.ask("POST", path, Some(json!({})));
    assert_eq!(status, 501, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("a systemd timer"), "{answer}");
    assert_eq!(daemon.ask("GET", "/namespaces/whisk.system/actions", None).0, 403);
}
