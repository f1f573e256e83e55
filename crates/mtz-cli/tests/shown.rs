//! What the program prints is what was looked at: help, tables, errors, the keys of JSON, and the README. Where a
//! change is meant, `MTZ_SNAPSHOTS=write cargo test --test shown` writes the files anew, to be looked at in the diff.
#![allow(clippy::unwrap_used, clippy::panic)]

use mtz::report::RunReport;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs in the root of the project, so that paths are short and the same everywhere.
fn mtz(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mtz")).args(args).current_dir(root()).output().unwrap()
}

fn stdout(args: &[&str]) -> String {
    String::from_utf8(mtz(args).stdout).unwrap()
}

/// Whether two texts say the same. Errors in percent may differ a little: vectors of another length round in another
/// way.
fn alike(a: &str, b: &str) -> bool {
    let number = |word: &str| word.contains('.').then(|| word.parse::<f64>().ok()).flatten();
    let same = |(a, b): (&str, &str)| a == b || number(a).zip(number(b)).is_some_and(|(a, b)| (a - b).abs() < 0.15);
    let (a, b): (Vec<&str>, Vec<&str>) = (a.split_whitespace().collect(), b.split_whitespace().collect());
    a.len() == b.len() && a.into_iter().zip(b).all(same)
}

/// Compares with the file of this name, in which errors in percent may differ a little.
fn snapshot(name: &str, text: &str) {
    compare(name, text, alike);
}

/// Compares with the file of this name to the letter.
fn exactly(name: &str, text: &str) {
    compare(name, text, |a, b| a == b);
}

fn compare(name: &str, text: &str, same: impl Fn(&str, &str) -> bool) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if std::env::var_os("MTZ_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(same(text, &expected), "{name} has changed. Now:\n{text}\nBefore:\n{expected}");
}

/// Seconds, rates and memory differ from run to run.
fn without_times(text: &str) -> String {
    let words = |line: &str| {
        let mut words: Vec<&str> = line.split(' ').collect();
        for i in 1..words.len() {
            if ["s", "min"].contains(&words[i].trim_end()) {
                words[i - 1] = "…";
            }
        }
        words.join(" ")
    };
    text.lines().map(words).collect::<Vec<_>>().join("\n")
}

/// The keys of a JSON value and the kinds of what they hold; of a list, those of its first element.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(all) => Value::Object(all.iter().map(|(key, v)| (key.clone(), shape(v))).collect()),
        Value::Array(all) => Value::Array(all.first().map(shape).into_iter().collect()),
        Value::String(_) => "text".into(),
        Value::Number(_) => "number".into(),
        Value::Bool(_) => "true or false".into(),
        Value::Null => Value::Null,
    }
}

fn shape_of(args: &[&str]) -> String {
    let text = stdout(args);
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"));
    assert!(value["version"] == 1 || value["error"].is_string(), "{args:?} has no version");
    serde_json::to_string_pretty(&shape(&value)).unwrap() + "\n"
}

#[test]
fn help() {
    exactly("help.txt", &stdout(&["--help"]));
    for command in
        ["inspect", "eval", "train", "zip", "extract", "prune", "demo", "reproduce", "report", "completions", "man"]
    {
        exactly(&format!("help-{command}.txt"), &stdout(&[command, "--help"]));
    }
}

#[test]
fn tables() {
    exactly("inspect.txt", &stdout(&["inspect", "models/lenet-5-a.onnx"]));
    let folder = tempfile::tempdir().unwrap();
    let joint = folder.path().join("joint.onnx");
    let joint = joint.to_str().unwrap();
    let networks = ["a=models/lenet-300-100-a.onnx", "b=models/lenet-300-100-b.onnx"];
    let few = ["--data", "data/mnist", "--calibration", "1000", "--retrain", "2", "-o", joint];
    let zip = [&["zip"], &networks[..], &few[..]].concat();
    snapshot("zip.txt", &without_times(&stdout(&zip)));
    exactly("inspect-joint.txt", &stdout(&["inspect", joint]).replace(joint, "joint.onnx"));
    // Five tasks that take their names from files fit a terminal, too.
    let five: Vec<String> = (0..5)
        .map(|i| {
            let copy = folder.path().join(format!("a-network-with-a-long-name-{i}.onnx"));
            std::fs::copy(root().join("models/lenet-300-100-a.onnx"), &copy).unwrap();
            copy.to_str().unwrap().to_owned()
        })
        .collect();
    let (wide, page) = (folder.path().join("five.onnx"), folder.path().join("five.html"));
    let (wide, page) = (wide.to_str().unwrap(), page.to_str().unwrap());
    let few = ["--data", "data/mnist", "--calibration", "500", "--retrain", "0", "-o", wide, "--report", page];
    let models: Vec<&str> = five.iter().map(String::as_str).collect();
    let zipped = stdout(&[&["zip"], &models[..], &few[..]].concat());
    snapshot("zip-five.txt", &without_times(&zipped));
    let inspected = stdout(&["inspect", wide]).replace(wide, "five.onnx");
    exactly("inspect-five.txt", &inspected);
    for line in zipped.lines().chain(inspected.lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let json = [&zip[..], &["--force", "--json"]].concat();
    snapshot("zip.json", &shape_of(&json));
    // What is printed is the library's report, with nothing beside it.
    let printed = stdout(&json);
    let report = RunReport::from_json(printed.as_bytes()).unwrap();
    assert_eq!(report.to_json().unwrap(), printed.trim_end());
    snapshot("zip-dry-run.json", &shape_of(&[&zip[..], &["--force", "--json", "--dry-run"]].concat()));
    snapshot("inspect.json", &shape_of(&["inspect", joint, "--json"]));
    snapshot("eval.json", &shape_of(&["eval", joint, "--task", "a", "--data", "data/mnist", "--json"]));
    let out = folder.path().join("a.onnx");
    snapshot("extract.json", &shape_of(&["extract", joint, "--task", "a", "-o", out.to_str().unwrap(), "--json"]));
}

#[test]
fn json_of_the_other_commands() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (small, sparse) = (path("small.onnx"), path("sparse.onnx"));
    let train = ["train", "lenet-300-100", "--width", "0.05", "--epochs", "1", "--data", "data/mnist", "-o", &small];
    snapshot("train.json", &shape_of(&[&train[..], &["--json"]].concat()));
    let prune = ["prune", &small, "--data", "data/mnist", "--sparsity", "0.5", "--calibration", "500", "-o", &sparse];
    snapshot("prune.json", &shape_of(&[&prune[..], &["--json"]].concat()));
    let missing = ["eval", "missing.onnx", "--data", "data/mnist", "--json"];
    exactly("error.json", &stdout(&missing));
}

#[test]
fn errors() {
    let mut all = String::new();
    for args in [
        &["eval", "missing.onnx", "--data", "data/mnist"][..],
        &["eval", "models/lenet-5-a.onnx", "--data", "nowhere"],
        &["zip", "models/lenet-5-a.onnx", "models/lenet-300-100-a.onnx", "--data", "data/mnist", "-o", "/dev/null/x"],
        &["prune", "models/lenet-5-a.onnx", "--data", "data/mnist", "--sparsity", "2", "-o", "never.onnx"],
        &["train", "alexnet", "--data", "data/mnist", "-o", "never.onnx"],
        &["zip", "a=models/lenet-5-a.onnx", "--share", "0.5", "--target-size", "60%", "--data", "x", "-o", "y"],
        &["zip", "a=x.onnx", "b=y.onnx", "--data", "z", "-o", "never.onnx", "--report", "./never.onnx"],
        &["man", "sing"],
        &["report", "README.md", "-o", "never.html"],
        &["report", "crates/mtz-cli/tests/snapshots/error.json", "-o", "never.html"],
    ] {
        let output = mtz(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        all += &format!("$ mtz {}\n{}\n", args.join(" "), String::from_utf8(output.stderr).unwrap());
    }
    exactly("errors.txt", &all);
}

/// The README shows what the demo prints.
#[test]
fn the_readme_shows_the_demo() {
    let folder = tempfile::tempdir().unwrap();
    let output = mtz(&["demo", "-o", folder.path().to_str().unwrap()]);
    let printed = String::from_utf8(output.stdout).unwrap();
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let shown =
        readme.split("$ cargo run --release -- demo\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    // Where it was written to is said on stderr, with the folder of the reader.
    let shown: Vec<&str> = shown.lines().take_while(|line| !line.starts_with("written to")).collect();
    let shown = without_times(&shown.join("\n"));
    let printed = without_times(&printed);
    assert!(alike(&printed, &shown), "{printed}\n{shown}");
    assert!(folder.path().join("joint.onnx").exists() && folder.path().join("report.html").exists());
}

#[test]
fn a_budget_is_met_or_the_program_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let networks = ["a=models/lenet-300-100-a.onnx", "b=models/lenet-300-100-b.onnx"];
    let few = ["--data", "data/mnist", "--calibration", "1000", "--retrain", "0", "--json"];
    let zip = |name: &str, more: &[&str]| {
        let out = path(name);
        let output = mtz(&[&["zip", "-o", &out], &networks[..], &few[..], more].concat());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), report)
    };
    let (code, report) = zip("size.onnx", &["--target-size", "70%"]);
    let bytes = |key: &str| report["file_bytes"][key].as_f64().unwrap();
    let size = bytes("after") / bytes("before");
    assert!(code == 0 && size <= 0.7 && size > 0.67, "{code} {size}");
    assert_eq!(report["budget"]["met"], true);
    snapshot("zip-budget.json", &(serde_json::to_string_pretty(&shape(&report["budget"])).unwrap() + "\n"));

    let (code, report) = zip("error.onnx", &["--max-error-increase", "0.5"]);
    let chosen = report["budget"]["points"].as_array().unwrap().iter().find(|p| p["chosen"] == true).unwrap();
    let lost = |task: &str| chosen["error_increase"][task].as_f64().unwrap();
    assert!(code == 0 && lost("a") <= 0.5 && lost("b") <= 0.5 && chosen["sharing"].as_f64().unwrap() > 0.2, "{chosen}");

    // With a margin less is shared, and what is lost leaves room for it.
    let (code, report) = zip("sure.onnx", &["--max-error-increase", "0.5", "--margin", "5"]);
    let sure = report["budget"]["points"].as_array().unwrap().iter().find(|p| p["chosen"] == true).unwrap();
    let of = |key: &str, task: &str| sure[key][task].as_f64().unwrap();
    let most = |task: &str| of("error_increase", task) + 5.0 * of("standard_error", task);
    assert!(code == 0 && most("a") <= 0.5 && most("b") <= 0.5 && of("standard_error", "a") > 0.0, "{sure}");
    assert!(sure["parameters"].as_u64() > chosen["parameters"].as_u64(), "{sure}");

    // Nearly all shared and nothing lost is too much: what loses least is written.
    let (code, report) = zip("both.onnx", &["--max-error-increase", "0", "--min-sharing", "90%"]);
    let points = report["budget"]["points"].as_array().unwrap();
    let lost = |p: &Value| ["a", "b"].map(|task| p["error_increase"][task].as_f64().unwrap());
    assert_eq!((code, &report["budget"]["met"]), (1, &Value::Bool(false)));
    assert!(report["budget"]["missed"][0].as_str().unwrap().contains("0.9 are asked for"), "{}", report["budget"]);
    assert!(points.iter().any(|p| p["chosen"] == true && lost(p).iter().all(|x| *x <= 0.0)), "{}", report["budget"]);
    // Points go from everything shared to nothing, and what is chosen is on the curve.
    let at = |size: f64| points.iter().find(|p| (p["size"].as_f64().unwrap() - size).abs() < 0.01).unwrap();
    assert!(at(0.5)["pareto"] == true && lost(at(1.0)) == [0.0; 2], "{}", report["budget"]);
    assert!(points.iter().any(|p| p["chosen"] == true && p["pareto"] == true), "{}", report["budget"]);

    // Two networks in less than half of their size: not with sharing.
    let (code, report) = zip("tiny.onnx", &["--target-size", "100kb"]);
    assert_eq!((code, &report["budget"]["met"]), (1, &Value::Bool(false)));
    let takes = format!("the file takes {} bytes, 100000 are allowed", report["file_bytes"]["after"]);
    assert_eq!(report["budget"]["missed"][0], takes.as_str());
    assert!(Path::new(&path("tiny.onnx")).exists());
    // What is said of the chosen point is said of the model that is written, which has been retrained.
    let out = path("tiny-retrained.onnx");
    let few = ["--data", "data/mnist", "--calibration", "200", "--retrain", "2", "--json"];
    let output = mtz(&[&["zip", "-o", &out, "--target-size", "100kb"], &networks[..], &few[..]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let chosen = report["budget"]["points"].as_array().unwrap().iter().find(|p| p["chosen"] == true).unwrap();
    assert!(output.status.code() == Some(1) && report["iterations"] == 4, "{report}");
    assert_eq!(chosen["iterations"], report["iterations"]);
}

/// The page opens in a real browser: nothing is complained about, and the charts are there.
#[test]
fn the_report_opens_in_a_browser() {
    let works = |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].iter().find(works) else {
        // Straight to the terminal: what a test that passes prints is not shown.
        let _ = writeln!(std::io::stderr(), "skipped: there is no chromium here (Debian: apt install chromium)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let networks = ["a=models/lenet-300-100-a.onnx", "b=models/lenet-300-100-b.onnx"];
    let few = ["--data", "data/mnist", "--calibration", "500", "--retrain", "5", "--target-size", "70%", "--json"];
    let run = stdout(&[&["zip", "-o", &path("joint.onnx")], &networks[..], &few[..]].concat());
    std::fs::write(path("run.json"), run).unwrap();
    assert!(mtz(&["report", &path("run.json"), "-o", &path("r.html")]).status.success());
    let (profile, page) = (format!("--user-data-dir={}", path("profile")), format!("file://{}", path("r.html")));
    let flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"];
    let output = Command::new(browser).args(flags).args([&profile, &page]).output().unwrap();
    let (page, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains("CONSOLE"), "{said}");
    // Errors, costs, retraining, the budget, and a small one for each layer.
    assert!(page.matches("<svg").count() >= 5 && page.matches("<polyline").count() >= 7, "{page}");
    assert!(page.contains("The budget") && page.contains("</html>"));
}
