//! The program as users and scripts see it: output, JSON, errors, exit codes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn here(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path).to_string_lossy().into_owned()
}

fn mnist() -> String {
    here("../../data/mnist")
}

fn mtz(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mtz")).args(args).output().unwrap()
}

fn json(args: &[&str]) -> (i32, Value) {
    let output = mtz(args);
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), serde_json::from_str(&text).unwrap())
}

/// The error and hint of a failing command: on stderr for people, as one object on stdout for scripts, exit code 2.
fn failure(args: &[&str]) -> (String, String) {
    let plain = mtz(args);
    assert_eq!(plain.status.code(), Some(2), "{args:?}");
    assert!(plain.stdout.is_empty());
    let text = String::from_utf8(plain.stderr).unwrap();
    let (code, value) = json(&[args, &["--json"]].concat());
    assert_eq!(code, 2);
    let part = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&text).contains(&words(&part("error"))), "{text}");
    (part("error"), part("hint"))
}

/// A file made of damaged bytes.
fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn eval_finds_pytorchs_error_exactly() {
    let expected: Value =
        serde_json::from_str(&std::fs::read_to_string(here("tests/models/expected.json")).unwrap()).unwrap();
    for (name, pytorch) in expected.as_object().unwrap() {
        let (model, data) = (here(&format!("tests/models/{name}.onnx")), mnist());
        let flags: Vec<&str> = pytorch["flags"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
        let (code, ours) = json(&[&["eval", &model, "--data", &data, "--json"][..], &flags].concat());
        assert_eq!(code, 0);
        let wrong = ours["error"].as_f64().unwrap() / 100.0 * ours["samples"].as_f64().unwrap();
        assert_eq!(wrong.round() as u64, pytorch["wrong"].as_u64().unwrap(), "{name}");
        assert_eq!(ours["samples"], pytorch["samples"]);
        assert!((ours["loss"].as_f64().unwrap() - pytorch["loss"].as_f64().unwrap()).abs() < 1e-6, "{name}");
        assert_eq!((&ours["task"], &ours["part"]), (&Value::from(name.as_str()), &Value::from("test")));
    }
}

#[test]
fn eval_does_not_depend_on_threads_or_batch_size() {
    let (model, data) = (here("tests/models/digits.onnx"), mnist());
    let loss = |extra: &[&str]| {
        json(&[&["eval", &model, "--data", &data, "--json"][..], extra].concat()).1["loss"].as_f64().unwrap()
    };
    let one = loss(&["--threads", "1"]);
    assert_eq!(one.to_bits(), loss(&["--threads", "3"]).to_bits());
    // Other batches sum in another order; underscores are fine in flags.
    assert!((one - loss(&["--batch_size=7"])).abs() < 1e-9);
}

#[test]
fn eval_names_tasks_and_refuses_strangers() {
    let (model, data) = (format!("d={}", here("tests/models/digits.onnx")), format!("d={}", mnist()));
    assert_eq!(json(&["eval", &model, "--data", &data, "--json"]).1["task"], "d");
    let (error, hint) = failure(&["eval", &model, "--data", &format!("e={}", mnist())]);
    assert!(error.contains("e=") && hint.contains("\"d\""), "{error} {hint}");
}

#[test]
fn eval_says_what_does_not_fit() {
    let (model, data) = (here("tests/models/digits.onnx"), mnist());
    let cifar = here("../mtz/tests/golden/data/cifar");
    let (error, _) = failure(&["eval", &model, "--data", &cifar]);
    assert!(error.contains("\"input\" expects [N, 1, 28, 28] but the data has [N, 3, 32, 32] (uint8)"), "{error}");
    let (error, hint) = failure(&["eval", &model, "--data", &data, "--memory", "1K"]);
    assert!(error.contains("memory") && hint.contains("--memory"), "{error}");
    // A zip says what it takes before it begins, and so does a dry run.
    let (a, b, out) =
        (here("../../models/lenet-5-a.onnx"), here("../../models/lenet-5-b.onnx"), here("never-written.onnx"));
    let zip = ["zip", &a, &b, "--data", &data, "-o", &out];
    for more in [&[][..], &["--dry-run"], &["--share", "below=1e-3"]] {
        let (error, hint) = failure(&[&zip[..], &["--memory", "5M"], more].concat());
        assert!(error.starts_with("zipping these networks takes") && hint.contains("--memory"), "{error}");
    }
    // Merging fits, a step of retraining does not: the hint is a batch size that does.
    let large = [&zip[..], &["--memory", "1G", "--dry-run", "--batch-size"]].concat();
    let (error, hint) = failure(&[&large[..], &["100000"]].concat());
    let fits = hint.split("--batch-size ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    assert!(error.starts_with("zipping these networks takes"), "{error}");
    assert!(mtz(&[&large[..], &[&fits]].concat()).status.success(), "{hint}");
    let (error, _) = failure(&["zip", &a, &b, "--data", &data, "-o", &here("tests"), "--force"]);
    assert!(error.contains("is a folder"), "{error}");
    let (error, _) = failure(&["eval", &model, "--data", &data, "--mean", "1,2"]);
    assert!(error.contains("--mean has 2 numbers for 1 channels"), "{error}");
    let (error, _) = failure(&["eval", &model, "--data", &data, "--label", "y"]);
    assert!(error.contains("--label"), "{error}");
    let (error, _) = failure(&["eval", &model, "--data", "nowhere"]);
    assert!(error.contains("nowhere"), "{error}");
    let (error, _) = failure(&["eval", "nowhere.onnx", "--data", &data]);
    assert!(error.contains("nowhere.onnx"), "{error}");
}

#[test]
fn wrong_command_lines_are_errors_too() {
    let (error, hint) = failure(&["eval"]);
    assert!(error.contains("required") && error.contains("--data") && hint.contains("--help"), "{error} {hint}");
    assert_eq!(mtz(&["fly"]).status.code(), Some(2));
    assert_eq!(mtz(&["eval", "m.onnx", "--data", "d", "--threads", "0"]).status.code(), Some(2));
}

#[test]
fn inspect_lists_layers_and_costs() {
    let model = here("tests/models/digits.onnx");
    let (code, value) = json(&["inspect", &model, "--json"]);
    let summary = &value["models"][0];
    assert_eq!(code, 0);
    // 8·25 + 8, 16·8·25 + 16, 256·40 + 40, 40·10 + 10 (the exporter folded the batch norm)
    assert_eq!(summary["parameters"], 208 + 3216 + 10_280 + 410);
    assert_eq!(summary["multiply_adds"], 8 * 25 * 576 + 16 * 200 * 64 + 256 * 40 + 400);
    assert_eq!(summary["inputs"][0]["shape"], serde_json::json!(["N", 1, 28, 28]));
    let units: Vec<u64> = summary["layers"].as_array().unwrap().iter().map(|l| l["units"].as_u64().unwrap()).collect();
    assert_eq!(units, [8, 16, 40, 10]);
    let text = String::from_utf8(mtz(&["inspect", &model]).stdout).unwrap();
    assert!(text.contains("330 640") && text.lines().all(|l| l.chars().count() <= 80), "{text}");
}

#[test]
fn inspect_lists_every_unsupported_node_and_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let mut archive = mtz::data::Archive::open(Path::new(&here("../mtz/tests/golden/hostile.npz"))).unwrap();
    let bytes: Vec<u8> =
        archive.array("all_are_listed/model").unwrap().numbers().unwrap().iter().map(|&b| b as u8).collect();
    let model = file(&folder, "odd.onnx", &bytes);
    let fine = here("tests/models/digits.onnx");
    let (code, value) = json(&["inspect", &fine, model.to_str().unwrap(), "--json"]);
    assert_eq!(code, 1);
    assert_eq!(value["models"][1]["unsupported"].as_array().unwrap().len(), 3);
    let output = mtz(&["inspect", model.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    for name in ["memory (LSTM)", "sum (Einsum)", "Loop_3 (Loop)", "hint: mtz inspect MODEL lists every node"] {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn damaged_files_end_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let model = std::fs::read(here("tests/models/digits.onnx")).unwrap();
    for (name, bytes) in [("cut.onnx", &model[..model.len() / 2]), ("empty.onnx", &[]), ("text.onnx", b"hello, world")]
    {
        let path = file(&folder, name, bytes);
        let (error, _) = failure(&["inspect", path.to_str().unwrap()]);
        assert!(error.contains(name), "{error}");
    }
    let npz = file(&folder, "data.npz", b"PK\x03\x04");
    let digits = here("tests/models/digits.onnx");
    let (error, hint) = failure(&["eval", &digits, "--data", npz.to_str().unwrap()]);
    assert!(error.contains("data.npz") && hint.contains("savez"), "{error}");
}

#[test]
fn help_ends_with_an_example() {
    for command in
        ["inspect", "eval", "train", "zip", "extract", "prune", "demo", "reproduce", "report", "completions", "man"]
    {
        let text = String::from_utf8(mtz(&[command, "--help"]).stdout).unwrap();
        assert!(text.contains("Example:\n  mtz ") && text.contains(&format!("\n  mtz {command}")), "{text}");
    }
    let version = String::from_utf8(mtz(&["--version"]).stdout).unwrap();
    assert_eq!(version.trim(), format!("mtz {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn results_of_an_experiment_are_not_replaced_unasked() {
    let folder = tempfile::tempdir().unwrap();
    file(&folder, "lenet.json", b"{}");
    let place = folder.path().to_str().unwrap();
    let (error, hint) = failure(&["reproduce", "lenet", "-o", place]);
    assert!(error.ends_with("lenet.json exists") && hint.contains("--force"), "{error} {hint}");
    let (error, hint) = failure(&["reproduce", "many", "--sparse", "-o", place]);
    assert!(error.contains("many has no sparse rows") && hint.contains("lenet"), "{error} {hint}");
}

#[test]
fn scripts_and_pages_are_json_too() {
    for (args, key) in [(&["completions", "bash"][..], "script"), (&["man", "zip"], "page")] {
        let (code, value) = json(&[args, &["--json"]].concat());
        assert_eq!((code, value["version"].as_u64()), (0, Some(1)));
        assert_eq!(value[key].as_str().unwrap().trim_end(), String::from_utf8(mtz(args).stdout).unwrap().trim_end());
    }
}

#[test]
fn train_writes_a_model_that_eval_finds_as_good() {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) = (folder.path().join("net.onnx"), mnist());
    let path = model.to_str().unwrap();
    let args = ["train", "lenet-300-100", "--data", &data, "-o", path, "--epochs", "1", "--json"];
    let (code, trained) = json(&args);
    assert_eq!(code, 0);
    let error = trained["error"].as_f64().unwrap();
    assert!(error < 5.0, "{error} %");
    assert_eq!((&trained["iterations"], &trained["part"]), (&Value::from(937), &Value::from("test")));
    // The normalisation is inside: no flags are needed.
    assert_eq!(json(&["eval", path, "--data", &data, "--json"]).1["error"], trained["error"]);
    let (refused, hint) = failure(&args[..args.len() - 1]);
    assert!(refused.contains("exists") && hint.contains("--force"), "{refused}");
    // Going on from it, with the same seed twice, gives the same bytes.
    let go_on = |name: &str, threads: &str| {
        let out = folder.path().join(name);
        let output = [
            "train",
            "--from",
            path,
            "--data",
            &data,
            "-o",
            out.to_str().unwrap(),
            "--epochs",
            "1",
            "--lr",
            "0.001",
            "--threads",
            threads,
        ];
        assert!(mtz(&output).status.success());
        std::fs::read(out).unwrap()
    };
    assert!(go_on("a.onnx", "1") == go_on("b.onnx", "2"));
}

#[test]
fn train_refuses_what_cannot_work_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("net.onnx");
    let (out, data) = (out.to_str().unwrap(), mnist());
    let (error, _) = failure(&["train", "lenet-300-100", "--data", &data, "-o", "nowhere/net.onnx"]);
    assert!(error.contains("nowhere"), "{error}");
    let (error, _) = failure(&["train", "vgg-16", "--data", &data, "-o", out]);
    assert!(error.contains("[1, 28, 28]"), "{error}");
    let (error, _) = failure(&["train", "lenet-6", "--data", &data, "-o", out]);
    assert!(error.contains("lenet-6"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

/// Ctrl-C writes what has been learned; a kill leaves nothing half-written.
#[cfg(unix)]
#[test]
fn interrupted_training_leaves_a_whole_model_or_none() {
    for (signal, survives) in [("-INT", true), ("-KILL", false)] {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("net.onnx");
        let mut child = Command::new(env!("CARGO_BIN_EXE_mtz"))
            .args(["train", "lenet-5", "--data", &mnist(), "-o", model.to_str().unwrap(), "--epochs", "50"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2500));
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().success(), survives);
        assert_eq!(model.exists(), survives);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), usize::from(survives));
        if survives {
            assert_eq!(json(&["inspect", model.to_str().unwrap(), "--json"]).0, 0);
        }
    }
}

/// Zip two bundled networks, look at the result in every way the contract names.
#[test]
fn zip_extract_and_eval() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (a, b, data) = (here("../../models/lenet-300-100-a.onnx"), here("../../models/lenet-300-100-b.onnx"), mnist());
    let (a, b, joint) = (format!("a={a}"), format!("b={b}"), path("joint.onnx"));
    let page = path("report.html");
    let zip = ["zip", &a, &b, "--data", &data, "-o", &joint, "--calibration", "2000", "--retrain", "0", "--json"];
    let zip = [&zip[..], &["--report", &page]].concat();
    let (code, report) = json(&zip);
    assert_eq!(code, 0, "{report}");
    for task in ["a", "b"] {
        let error = |key: &str| report["tasks"][task][key].as_f64().unwrap();
        assert!(error("error_before") < 1.65 && error("error_zipped") - error("error_before") < 0.4, "{report}");
        assert_eq!(error("error_after"), error("error_zipped"));
        assert_eq!(report["tasks"][task]["samples"], 10_000);
    }
    let parameters = &report["parameters"];
    assert_eq!((&parameters["before"], &parameters["after"]), (&Value::from(533_224), &Value::from(267_624)));
    let names: Vec<&str> = report["layers"].as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["fc1", "fc2", "fc3"]);
    assert_eq!((&report["layers"][0]["shared"], &report["layers"][0]["units"]["b"]), (&300.into(), &300.into()));
    for key in ["iterations", "seconds", "peak_memory_bytes", "seed"] {
        assert!(report.get(key).is_some(), "{key} is missing");
    }
    let bytes = std::fs::metadata(&joint).unwrap().len() as f64;
    let expected = 4.0 * parameters["after"].as_f64().unwrap();
    assert!(bytes < 1.02 * expected, "{bytes} bytes for {expected}");
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("<svg") && page.contains("300 a + b") && !page.contains("NaN"), "{page}");
    // Who shares what can be seen in the file.
    let (_, inspected) = json(&["inspect", &joint, "--json"]);
    let layers = &inspected["models"][0]["joint"]["layers"];
    assert_eq!(layers[0]["owners"], serde_json::json!([{ "tasks": ["a", "b"], "units": 300 }]));
    assert_eq!(layers[2]["owners"][1], serde_json::json!({ "tasks": ["b"], "units": 10 }));
    // The joint model and what is taken out of it have the reported error.
    let (_, whole) = json(&["eval", &joint, "--task", "b", "--data", &data, "--json"]);
    assert_eq!(whole["error"], report["tasks"]["b"]["error_after"]);
    let out = path("b.onnx");
    assert_eq!(mtz(&["extract", &joint, "--task", "b", "-o", &out]).status.code(), Some(0));
    let (_, alone) = json(&["eval", &out, "--data", &data, "--json"]);
    assert_eq!(alone["error"], whole["error"]);
    // Mistakes say what is there.
    assert!(failure(&["eval", &joint, "--data", &data]).1.contains("a, b"));
    assert!(failure(&["extract", &joint, "--task", "c", "-o", &path("c.onnx")]).1.contains("a, b"));
    let nothing = path("nothing.onnx");
    let wrong = |more: &[&str]| failure(&[&["zip", &a, &b, "-o", &nothing][..], more].concat());
    assert!(wrong(&["--data", &data, "--share", "fc9=3"]).1.contains("fc1, fc2, fc3"));
    assert!(wrong(&["--data", &data, "--share", "lots"]).0.contains("lots"));
    assert!(wrong(&["--data", &format!("a={data}")]).0.contains("no data for task \"b\""));
    assert!(wrong(&["--data", &data, "--data", &format!("c={data}")]).1.contains("\"a\", \"b\""));
    let other = format!("b={}", here("../../models/lenet-5-b.onnx"));
    let (error, _) = failure(&["zip", &a, &other, "--data", &data, "-o", &nothing]);
    assert!(error.contains("a has 3 layers, b has 4, 2 of them correspond"), "{error}");
    assert!(error.contains("layer 1 is \"fc1\" (Gemm) in a, \"conv1\" (Conv 5×5) in b"), "{error}");
    assert!(!Path::new(&nothing).exists());
}

#[test]
fn pruned_networks_stay_sparse() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (model, data) = (here("../../models/lenet-300-100-a.onnx"), mnist());
    let error = |method: &str, out: &str| {
        let prune = ["prune", &model, "--data", &data, "--sparsity", "0.9", "--method", method, "-o", out];
        let (code, report) = json(&[&prune[..], &["--calibration", "2000", "--json"]].concat());
        assert_eq!((code, &report["nonzero"], &report["weights"]), (0, &26_620.into(), &266_200.into()), "{report}");
        report["error_pruned"].as_f64().unwrap()
    };
    let (sparse, other) = (path("sparse.onnx"), path("magnitude.onnx"));
    let (surgeon, magnitude) = (error("obs", &sparse), error("magnitude", &other));
    assert!(surgeon < 0.5 * magnitude, "{surgeon} {magnitude}");
    let (_, inspected) = json(&["inspect", &sparse, "--json"]);
    let fc1 = inspected["models"][0]["layers"].as_array().unwrap().iter().find(|l| l["name"] == "fc1").unwrap();
    assert_eq!(fc1["nonzero"], 23_520 + 300);
    let joint = path("joint.onnx");
    let (a, b) = (format!("a={sparse}"), format!("b={other}"));
    let zip = ["zip", &a, &b, "--data", &data, "-o", &joint, "--calibration", "2000", "--retrain", "5", "--json"];
    let (_, report) = json(&zip);
    let nonzero = |key: &str| report["parameters"][key].as_u64().unwrap();
    assert!(nonzero("nonzero_after") <= nonzero("nonzero_before"), "{report}");
    let (_, inspected) = json(&["inspect", &joint, "--json"]);
    assert_eq!(inspected["models"][0]["joint"]["parameters"]["nonzero"].as_u64(), Some(nonzero("nonzero_after")));
    assert!(
        failure(&["prune", &model, "--data", &data, "--sparsity", "fc9=0.5", "-o", &path("x.onnx")])
            .1
            .contains("fc1, fc2, fc3")
    );
    assert!(failure(&["prune", &model, "--data", &data, "--sparsity", "1.5", "-o", &path("x.onnx")]).0.contains("1.5"));
}

/// The kernels for other instruction sets compute the same, up to rounding.
#[test]
fn every_instruction_set_computes_the_same() {
    let data = mnist();
    for model in ["lenet-5-a", "lenet-300-100-a"] {
        let path = here(&format!("../../models/{model}.onnx"));
        let loss = |level: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_mtz"));
            let output =
                command.args(["eval", &path, "--data", &data, "--json"]).env("MTZ_SIMD", level).output().unwrap();
            serde_json::from_slice::<Value>(&output.stdout).unwrap()["loss"].as_f64().unwrap()
        };
        let best = loss("best");
        for level in ["portable", "avx2"] {
            assert!((loss(level) - best).abs() < 1e-6, "{model}, {level}");
        }
    }
    // Gradients too: a short training run arrives at nearly the same loss.
    let folder = tempfile::tempdir().unwrap();
    let loss = |level: &str| {
        let out = folder.path().join(format!("{level}.onnx"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_mtz"));
        command.args(["train", "lenet-5", "--width", "0.3", "--epochs", "1", "--data", &data, "--json", "-o"]).arg(out);
        let output = command.env("MTZ_SIMD", level).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["loss"].as_f64().unwrap()
    };
    let best = loss("best");
    for level in ["portable", "avx2"] {
        assert!((loss(level) - best).abs() < 0.1 * best, "{level}");
    }
}
