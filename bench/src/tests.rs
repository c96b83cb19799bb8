//! Tests from the command line to the output.

use super::*;
use report::{TARGETS, Target};
use std::path::Path;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("squeezy-bench").chain(line.split(' ')))
}

#[test]
fn nonsense_is_refused_before_anything_starts() {
    for line in [
        "nonsense",
        "reclaim --methods nonsense",
        "reclaim --sizes 1T",
        "reclaim --sizes 512M,,1G",
        "reclaim --init-on-alloc 2",
        "reclaim --trials 0",
        "reclaim --vcpus 65",
        "reclaim --memory-backend disk",
        "reclaim --from a --json b",
        "utilisation --fill 101",
        "utilisation --size 130001K",
        "cpu --accelerator xen",
        "plug --sizes -1",
        "faults --methods floor",
        "faults --duration 1",
        "overhead --calls 0",
        "single --calls 0",
        "single --processors 0",
        "after --size 1M",
        "frozen-garbage --sizes 256M,",
        "cache --variants nonsense",
        "cache --scale-factors 0",
        "cache --threshold 101",
        "bandwidth --methods squeezy",
        "bandwidth --size 130001K",
        "work --methods hyperalloc,,balloon",
        "fairness --methods virtio-mem",
        "fairness --duration 1",
        "fleet --applications 0",
        "fleet --of-namespace 0",
        "fleet --pods-per-node 0",
        "fleet --limit-step 0",
        "fleet --limit-step 2G",
        "pods --pods 1",
        "pods --pods 33",
        "code --functions nonsense",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[tokio::test]
async fn a_method_that_makes_no_sense_is_named() {
    for line in ["reclaim --methods static", "utilisation --methods floor"] {
        let error = parse(line).unwrap().command.run().await.unwrap_err().to_string();
        assert!(error.contains("cannot be measured here") && !error.contains('\n'), "{error}");
    }
    let error =
        parse("cpu --build /nonexistent").unwrap().command.run().await.unwrap_err().to_string();
    assert!(error.contains("/nonexistent") && !error.contains('\n'), "{error}");
}

#[tokio::test]
async fn a_function_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display();
    for name in ["nonsense", "../java"] {
        let line = format!(
            "single --functions {name} --functions-directory {path} --accelerator tcg --build {path}"
        );
        let error = parse(&line).unwrap().command.run().await.unwrap_err().to_string();
        assert!(error.contains(&format!("`{name}`")) && !error.contains('\n'), "{error}");
    }
}

/// Each experiment's plot is drawn from the lines next to it.
#[tokio::test]
async fn recorded_plots_are_those_of_the_recorded_lines() {
    let directory = tempfile::tempdir().unwrap();
    let mut stale = Vec::new();
    for name in experiments::NAMES {
        let folder = Path::new(REPOSITORY).join("bench/results").join(name);
        let (lines, plot) = (folder.join("results.jsonl"), folder.join("plot.svg"));
        let new = directory.path().join(name);
        println!("--- {name}");
        let line = format!("{name} --from {} --plot {}", lines.display(), new.display());
        parse(&line).unwrap().command.run().await.unwrap();
        if std::fs::read(&new).unwrap() != std::fs::read(&plot).unwrap() {
            stale.push(format!(
                "squeezy bench {name} --from {0}/results.jsonl --plot {0}/plot.svg",
                folder.display()
            ));
        }
    }
    assert!(stale.is_empty(), "redraw these:\n{}", stale.join("\n"));
}

/// There is no kernel in the directory.
#[tokio::test]
async fn one_method_that_fails_leaves_the_others_their_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (json, plot) = (path("lines"), path("plot.svg"));
    let line = format!(
        "plug --methods squeezy,floor --sizes 32M --trials 3 --accelerator tcg --build {} --json {json} --plot {plot}",
        path("")
    );
    let error = parse(&line).unwrap().command.run().await.unwrap_err().to_string();
    assert!(error.starts_with("not everything could be measured: squeezy, 32 MiB: "), "{error}");
    assert_eq!(std::fs::read_to_string(&json).unwrap().lines().count(), 4);
    assert!(std::path::Path::new(&plot).exists());
}

/// From the command line to the plot, with the one method that needs no VM.
#[tokio::test]
async fn the_floor_can_be_measured_anywhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let common = format!("--methods floor --accelerator tcg --build {}", path(""));
    for (name, more, lines) in
        [("reclaim", "--sizes 32M,64M", 6), ("cpu", "--size 32M", 3), ("plug", "--sizes 32M", 4)]
    {
        let (json, plot) = (path(&format!("{name}.jsonl")), path(&format!("{name}.svg")));
        let line = format!("{name} {common} {more} --trials 3 --json {json}");
        parse(&line).unwrap().command.run().await.unwrap();
        assert_eq!(std::fs::read_to_string(&json).unwrap().lines().count(), lines, "{name}");
        parse(&format!("{name} --from {json} --plot {plot}")).unwrap().command.run().await.unwrap();
        assert!(std::fs::read_to_string(&plot).unwrap().contains("floor"), "{name}");
    }
}

/// The table matches targets and lines.
#[test]
fn the_specification_is_made_of_the_targets_and_the_recorded_lines() {
    let root = Path::new(REPOSITORY);
    let text = std::fs::read_to_string(root.join("SPECIFICATION.md")).unwrap();
    assert!(
        text == specification::made(root).unwrap(),
        "SPECIFICATION.md does not match bench/targets.toml and the recorded lines: run \
         squeezy bench specification"
    );
}

/// Every target of an experiment is covered by its lines.
#[test]
fn every_target_of_an_experiment_is_assessed() {
    let assessed = experiments::recorded(&Path::new(REPOSITORY).join("bench/results")).unwrap();
    let is_assessed = |target: &Target| {
        target.experiment().is_none() || assessed.iter().any(|it| it.target == target)
    };
    let left: Vec<_> = TARGETS.iter().filter(|target| !is_assessed(target)).collect();
    assert!(left.is_empty(), "{left:?}");
}
