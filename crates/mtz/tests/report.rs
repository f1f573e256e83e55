//! The report of a run: as JSON and back, as a page, and made from anything else.
#![allow(clippy::unwrap_used, clippy::panic)]

use mtz::architecture::{self, NetworkSpec};
use mtz::budget::{self, Budget};
use mtz::data::{self, Feed, Normalisation, OpenOptions, Part};
use mtz::error::ErrorKind;
use mtz::merge::Recipe;
use mtz::report::{BudgetRecord, MAX_BYTES, MeasuredOn, RunFacts, RunReport, TargetSize, page};
use mtz::sharing::Joint;
use mtz::zip::{TaskData, ZipOptions};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

fn read(json: &Value) -> RunReport {
    RunReport::from_json(json.to_string().as_bytes()).unwrap()
}

/// A report with something in every field.
fn full() -> Value {
    let task = |error: Value| {
        json!({ "error_before": error, "error_zipped": 1.75, "error_after": 1.5, "agreement_zipped": 98.5,
                "agreement_after": 99.25, "kind": "classes", "kind_is_known": true, "kind_why": "by the labels",
                "output": "fc2.output", "outputs": 1, "parameters": 500, "samples": 10_000, "part": "held-out tenth" })
    };
    let layer = json!({
        "name": "fc1", "units": { "b": 30, "a": 20 }, "shared": 20,
        "owners": [{ "tasks": ["b", "a"], "units": 20 }, { "tasks": ["b"], "units": 10 }],
        "distance": 0.25, "distances": [0.125, 0.25], "private_distances": [0.5], "typical_distance": 1.0,
        "error_samples": 10_000, "error_zipped": { "b": 1.75, "a": null }, "error_after": { "b": 1.5, "a": null },
        "agreement_zipped": { "b": 98.5, "a": 97.0 }, "agreement_after": { "b": 99.25, "a": 98.0 }, "iterations": 4,
        "kept": 0.5, "losses": [{ "iteration": 2, "loss": { "b": 0.5, "a": 0.25 } },
                                { "iteration": 4, "loss": { "b": 0.25, "a": null } }],
        "seconds": 0.5, "inputs": 785, "samples": 1000, "fit_error": { "b": 0.5, "a": null },
        "fit_error_held_out": { "b": 0.5, "a": null }, "ridge": 0.01, "ridge_raised": true,
    });
    let point = json!({
        "parameters": 600, "file_bytes": 3000, "size": 0.6, "sharing": 0.75, "error_increase": { "b": 0.25, "a": null },
        "standard_error": { "b": 0.125, "a": null }, "agreement": { "b": 99.0, "a": 98.0 },
        "agreement_error": { "b": 0.5, "a": 0.5 }, "shares": { "fc1": 0.5 }, "iterations": 4, "chosen": true,
        "pareto": true,
    });
    json!({
        "version": 1, "mtz": "0.1.0", "date": "2026-11-19T04:05:06Z",
        "tasks": { "b": task(json!(1.25)), "a": task(Value::Null) },
        "parameters": { "before": 1000, "after": 600, "shared": 400, "nonzero_before": 900, "nonzero_after": 500 },
        "file_bytes": { "before": 5000, "after": 3000 }, "checked": true,
        "multiply_adds": { "before": 1000, "after": 1000 }, "layers": [layer],
        "private": [{ "name": "conv", "parameters": 10, "why": "it is shared with another" }],
        "budget": { "max_error_increase": 0.5, "min_agreement": null, "margin": 1.0, "target_size": { "part": 0.5 },
                    "min_sharing": null, "met": false, "missed": ["the file takes 3000 bytes"],
                    "held_out": { "b": 100, "a": 90 }, "points": [point] },
        "warnings": ["more `data`"], "iterations": 4, "seconds": 2.5, "peak_memory_bytes": 1_000_000, "seed": 3,
        "output": "both.onnx", "command": "mtz zip", "machine": { "system": "linux", "processor": "x86_64",
        "vectors": "AVX2", "threads": 2 },
    })
}

#[test]
fn nothing_is_lost_on_the_way_to_json_and_back() {
    let report = read(&full());
    let json = report.to_json().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), full());
    assert_eq!(RunReport::from_json(json.as_bytes()).unwrap(), report);
    // Tasks keep their order, which a sorted map would lose.
    let ordered = r#"{"version":1,"tasks":{"z":{},"a":{}},"parameters":{},"layers":[]}"#;
    let report = RunReport::from_json(ordered.as_bytes()).unwrap();
    assert_eq!(report.tasks.names().collect::<Vec<_>>(), ["z", "a"]);
    assert_eq!(RunReport::from_json(report.to_json().unwrap().as_bytes()).unwrap(), report);
}

#[test]
fn a_page_says_first_what_was_saved_and_what_it_cost() {
    let page = page(&read(&full()));
    let head = page.split("<h2>").next().unwrap();
    for part in [
        "Two networks in one file: 3.00\u{a0}kB instead of 5.00\u{a0}kB",
        "60\u{a0}% of the size",
        "a keeps 99.2\u{a0}% of its answers, b lost 0.25 points (1.25 → 1.50\u{a0}% wrong)",
        "The budget is not met",
        "19 November 2026, 04:05 UTC",
        "more `data`",
        "conv stays private",
    ] {
        assert!(head.contains(part), "{part}: {head}");
    }
    for part in ["The budget", "Who owns which units", ">fc1<", "d is the error", "Retraining", "This run"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("NaN"), "{page}");
}

/// A report of a real search for a budget.
#[test]
fn a_zip_becomes_a_report() {
    let spec = NetworkSpec { input: vec![1, 28, 28], outputs: 10, mean: vec![0.13], std: vec![0.31] };
    let single = |name: &str, seed| {
        Joint::single(name.into(), architecture::build("lenet-300-100", &spec, 0.1, seed).unwrap()).unwrap()
    };
    let start = Joint::from_networks(vec![single("second", 1), single("first", 2)]).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/mnist");
    let digits = data::locate(&folder).unwrap().part(Part::Test).open(&OpenOptions::default()).unwrap();
    let feed = Feed::new(digits, &start.members[0].graph, Normalisation::default()).unwrap();
    let task = |name: &str| TaskData {
        samples: Some((0..400).collect()),
        test: Some((&feed, (400..600).collect())),
        ..TaskData::new(name, &feed)
    };
    let tasks = [task("second"), task("first")];
    let options = ZipOptions::new(Recipe::Best).with(|o| {
        o.fitting.calibration = 200;
        o.retraining.iterations = 3;
    });
    let budget = Budget { target_bytes: Some(1), ..Budget::default() };
    let listen = |_: (usize, &str)| ControlFlow::Continue(());
    let found = budget::search(&start, &tasks, &options, &budget, budget::file_bytes, listen, |_, _| Ok(())).unwrap();

    let mut facts = RunFacts::default();
    (facts.bytes_before, facts.bytes_after) = (1000, 1000);
    facts.parts = vec![MeasuredOn::HeldOutTenth; 2];
    facts.date = Some(UNIX_EPOCH + Duration::from_secs(1));
    facts.budget = Some(BudgetRecord::new(&budget, Some(TargetSize::Bytes(1)), &found));
    let report = RunReport::new(&found.zipped, &tasks, facts);

    assert_eq!(RunReport::from_json(report.to_json().unwrap().as_bytes()).unwrap(), report);
    assert_eq!(report.tasks.names().collect::<Vec<_>>(), ["second", "first"]);
    assert_eq!(report.date.as_deref(), Some("1970-01-01T00:00:01Z"));
    assert_eq!((report.layers.len(), report.iterations), (3, 6));
    assert!(!report.layers[2].losses.is_empty());
    let own: usize = report.tasks.values().map(|task| task.parameters.unwrap()).sum();
    assert_eq!(own, report.parameters.before);
    // Networks that have learned nothing, and a file that is no smaller.
    assert_eq!(report.warnings.iter().filter(|line| line.contains("little better than guessing")).count(), 2);
    assert!(report.warnings.iter().any(|line| line.contains("not smaller")), "{:?}", report.warnings);
    let budget = report.budget.as_ref().unwrap();
    assert!(!budget.met && budget.points.iter().filter(|p| p.chosen).count() == 1);
    assert!(page(&report).contains("The budget is not met"));
}

#[test]
fn what_is_no_report_is_refused() {
    let error = |json: &str| RunReport::from_json(json.as_bytes()).unwrap_err();
    for (json, said) in [
        ("", "not JSON"),
        ("{\"version\":", "not JSON"),
        ("3", "an object"),
        ("{}", "missing field `version`"),
        ("{\"version\":2}", "has format 2"),
        ("{\"version\":\"1\"}", "invalid type"),
        (r#"{"version":1,"tasks":3}"#, "a value for each name"),
        (r#"{"version":1,"tasks":{},"parameters":{},"layers":[null]}"#, "invalid type: null"),
        (r#"{"version":1,"tasks":{},"parameters":{"before":-1},"layers":[]}"#, "invalid value"),
        (r#"{"version":1,"tasks":{"a":{"kind":"x"}},"parameters":{},"layers":[]}"#, "not one of classes"),
        (r#"{"version":1,"tasks":{"a":{"error_before":1e999}},"parameters":{},"layers":[]}"#, "out of range"),
    ] {
        let error = error(json);
        assert!(error.to_string().contains(said) && error.hint_text().is_some(), "{json}: {error}");
    }
    let deep = error(&"[".repeat(100_000));
    assert_eq!(deep.kind(), ErrorKind::Data);
    assert_eq!(error(&" ".repeat(MAX_BYTES + 1)).kind(), ErrorKind::Limit);
    // A report of an earlier version lacks what came later, and may have what is gone.
    let old = json!({ "version": 1, "gone": 1, "tasks": { "a": { "error_before": 1.5, "error_after": 1.5 } },
                      "parameters": { "before": 10, "after": 5 }, "layers": [{ "name": "fc1" }] });
    assert!(page(&read(&old)).contains("One network in one: 5 parameters instead of 10"));
}

#[test]
fn names_from_files_cannot_break_the_page() {
    let evil = "</title><script>alert(1)</script>\"'&\u{0}";
    let text = full().to_string();
    let mut all = serde_json::from_str::<Value>(&text).unwrap();
    replace_texts(&mut all, evil);
    let page = page(&read(&all));
    assert!(!page.contains("<script") && !page.contains("\"'&"), "{page}");
    assert!(page.contains("&lt;script&gt;") && page.contains("</html>"));
}

/// Puts a text in the place of all others that may be anything, and of names.
fn replace_texts(value: &mut Value, evil: &str) {
    match value {
        Value::String(text) if !["classes", "held-out tenth"].contains(&text.as_str()) => *text = evil.to_owned(),
        Value::Array(all) => all.iter_mut().for_each(|one| replace_texts(one, evil)),
        Value::Object(all) => {
            for (from, to) in [("a", evil.to_owned()), ("b", format!("{evil}b")), ("fc1", evil.to_owned())] {
                if let Some(own) = all.remove(from) {
                    all.insert(to, own);
                }
            }
            all.values_mut().for_each(|one| replace_texts(one, evil));
        }
        _ => {}
    }
}

/// Numbers without bounds and lists without end give a page of a bounded size, without panics and NaN.
#[test]
fn a_hostile_report_gives_a_bounded_page() {
    let mut all = full();
    for key in ["before", "after", "shared"] {
        all["parameters"][key] = json!(u64::MAX);
        all["file_bytes"][key] = json!(u64::MAX);
    }
    for (task, error) in [("a", 1e308), ("b", -1e308)] {
        for key in ["error_before", "error_after", "agreement_after"] {
            all["tasks"][task][key] = json!(if key == "error_before" { -error } else { error });
        }
        all["tasks"][task]["parameters"] = json!(u64::MAX);
    }
    let layer = &mut all["layers"][0];
    layer["name"] = json!("x".repeat(10_000));
    layer["iterations"] = json!(u64::MAX);
    layer["distances"] = json!(vec![1e308; 1000]);
    layer["typical_distance"] = json!(0.0);
    layer["losses"] =
        json!([{ "iteration": u64::MAX, "loss": { "a": 1e308, "b": -1e308 } }, { "loss": { "a": -1e308 } }]);
    layer["owners"] = json!([{ "tasks": ["a", "b"], "units": u64::MAX }, { "tasks": vec!["a"; 1000], "units": 0 }]);
    all["budget"]["points"][0]["size"] = json!(1e308);
    all["budget"]["target_size"]["part"] = json!(-1e308);
    all["warnings"] = json!(vec!["w".repeat(1000); 10_000]);
    all["seconds"] = json!(-1e308);
    all["date"] = json!("9".repeat(1000));
    let layer = all["layers"][0].clone();
    all["layers"] = json!(vec![layer; 1000]);
    let report = read(&all);
    let page = page(&report);
    assert!(page.len() < 20_000_000, "{} bytes", page.len());
    for wrong in ["NaN", "\"inf", "\"-inf"] {
        let at = page.find(wrong);
        assert_eq!(at.map(|at| &page[at.saturating_sub(300)..at + 20]), None, "{wrong}");
    }
}

#[test]
fn fifty_layers_and_five_tasks_stay_small() {
    let names: Vec<String> = (0..5).map(|t| format!("task {t}")).collect();
    let by = |x: f64| Value::Object(names.iter().map(|n| (n.clone(), json!(x))).collect());
    let tasks = Value::Object(names.iter().map(|n| (n.clone(), json!({ "error_before": 1.0 }))).collect());
    let layer = |l: usize| {
        let owners: Vec<Value> = names.iter().map(|n| json!({ "tasks": [n], "units": 7 })).collect();
        let losses: Vec<Value> = (0..50).map(|i| json!({ "iteration": i, "loss": by(0.1) })).collect();
        json!({ "name": format!("layer{l}.conv"), "owners": owners, "error_zipped": by(2.0), "error_after": by(1.5),
                "iterations": 50, "distances": vec![0.01; 41], "typical_distance": 0.1, "losses": losses })
    };
    let layers: Vec<Value> = (0..50).map(layer).collect();
    let page = page(&read(&json!({ "version": 1, "tasks": tasks, "parameters": {}, "layers": layers })));
    assert!(page.len() < 4_000_000, "{} bytes", page.len());
}
