//! A training step allocates nothing but small lists once it has warmed up: its buffers are planned and kept.
#![allow(clippy::unwrap_used)]

use mtz::architecture::{self, Task};
use mtz::random;
use mtz::tensor::Tensor;
use mtz::train::{Bindings, Loss, Optimizer, OptimizerKind, Parameters, Program, Target};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_training_step_allocates_only_small_lists() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let task = Task { input: vec![3, 32, 32], outputs: 10, mean: vec![], std: vec![] };
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
