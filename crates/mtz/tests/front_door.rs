//! The front door: what the crate page shows, run on the bundled networks.
#![allow(clippy::unwrap_used)]

use mtz::tensor::Tensor;
use mtz::{ErrorKind, JointModel, Network, Samples, Share, ZipResult, Zipper};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn network(name: &str) -> Network {
    Network::open(root().join("models").join(name)).unwrap()
}

fn zipper(samples: impl Fn() -> Samples) -> Zipper {
    Zipper::new()
        .task("a", network("lenet-300-100-a.onnx"), samples())
        .task("b", network("lenet-300-100-b.onnx"), samples())
        .options(|options| {
            options.sharing.share = Share::Fraction(0.5);
            options.fitting.calibration = 500;
            options.retraining.iterations = 0;
        })
}

fn image() -> Tensor {
    Tensor::new(vec![1, 1, 28, 28], (0..784).map(|i| (i % 29) as f32 / 29.0).collect()).unwrap()
}

fn check(result: &ZipResult) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("both.onnx");
    result.joint.save(&path).unwrap();
    let back = JointModel::open(&path).unwrap();
    assert_eq!(back.tasks().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(back.parameters(), result.joint.parameters());
    assert!(back.parameters().1 > 0);
    for task in ["a", "b"] {
        let (before, after) = (result.joint.run(task, &[image()]).unwrap(), back.run(task, &[image()]).unwrap());
        assert_eq!(before, after, "{task}");
        let alone = folder.path().join("alone.onnx");
        back.extract(task).unwrap().save(&alone).unwrap();
        Network::open(&alone).unwrap();
    }
    assert_eq!(back.run("c", &[image()]).unwrap_err().hint_text(), Some("the tasks are a, b"));
}

#[test]
fn files_are_zipped_in_five_lines() {
    let result = zipper(|| Samples::open(root().join("data/mnist")).unwrap());
    let result = result.run(|_| ControlFlow::Continue(())).unwrap();
    check(&result);
    assert!(result.report.tasks.values().all(|t| t.error_after.is_some_and(|e| e < 4.0)));
    assert!(mtz::report::page(&result.report).contains("</html>"));
}

#[test]
fn samples_come_from_a_closure() {
    let closure = || {
        Samples::from_fn(600, &[1, 28, 28], |index, sample| {
            sample.iter_mut().zip(0..).for_each(|(x, i)| *x = ((index * 31 + i * 7) % 97) as f32 / 97.0);
            Ok(())
        })
    };
    let result = zipper(closure).run(|_| ControlFlow::Continue(())).unwrap();
    check(&result);
    assert!(result.report.tasks.values().all(|t| t.error_after.is_none() && t.agreement_after.is_some()));
}

#[test]
fn a_run_that_is_stopped_says_so() {
    let samples = || Samples::open(root().join("data/mnist")).unwrap();
    assert_eq!(zipper(samples).run(|_| ControlFlow::Break(())).unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn what_is_missing_is_said_at_once() {
    assert!(Samples::open("there/is/nothing").is_err());
    assert!(JointModel::open(root().join("models/lenet-5-a.onnx")).unwrap_err().to_string().contains("no joint model"));
}
