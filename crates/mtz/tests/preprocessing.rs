//! Preprocessing inside a task of a joint model belongs to that task: layers, sharing and the other task are as before,
//! in memory and in the file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use mtz::architecture::{self, NetworkSpec};
use mtz::data::Normalisation;
use mtz::run::Runner;
use mtz::sharing::{Joint, Source};
use mtz::tensor::Tensor;
use mtz::{joint_file, onnx, random};

#[test]
fn it_survives_the_joint_file() {
    let task = NetworkSpec { input: vec![3, 32, 32], outputs: 5, mean: vec![], std: vec![] };
    let single =
        |name: &str, seed| Joint::single(name.into(), architecture::build("resnet-20", &task, 0.25, seed).unwrap());
    // The same weights twice, all of them shared.
    let mut joint = Joint::from_networks(vec![single("a", 1).unwrap(), single("b", 1).unwrap()]).unwrap();
    let (units, aligned) = (joint.members[0].units.clone(), joint.members[0].aligned.clone());
    for layer in (0..joint.depth()).filter(|l| !joint.is_head(*l)).collect::<Vec<_>>() {
        joint.members[1].units[layer].clone_from(&units[layer]);
        joint.members[1].aligned[layer].clone_from(&aligned[layer]);
    }
    let (mean, std) = (vec![0.5, 0.4, 0.3], vec![0.2, 0.3, 0.4]);
    let normalisation = Normalisation { mean: mean.clone(), std: std.clone(), ..Normalisation::default() };
    let prepared = joint_file::with_preprocessing(&joint, "b", &normalisation, true).unwrap();
    let bytes = onnx::to_bytes(&joint_file::to_graph(&prepared, false).unwrap()).unwrap();
    let back = joint_file::from_graph(&onnx::parse(&bytes).unwrap()).unwrap().unwrap();
    let pixels: Vec<f32> = (0..2 * 3 * 1024).map(|i| (random::uniform(3, i) * 255.0).floor()).collect();
    let ready = pixels.iter().enumerate().map(|(i, x)| (x / 255.0 - mean[i / 1024 % 3]) / std[i / 1024 % 3]).collect();
    let run = |joint: &Joint, task: usize, data: &Vec<f32>| {
        let input = Tensor::new(vec![2, 3, 32, 32], data.clone()).unwrap();
        Runner::new(&joint.members[task].graph).run(&[input]).unwrap()
    };
    assert!(run(&back, 1, &pixels) == run(&joint, 1, &ready), "the same bits");
    assert!(run(&back, 0, &ready) == run(&joint, 0, &ready));
    for (now, before) in back.members.iter().zip(&joint.members) {
        assert_eq!(now.units, before.units);
        let sources = |m: &mtz::sharing::Member| m.layers.iter().map(|l| l.sources.clone()).collect::<Vec<_>>();
        assert_eq!(sources(now), sources(before));
        assert!(now.layers[0].sources.iter().all(|s| matches!(s, Source::Input { .. })));
    }
    let (before, now) = (joint.parameters(), back.parameters());
    // 255, the means and the deviations.
    assert_eq!((now.0, now.1), (before.0 + 7, before.1));
    assert!(joint_file::with_preprocessing(&joint, "c", &normalisation, true).is_err());
}
