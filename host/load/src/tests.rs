use super::*;

const INVOCATIONS: &str = "\
HashOwner,HashApp,HashFunction,Trigger,480,481,482
o,a,f1,http,0,3,1
o,a,f2,timer,1,0,0
o,b,g1,http,1,1,1
";

const INVOCATIONS_2021: &str = "\
app,func,end_timestamp,duration
a,f,0.5,1.5
a,g,61.0,1.0
a,f,3.0,0.25
";

fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

fn error_2019(text: &str) -> String {
    azure2019::Invocations::parse(text.as_bytes()).unwrap_err().to_string()
}

fn error_2021(text: &str) -> String {
    azure2021::Invocations::parse(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_2019_trace_keeps_its_minutes() {
    let trace = azure2019::Invocations::parse(INVOCATIONS.as_bytes()).unwrap();
    assert_eq!((trace.first_minute, trace.minutes), (480, 3));
    let load = trace.load("f1", 7).unwrap();
    let minutes: Vec<_> = load.arrivals.iter().map(|at| at.as_secs() / 60).collect();
    assert_eq!(minutes, [1, 1, 1, 2]);
    assert!(load.arrivals.is_sorted());
    assert_eq!(trace.load("f1", 7), trace.load("f1", 7));
    assert_ne!(trace.load("f1", 7), trace.load("f1", 8));
    assert!(trace.load("f3", 7).is_none());
    assert!(load.source.contains("seed 7"));
}

#[test]
fn a_bad_2019_trace_is_refused_with_its_line() {
    assert_eq!(error_2019(""), "line 1: the file is empty, expected a header");
    assert_eq!(
        error_2019("app,func,end_timestamp,duration\n"),
        "line 1: the header has no column \"HashFunction\"; is this file in another format?"
    );
    let broken = INVOCATIONS.replace("1,0,0", "1,x,0");
    assert_eq!(
        error_2019(&broken),
        "line 3: column 481: \"x\" is not a whole number from 0 to 10000000"
    );
    let broken = INVOCATIONS.replace("1,0,0", "1,0");
    assert_eq!(error_2019(&broken), "line 3: 6 fields, but the header has 7");
    let broken = INVOCATIONS.replace("481", "482");
    assert_eq!(error_2019(&broken), "line 1: column \"482\" where minute 481 belongs");
    let broken = INVOCATIONS.replace("480,481,482", "a,b,c");
    assert!(error_2019(&broken).starts_with("line 1: the header has no column for a minute"));
    let broken = INVOCATIONS.replace("f2", "f 2");
    assert_eq!(error_2019(&broken), "line 3: column HashFunction: \"f 2\" is not a hash");
    let endless = "x".repeat(1 << 20);
    assert_eq!(error_2019(&endless), "line 1: longer than 64 KiB");
    assert!(azure2019::Invocations::parse(&b"\xff\xfe\n"[..]).is_err());
}

#[test]
fn percentiles_are_read_by_the_names_of_columns() {
    let durations = "HashFunction,Average,percentile_Average_50,percentile_Average_99\nf,2,1.5,9\n";
    let durations = azure2019::durations_ms(durations.as_bytes()).unwrap();
    assert_eq!(durations["f"], [(50.0, 1.5), (99.0, 9.0)]);
    let memory = "HashApp,SampleCount,AverageAllocatedMb_pct50\na,3,-1\n";
    let error = azure2019::memory_mb(memory.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        error,
        "line 2: column AverageAllocatedMb_pct50: \"-1\" is not a number from 0 to 1048576"
    );
}

#[test]
fn a_2021_trace_begins_with_the_first_start() {
    let trace = azure2021::Invocations::parse(INVOCATIONS_2021.as_bytes()).unwrap();
    assert_eq!(trace.load("f").unwrap().arrivals, [seconds(0.0), seconds(3.75)]);
    assert_eq!(trace.load("g").unwrap().arrivals, [seconds(61.0)]);
    assert_eq!(trace.functions["f"][1].duration, seconds(0.25));
    assert_eq!(trace.length, seconds(61.0));
}

#[test]
fn a_bad_2021_trace_is_refused_with_its_line() {
    let broken = INVOCATIONS_2021.replace("61.0", "NaN");
    assert!(error_2021(&broken).starts_with("line 3: column end_timestamp: \"NaN\" is not"));
    let broken = INVOCATIONS_2021.replace("0.25", "-1");
    assert!(error_2021(&broken).starts_with("line 4: column duration: \"-1\" is not"));
    let empty = azure2021::Invocations::parse(&b"app,func,end_timestamp,duration\n"[..]).unwrap();
    assert_eq!(choose(&empty.candidates(), None, 100), Err(ChoiceError::Empty));
}

#[test]
fn a_function_is_chosen_by_its_hash_or_its_bursts() {
    let trace = azure2019::Invocations::parse(INVOCATIONS.as_bytes()).unwrap();
    let candidates = trace.candidates();
    assert_eq!(choose(&candidates, Some("g"), 0), Ok("g1"));
    assert_eq!(choose(&candidates, None, 100), Ok("f1"));
    assert_eq!(choose(&candidates, None, 2), Ok("f2"));
    assert_eq!(
        choose(&candidates, Some("f"), 0).unwrap_err().to_string(),
        "2 functions of the trace begin with \"f\"; give more of the hash"
    );
    let unknown = choose(&candidates, Some("h"), 0).unwrap_err().to_string();
    assert!(unknown.contains("f1 (4 invocations)"), "{unknown}");
}

#[test]
fn a_window_is_cut_out_and_played_faster() {
    let load =
        Load { source: String::new(), arrivals: [10.0, 70.0, 80.0, 130.0].map(seconds).into() };
    let window = load.window(seconds(60.0), seconds(60.0), 2.0);
    assert_eq!(window.arrivals, [seconds(5.0), seconds(10.0)]);
    assert_eq!(load.busiest_window(seconds(60.0)), seconds(60.0));
    assert_eq!(load.busiest_window(seconds(600.0)), seconds(0.0));
}

#[test]
fn a_burst_is_where_its_shape_says() {
    let shape = Synthetic {
        length: seconds(100.0),
        bursts: vec![(seconds(10.0), 50), (seconds(50.0), 20), (seconds(98.0), 40)],
        burst_length: seconds(5.0),
        trickle_gap: seconds(1000.0),
    };
    let load = shape.load(1).unwrap();
    let within = |from: f64| {
        let to = seconds(from + 5.0);
        load.arrivals.iter().filter(|&&at| at >= seconds(from) && at < to).count()
    };
    assert!((50..52).contains(&within(10.0)) && (20..22).contains(&within(50.0)));
    assert!((1..40).contains(&within(98.0)), "what comes after the end is dropped");
    assert!(load.arrivals.is_sorted() && *load.arrivals.last().unwrap() < shape.length);
    assert!(load.source.starts_with("synthetic (no real trace): bursts of 50 at 10 s, 20 at 50 s"));
    assert_eq!(shape.load(1), shape.load(1));
    assert_ne!(shape.load(1).unwrap().arrivals, shape.load(2).unwrap().arrivals);
    let zero = Synthetic { length: Duration::ZERO, ..shape.clone() };
    assert_eq!(zero.load(1), Err(SyntheticError::Zero));
    let flood = Synthetic { trickle_gap: Duration::from_nanos(1), ..shape };
    assert_eq!(flood.load(1), Err(SyntheticError::TooMany));
}
