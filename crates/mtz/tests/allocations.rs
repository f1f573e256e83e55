//! What is allocated is what was planned: a training step takes nothing but small lists once it has warmed up, and
//! zipping no more than it counted.
#![allow(clippy::unwrap_used)]

mod noise;

use mtz::architecture::{self, NetworkSpec};
use mtz::graph::Graph;
use mtz::joint_file;
use mtz::merge::{Matching, Recipe};
use mtz::onnx;
use mtz::op::{Gemm, Relu};
use mtz::random;
use mtz::sharing::Joint;
use mtz::sharing::Share;
use mtz::tensor::{Dim, Shape, Tensor};
use mtz::train::{Bindings, Loss, Optimizer, OptimizerKind, Parameters, Program, Target};
use mtz::zip::{self, ZipOptions, zip};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

/// All that was ever allocated, what is in use, and the most that was since somebody set it back.
static BYTES: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// One test at a time: they count for the whole process.
static ONE: Mutex<()> = Mutex::new(());

// SAFETY: passes everything on to the system's allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        PEAK.fetch_max(LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_training_step_allocates_only_small_lists() {
    let _one = ONE.lock().unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let task = NetworkSpec { input: vec![3, 32, 32], outputs: 10, mean: vec![], std: vec![] };
    let graph = architecture::build("resnet-20", &task, 1.0, 0).unwrap();
    let batch = 8;
    let data = (0..(batch * 3 * 32 * 32) as u64).map(|i| random::normal(1, i)).collect();
    let inputs = [Tensor::new(vec![batch, 3, 32, 32], data).unwrap()];
    let mut parameters = Parameters::new();
    let bindings = Bindings::of(&graph, &mut parameters);
    let mut program = Program::new(&graph, bindings, &parameters, batch, false);
    let kind = OptimizerKind::Sgd { momentum: 0.9, nesterov: true };
    let mut optimizer = Optimizer::new(kind, 1e-4, &mut parameters);
    let classes: Vec<u32> = (0..batch as u32).collect();
    let mut gradient = vec![0.0; batch * 10];
    let mut step = || {
        program.forward(&mut parameters, &inputs, 0).unwrap();
        let scores = program.value(graph.outputs()[0]).data;
        Loss::CrossEntropy.compute(scores, 10, Target::Classes(&classes), &mut gradient);
        parameters.clear_gradients();
        program.backward(&mut parameters, &[&gradient]).unwrap();
        optimizer.step(&mut parameters, 0.01);
    };
    let used = pool.install(|| {
        (0..3).for_each(|_| step());
        let before = BYTES.load(Ordering::Relaxed);
        step();
        BYTES.load(Ordering::Relaxed) - before
    });
    // The values of this network at this batch size take some 20 MB.
    assert!(used < 200_000, "a step allocated {used} bytes");
}

/// A layer of few inputs and many units, and a head.
fn wide(seed: u64, units: usize) -> Graph {
    dense(seed, &[units])
}

/// Hidden layers of so many units behind eight inputs, and a head.
fn dense(seed: u64, hidden: &[usize]) -> Graph {
    let mut graph = Graph::new("dense");
    let mut x = graph.add_input("x", Shape::new(vec![Dim::Batch(1), Dim::Fixed(8)]).unwrap());
    let sizes: Vec<usize> = [8].iter().chain(hidden).chain(&[2]).copied().collect();
    for (i, pair) in sizes.windows(2).enumerate() {
        let (inputs, units) = (pair[0], pair[1]);
        let data = (0..(inputs * units) as u64).map(|k| 0.3 * random::normal(10 * seed + i as u64, k)).collect();
        let weight = graph.add_constant(format!("w{i}"), Tensor::new(vec![units, inputs], data).unwrap()).unwrap();
        let gemm = Gemm { transpose_b: true, ..Gemm::PLAIN };
        x = graph.add_node(format!("fc{i}"), gemm, vec![Some(x), Some(weight)], format!("y{i}")).unwrap();
        if i < hidden.len() {
            x = graph.add_node(format!("relu{i}"), Relu, vec![Some(x)], format!("hidden{i}")).unwrap();
        }
    }
    graph.add_output(x);
    graph
}

/// The most that is allocated while networks are zipped is no more than was counted beforehand: pairing as many units
/// as here takes more than all else.
#[test]
fn zipping_takes_no_more_memory_than_was_counted() {
    const MIB: u64 = 1 << 20;
    let _one = ONE.lock().unwrap();
    let feed = noise::noise(&wide(1, 900), 24);
    // The first products of matrices make room that every thread keeps, whatever their size.
    for (warm, units, matching) in
        [(false, 300, Matching::Optimal), (true, 900, Matching::Optimal), (true, 900, Matching::Greedy)]
    {
        let graphs = [wide(1, units), wide(2, units)];
        let options = ZipOptions::new(Recipe::Best).with(|o| {
            o.sharing.share = Share::Fraction(0.5);
            o.sharing.matching = matching;
            o.fitting.calibration = 24;
            o.fitting.shift = 0;
            o.retraining.iterations = 0;
            o.resources.memory = MIB;
        });
        let start = || {
            let single = |(name, graph): (&str, &Graph)| Joint::single(name.into(), graph.clone()).unwrap();
            Joint::from_networks(["a", "b"].into_iter().zip(&graphs).map(single).collect()).unwrap()
        };
        let tasks = ["a", "b"].map(|name| zip::TaskData::new(name, &feed));
        let error = zip(start(), &tasks, &options, |_| ControlFlow::Continue(())).unwrap_err().to_string();
        let counted: u64 = error.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
        let start = start();
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        zip(start, &tasks, &options.with(|o| o.resources.memory = counted * MIB), |_| ControlFlow::Continue(()))
            .unwrap();
        if !warm {
            continue;
        }
        let taken = (PEAK.load(Ordering::Relaxed) - before) as u64;
        assert!(taken <= counted * MIB, "{matching:?}: {} MiB taken, {counted} counted", taken.div_ceil(MIB));
        assert!(2 * taken > counted * MIB, "{matching:?}: {} MiB taken of {counted} counted", taken.div_ceil(MIB));
    }
}

/// Writing a joint model, reading it back and comparing it takes no more than was counted, and not much less, however
/// much is shared.
#[test]
fn writing_takes_no_more_memory_than_was_counted() {
    let _one = ONE.lock().unwrap();
    let graphs = [dense(1, &[1000, 1000]), dense(2, &[1000, 1000])];
    let single = |(name, graph): (&str, &Graph)| Joint::single(name.into(), graph.clone()).unwrap();
    let start = Joint::from_networks(["a", "b"].into_iter().zip(&graphs).map(single).collect()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("joint.onnx");
    let samples = [0.5, 0.25].map(|x| Tensor::new(vec![1, 8], vec![x; 8]).unwrap());
    // Both networks are there already; the counted sum holds what becomes of them as well.
    let networks = 2 * 4 * start.parameters().0;
    for compared in [false, true] {
        let mut most = 0;
        for share in [Share::Count(0), Share::Fraction(0.5), Share::All] {
            let joint = zip::paired_in_order(&start, &ZipOptions::new(Recipe::Best).with(|o| o.sharing.share = share));
            let before = LIVE.load(Ordering::Relaxed);
            PEAK.store(before, Ordering::Relaxed);
            let graph = joint_file::to_graph(&joint, false).unwrap();
            // Units are paired in the order they come and nothing is fitted, so that what is compared differs.
            let compare = |file: &Graph| {
                drop(joint_file::check(file, &joint, &samples, false));
                Ok(())
            };
            if compared { onnx::write_checked(&graph, &path, compare) } else { onnx::write(&graph, &path) }.unwrap();
            drop(graph);
            most = most.max(PEAK.load(Ordering::Relaxed) - before);
        }
        let counted = zip::writing(&start, compared) as usize - networks;
        assert!(most <= counted && 2 * most > counted, "{compared}: {most} taken of {counted} counted");
    }
}
