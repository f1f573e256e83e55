//! What is written is what was reported, and it is measured without labels, too.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use mtz::data::{OpenOptions, Part, locate};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn mtz(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mtz")).args(args).current_dir(root()).output().unwrap()
}

fn json(args: &[&str]) -> (i32, Value) {
    let output = mtz(&[args, &["--json"]].concat());
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

/// The error and the hint of a command that fails.
fn failure(args: &[&str]) -> String {
    let (code, value) = json(args);
    assert_eq!(code, 2, "{value}");
    format!("{} ({})", value["error"].as_str().unwrap(), value["hint"].as_str().unwrap_or_default())
}

fn talk(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Some digits without labels, as a bare numpy array.
fn unlabelled(path: &Path, count: usize) {
    let data = locate(&root().join("data/mnist")).unwrap().part(Part::Test).open(&OpenOptions::default()).unwrap();
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    let mut header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({count}, 1, 28, 28), }}");
    header += &" ".repeat(64 - (10 + header.len() + 1) % 64);
    header.push('\n');
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.bytes());
    let mut sample = vec![0.0; 784];
    for i in 0..count {
        data.samples.read(i, &mut sample).unwrap();
        bytes.extend(sample.iter().map(|x| *x as u8));
    }
    std::fs::write(path, bytes).unwrap();
}

const NETWORKS: [&str; 2] = ["a=models/lenet-300-100-a.onnx", "b=models/lenet-300-100-b.onnx"];

/// A folder of files, by name.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }
}

#[test]
fn agreement_needs_no_labels() {
    let files = Files::new();
    let (digits, out) = (files.path("digits.npy"), files.path("joint.onnx"));
    unlabelled(Path::new(&digits), 1000);
    let zip = [&["zip"], &NETWORKS[..], &["--data", &digits, "--retrain", "5", "-o", &out]].concat();
    let (code, run) = json(&zip);
    assert_eq!((code, &run["checked"]), (0, &Value::Bool(true)), "{run}");
    let task = &run["tasks"]["a"];
    assert!(task["error_before"].is_null() && task["samples"] == 100, "{task}");
    assert!(task["agreement_zipped"].as_f64().unwrap() > 80.0 && task["agreement_after"].as_f64().unwrap() > 80.0);
    assert_eq!((&task["kind"], &task["kind_is_known"]), (&"classes".into(), &false.into()));
    let bytes = std::fs::metadata(&out).unwrap().len();
    assert_eq!(run["file_bytes"]["after"], bytes);
    // The text says the same, and how to set the kind.
    let text = String::from_utf8(mtz(&[&zip[..], &["--force"]].concat()).stdout).unwrap();
    assert!(text.contains("agreement %") && text.contains("--kind a=KIND") && !text.contains("error %"), "{text}");
    // What is said next works without labels, too.
    let said = talk(&mtz(&[&zip[..], &["--force"]].concat()));
    let next = said.lines().find_map(|line| line.strip_prefix("next: mtz ")).unwrap();
    assert!(next.contains("--against models/lenet-300-100-a.onnx"), "{next}");
    assert!(mtz(&next.split_whitespace().collect::<Vec<_>>()).status.success(), "{next}");
    // Another measurement by another command.
    let eval = ["eval", &out, "--task", "a", "--data", &digits];
    assert!(failure(&eval).contains("--against"));
    let (_, other) = json(&[&eval[..], &["--against", "models/lenet-300-100-a.onnx", "--kind", "classes"]].concat());
    assert!(other["agreement"].as_f64().unwrap() > 80.0 && other["error"].is_null(), "{other}");
    assert!(failure(&[&zip[..], &["--force", "--labels"]].concat()).contains("none of the tasks has labels"));
}

#[test]
fn a_budget_of_agreement_is_met() {
    let files = Files::new();
    let (digits, out) = (files.path("digits.npy"), files.path("joint.onnx"));
    unlabelled(Path::new(&digits), 2000);
    let zip = [&["zip"], &NETWORKS[..], &["--data", &digits, "--no-retrain", "-o", &out]].concat();
    let (code, run) = json(&[&zip[..], &["--min-agreement", "98%"]].concat());
    let points = run["budget"]["points"].as_array().unwrap();
    let chosen = points.iter().find(|p| p["chosen"] == true).unwrap();
    assert!(code == 0 && ["a", "b"].iter().all(|t| chosen["agreement"][t].as_f64().unwrap() >= 98.0), "{chosen}");
    // The model that is written is the one that was chosen.
    assert_eq!(run["parameters"]["after"], chosen["parameters"]);
    assert!(failure(&[&zip[..], &["--min-agreement", "98"]].concat()).contains("98%"));
    assert!(failure(&[&zip[..], &["--max-error-increase", "1", "--force"]].concat()).contains("--min-agreement"));
}

#[test]
fn nothing_that_is_read_is_replaced() {
    let files = Files::new();
    let (a, digits) = (files.path("a.onnx"), files.path("digits.npy"));
    std::fs::copy(root().join("models/lenet-300-100-a.onnx"), &a).unwrap();
    unlabelled(Path::new(&digits), 100);
    for out in [&a, &digits, "/dev/null"] {
        let text = failure(&["zip", &a, "b=models/lenet-300-100-b.onnx", "--data", &digits, "--force", "-o", out]);
        assert!(text.contains("is an input") || text.contains("no ordinary file"), "{text}");
    }
    assert!(failure(&["extract", &a, "--task", "a", "--force", "-o", &a]).contains("is an input"));
}

#[test]
fn joint_models_have_names_of_their_own_and_originals() {
    let files = Files::new();
    let (two, three) = (files.path("two.onnx"), files.path("three.onnx"));
    let few = ["--data", "data/mnist", "--calibration", "500", "--retrain", "0"];
    json(&[&["zip"], &NETWORKS[..], &few, &["-o", &two]].concat());
    let named = format!("x={two}");
    let text = failure(&[&["zip", &named, "c=models/lenet-300-100-b.onnx"][..], &few, &["-o", &three]].concat());
    assert!(text.contains("its tasks are called a, b"), "{text}");
    let zip = [&["zip", &two, "c=models/lenet-300-100-b.onnx"][..], &few, &["-o", &three, "--force"]].concat();
    let (_, own) = json(&zip);
    let (_, against) = json(&[&zip[..], &["--original", "a=models/lenet-300-100-a.onnx"]].concat());
    // Against what it was in the joint model, and against the network it came from.
    let agreement = |run: &Value| run["tasks"]["a"]["agreement_after"].as_f64().unwrap();
    assert!(agreement(&own) > agreement(&against), "{} {}", agreement(&own), agreement(&against));
    assert_eq!(against["tasks"]["a"]["error_before"], 1.58);
}

#[test]
fn preprocessing_and_f16_are_part_of_the_file() {
    let files = Files::new();
    let (out, half, plain) = (files.path("joint.onnx"), files.path("half.onnx"), files.path("plain.onnx"));
    let few = ["--data", "data/mnist", "--calibration", "500", "--retrain", "0"];
    let zip = [&["zip"], &NETWORKS[..], &few, &["--common-input"]].concat();
    // The bundled networks take digits as they are; with a mean they see something else, but one input must be right
    // for both.
    let mean = ["--mean", "a=0.1", "-o", &out];
    assert!(failure(&[&zip[..], &mean].concat()).contains("no input is right for both"));
    let (_, run) = json(&[&zip[..], &mean, &["--preprocessing"]].concat());
    assert_eq!(run["checked"], true, "{run}");
    let error = |model: &str, task: &str, more: &[&str]| {
        let (_, run) = json(&[&["eval", model, "--task", task, "--data", "data/mnist"][..], more].concat());
        run["error"].as_f64().unwrap()
    };
    for task in ["a", "b"] {
        assert_eq!(error(&out, task, &["--raw"]), run["tasks"][task]["error_after"].as_f64().unwrap());
    }
    // Compared with the plain original, each of them gets what it wants, whichever is measured.
    let original = "models/lenet-300-100-a.onnx";
    let alone = files.path("a.onnx");
    assert!(mtz(&["extract", &out, "--task", "a", "-o", &alone]).status.success());
    for eval in [&["eval", &out, "--task", "a", "--against", original][..], &["eval", &alone, "--against", original]] {
        let (_, compared) = json(&[eval, &["--data", "data/mnist"]].concat());
        for key in ["agreement", "error"] {
            assert_eq!(compared[key], run["tasks"]["a"][&format!("{key}_after")], "{compared}");
        }
        let text = failure(&[eval, &["--data", "data/mnist", "--mean", "0.1"]].concat());
        assert!(text.contains("prepares its samples itself") && text.contains("leave --mean out"), "{text}");
    }
    // Beside a network that takes digits from 0 to 1.
    let three = files.path("three.onnx");
    let joined = ["zip", &out, "c=models/lenet-300-100-b.onnx", "--raw=a", "--raw=b", "-o", &three];
    let (_, joined) = json(&[&joined[..], &few].concat());
    for task in ["a", "b"] {
        assert_eq!(joined["tasks"][task]["error_before"], run["tasks"][task]["error_after"], "{joined}");
    }
    assert!(joined["tasks"]["c"]["error_before"].as_f64().unwrap() < 3.0, "{joined}");
    let (_, turned) = json(&["eval", original, "--against", &alone, "--data", "data/mnist"]);
    assert_eq!(turned["error"], run["tasks"]["a"]["error_before"], "{turned}");
    let (_, full) = json(&[&zip[..], &["-o", &plain]].concat());
    let both = ["--mean", "0.1", "--std", "0.9", "--preprocessing", "--dtype", "f16", "--force", "-o", &out];
    assert_eq!(json(&[&zip[..], &both].concat()).1["checked"], true);
    let (_, run) = json(&[&zip[..], &["--dtype", "f16", "-o", &half]].concat());
    let bytes = |run: &Value| run["file_bytes"]["after"].as_f64().unwrap();
    assert!(bytes(&run) < 0.52 * bytes(&full), "{} {}", bytes(&run), bytes(&full));
    for task in ["a", "b"] {
        assert_eq!(error(&half, task, &[]), run["tasks"][task]["error_after"].as_f64().unwrap());
    }
}

#[test]
fn files_and_folders_that_are_wrong_are_named() {
    let files = Files::new();
    let (broken, out) = (files.path("broken.onnx"), files.path("joint.onnx"));
    let graph = mtz::onnx::read(&root().join("models/lenet-300-100-a.onnx")).unwrap();
    let nan = graph.with_constants(|_, tensor| {
        let mut data = tensor.data().to_vec();
        data[0] = f32::NAN;
        mtz::tensor::Tensor::new(tensor.shape().to_vec(), data)
    });
    mtz::onnx::write(&nan.unwrap(), Path::new(&broken)).unwrap();
    let (sound, data) = ("b=models/lenet-300-100-b.onnx", ["--data", "data/mnist"]);
    for command in
        [&["zip", &broken, sound, "-o", &out][..], &["eval", &broken], &["eval", sound, "--against", &broken]]
    {
        let text = failure(&[command, &data].concat());
        let named = ["broken.onnx: node ", "tensor ", "NaN"].iter().all(|part| text.contains(part));
        assert!(named && text.contains("export it again"), "{text}");
    }
    // A folder of photographs is no checkpoint, and nothing is put into it.
    let photographs = files.path("photographs");
    std::fs::create_dir(&photographs).unwrap();
    std::fs::write(Path::new(&photographs).join("cat.jpg"), "x").unwrap();
    let text = failure(&[&["zip"], &NETWORKS[..], &data, &["-o", &out, "--checkpoint", &photographs]].concat());
    assert!(text.contains("photographs") && text.contains("no checkpoint") && text.contains("empty folder"), "{text}");
    assert_eq!(std::fs::read_dir(&photographs).unwrap().count(), 1);
}

#[test]
fn what_is_said_next_works() {
    let files = Files::new();
    let out = files.path("joint.onnx");
    let flags = ["--data", "data/mnist", "--scale", "0.004", "--calibration", "500", "--retrain", "0", "-o", &out];
    let output = mtz(&[&["zip"], &NETWORKS[..], &flags].concat());
    let text = talk(&output);
    // Where there is no terminal, a line tells of every layer.
    assert!(text.contains("layer 1 of 3: done"), "{text}");
    let next = text.lines().find_map(|line| line.strip_prefix("next: mtz ")).unwrap();
    assert!(next.contains("--scale 0.004"), "{next}");
    let said = mtz(&next.split_whitespace().collect::<Vec<_>>());
    assert!(said.status.success(), "{}", talk(&said));
}

/// A full disk behind stdout.
#[test]
#[cfg(target_os = "linux")]
fn results_that_cannot_be_printed_are_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mtz"));
    let output = command.args(["inspect", "models/lenet-5-a.onnx"]).current_dir(root()).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(talk(&output).contains("could not be printed"), "{}", talk(&output));
}

#[test]
fn statistics_of_parts_zip_as_those_of_the_whole() {
    let files = Files::new();
    let collect = |name: &str, part: &str| {
        let path = files.path(name);
        let args =
            [&["stats"][..], &NETWORKS, &["--data", "data/mnist", "--calibration", "1500", "--part", part, "-o"]];
        let (code, value) = json(&[&args.concat()[..], &[&path]].concat());
        assert_eq!(code, 0, "{value}");
        (path, value["tasks"]["a"]["layers"][0]["samples"].as_u64().unwrap())
    };
    let (whole, parts) =
        (collect("whole.stats", "1/1"), ["1/2", "2/2"].map(|part| collect(&part.replace('/', "-"), part)));
    assert_eq!((whole.1, parts[0].1 + parts[1].1), (1500, 1500));
    let zip = |stats: &[&str], output: &str| {
        let flags = ["--data", "data/mnist", "--share", "50%", "--no-retrain", "-o", output, "--stats"];
        json(&[&["zip"][..], &NETWORKS, &flags, stats].concat())
    };
    let (one, both) =
        (zip(&[&whole.0], &files.path("one.onnx")), zip(&[&parts[0].0, &parts[1].0], &files.path("two.onnx")));
    assert_eq!((one.0, both.0), (0, 0), "{} {}", one.1, both.1);
    assert_eq!(one.1["tasks"]["a"]["error_after"], both.1["tasks"]["a"]["error_after"]);
    assert_eq!(one.1["layers"][0]["shared"], 150);
    // Half of the samples is another run, and files of other networks are refused.
    let other =
        ["a=models/lenet-5-a.onnx", "b=models/lenet-5-b.onnx", "--data", "data/mnist", "--stats", &whole.0, "-o"];
    let text = failure(&[&["zip"][..], &other, &[&files.path("three.onnx")]].concat());
    assert!(text.contains("another network"), "{text}");
}
