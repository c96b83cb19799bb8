use super::*;
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use proptest::prelude::*;
use std::iter::repeat_n;

const GRPC: &str = "/run/containerd/containerd.sock";

fn read(stdin: &[u8], ttrpc_address: Option<&str>) -> Result<Bootstrap> {
    let name = |text: &str| text.parse().unwrap();
    Bootstrap::read(stdin, &name("default"), &name("one"), GRPC, ttrpc_address.map(str::to_owned))
}

fn parameters() -> BootstrapParams {
    BootstrapParams {
        instance_id: "one".to_owned(),
        namespace: "default".to_owned(),
        containerd_ttrpc_address: "unix:///run/x/containerd.sock.ttrpc".to_owned(),
        ..Default::default()
    }
}

#[test]
fn up_to_containerd_2_2_the_answer_is_an_address_and_events_go_where_the_environment_says() {
    let options = Any {
        type_url: "containerd.runc.v1.Options".to_owned(),
        value: vec![8, 1],
        ..Default::default()
    };
    for stdin in [Vec::new(), options.write_to_bytes().unwrap()] {
        let bootstrap = read(&stdin, Some("/run/x/containerd.sock.ttrpc")).unwrap();
        assert_eq!(bootstrap.events, "/run/x/containerd.sock.ttrpc");
        assert_eq!(bootstrap.answer("unix:///run/s"), b"unix:///run/s");
    }
}

#[test]
fn without_an_address_for_events_it_is_the_usual_one() {
    assert_eq!(read(&[], None).unwrap().events, "/run/containerd/containerd.sock.ttrpc");
}

#[test]
fn from_containerd_2_3_on_the_answer_is_a_message() {
    let bootstrap = read(&parameters().write_to_bytes().unwrap(), Some("/elsewhere")).unwrap();
    assert_eq!(bootstrap.events, "/run/x/containerd.sock.ttrpc");
    let answer = BootstrapResult::parse_from_bytes(&bootstrap.answer("unix:///run/s")).unwrap();
    assert_eq!(
        (answer.version, answer.address.as_str(), answer.protocol.as_str()),
        (3, "unix:///run/s", "ttrpc")
    );
}

#[test]
fn parameters_for_another_task_are_not_taken_for_this_ones() {
    let other = BootstrapParams { instance_id: "two".to_owned(), ..parameters() };
    let bootstrap = read(&other.write_to_bytes().unwrap(), Some("/environment")).unwrap();
    assert_eq!((bootstrap.events.as_str(), bootstrap.answer), ("/environment", Answer::Address));
}

#[test]
fn an_input_without_an_end_is_refused() {
    let endless = repeat_n(b'x', MAX_BYTES as usize + 2).collect::<Vec<u8>>();
    assert!(read(&endless, None).unwrap_err().message.contains("more than 4 MiB"));
}

#[test]
fn an_address_that_is_no_path_is_refused() {
    let long = format!("/{}", "x".repeat(300));
    for address in ["", "tcp://1.2.3.4:5", "relative", &long] {
        let error = read(&[], Some(address)).unwrap_err();
        assert!(error.message.contains("is no path of at most 256 bytes"), "{error}");
    }
}

proptest! {
    #[test]
    fn no_input_makes_it_panic(stdin in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&stdin, None);
    }

    #[test]
    fn parameters_that_are_cut_off_never_count(cut in 1_usize..10) {
        let bytes = parameters().write_to_bytes().unwrap();
        let answer = read(&bytes[..bytes.len() - cut], Some("/environment")).map(|bootstrap| bootstrap.events);
        prop_assert_eq!(answer, Ok("/environment".to_owned()));
    }
}
