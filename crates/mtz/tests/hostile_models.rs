//! Damaged and malicious model files: an error with a clear message, never a panic, never more than bounded memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unsafe_code)]

mod cases;

use cases::{cases, golden};
use mtz::architecture::{self, NetworkSpec};
use mtz::data::Archive;
use mtz::onnx;
use mtz::run::Runner;
use mtz::tensor::Tensor;
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Refuses to hold more than a gigabyte: a test that would take more dies.
struct Bounded;

static HELD: AtomicUsize = AtomicUsize::new(0);
const LIMIT: usize = 1 << 30;

// SAFETY: every call is passed on to the system allocator unchanged, or answered with null, which the contract allows.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size() > LIMIT {
            return std::ptr::null_mut();
        }
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

/// The hostile models of `tools/golden/hostile.py`: name, bytes, part of the message.
fn hostile() -> Vec<(String, Vec<u8>, String)> {
    let mut archive = Archive::open(&golden().join("hostile.npz")).unwrap();
    let mut bytes = |name: &str| -> Vec<u8> {
        // An empty array has no records to open.
        archive.array(name).map_or_else(|_| vec![], |a| a.numbers().unwrap().iter().map(|&b| b as u8).collect())
    };
    let archive_names = Archive::open(&golden().join("hostile.npz")).unwrap().names().to_vec();
    let names: Vec<&str> = archive_names.iter().filter_map(|n| n.strip_suffix("/model")).collect();
    names
        .iter()
        .map(|n| {
            let message = String::from_utf8(bytes(&format!("{n}/message"))).unwrap();
            ((*n).to_owned(), bytes(&format!("{n}/model")), message)
        })
        .collect()
}

#[test]
fn hostile_models_are_refused_with_a_clear_message() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("external.bin"), [0; 64]).unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link.bin")).unwrap();
    let all = hostile();
    assert!(all.len() > 50, "only {}", all.len());
    for (name, model, message) in all {
        if name == "external_link" && cfg!(not(unix)) {
            continue;
        }
        let error = onnx::read_bytes(model.into(), Some(folder.path())).expect_err(&name);
        let text = error.to_string();
        assert!(text.contains(&message), "{name}: expected {message:?} in {text:?}");
    }
}

#[test]
fn external_data_is_read_from_the_models_folder() {
    let mut archive = Archive::open(&golden().join("external.npz")).unwrap();
    let mut bytes =
        |name: &str| -> Vec<u8> { archive.array(name).unwrap().numbers().unwrap().iter().map(|&b| b as u8).collect() };
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("weights")).unwrap();
    std::fs::write(folder.path().join("weights/external.bin"), bytes("weights")).unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, bytes("model")).unwrap();
    let graph = onnx::read(&path).unwrap();
    let input = Tensor::new(vec![1, 4], vec![1.0, 0.0, 0.0, 1.0]).unwrap();
    // The first and the last row of 0..16, added.
    assert_eq!(Runner::new(&graph).run(&[input]).unwrap()[0].data(), [12.0, 14.0, 16.0, 18.0]);
    // What is written holds its weights itself.
    let alone = folder.path().join("alone.onnx");
    onnx::write(&graph, &alone).unwrap();
    std::fs::remove_dir_all(folder.path().join("weights")).unwrap();
    assert!(onnx::read(&alone).unwrap() == graph);
    assert!(onnx::read(&path).is_err());
}

/// Large files are mapped instead of read: the same network, and the same refusal of what is cut off.
#[test]
fn large_files_are_read_like_small_ones() {
    let task = NetworkSpec { input: vec![1, 28, 28], outputs: 10, mean: vec![], std: vec![] };
    let graph = architecture::build("lenet-300-100", &task, 9.0, 0).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.onnx");
    onnx::write(&graph, &path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() > 17 << 20, "too small to be mapped");
    assert!(onnx::read(&path).unwrap() == onnx::parse(&bytes).unwrap());
    std::fs::write(&path, &bytes[..17 << 20]).unwrap();
    let error = onnx::read(&path).unwrap_err().to_string();
    assert!(error.contains("not a readable ONNX file"), "{error}");
}

#[test]
fn without_a_folder_external_data_is_refused() {
    let (_, model, _) = hostile().into_iter().find(|(n, _, _)| n == "external_length").unwrap();
    assert!(onnx::read_bytes(model.into(), None).unwrap_err().to_string().contains("file of its own"));
}

/// Reads a model and, if it is accepted, simplifies, writes and runs it within a small memory limit, and looks for its
/// layers.
fn survive(bytes: Vec<u8>) {
    let Ok(graph) = onnx::read_bytes(bytes.into(), Some(Path::new("."))) else { return };
    let graph = graph.with_open_batch();
    let Ok(simple) = mtz::simplify::for_inference(&graph) else { return };
    mtz::inspect::inspect(&simple);
    let _ = onnx::to_bytes(&simple);
    let _ = mtz::joint_file::from_graph(&graph);
    if let Ok(joint) = mtz::sharing::Joint::single("any".into(), graph.clone()) {
        joint.members.iter().flat_map(|m| m.layers.iter().map(|l| l.folded(&m.graph))).for_each(drop);
        let _ = mtz::joint_file::to_graph(&joint, false);
    }
    let limit = 16 << 20;
    for graph in [&graph, &simple] {
        if Runner::new(graph).peak_bytes(1) > limit {
            continue;
        }
        let inputs = graph.inputs().iter().map(|id| {
            let shape = graph[*id].shape.at(1);
            let count = shape.iter().product();
            Tensor::new(shape, vec![0.5; count]).unwrap()
        });
        let _ = Runner::new(graph).memory_limit(limit).run(&inputs.collect::<Vec<_>>());
    }
}

/// Small models of many kinds to damage.
fn seeds() -> Vec<Vec<u8>> {
    let mut models: Vec<Vec<u8>> = cases("operators").into_iter().map(|c| c.model).filter(|m| m.len() < 2000).collect();
    let networks = cases("networks").into_iter().filter(|c| c.name.contains("unet") || c.name.contains("modern"));
    models.extend(networks.map(|c| c.model));
    models
}

#[test]
fn truncated_models_never_panic() {
    for model in seeds().iter().step_by(3) {
        for cut in (0..model.len()).step_by(model.len() / 60 + 1) {
            survive(model[..cut].to_vec());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bits_never_panic(seed in any::<prop::sample::Index>(),
    flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..6)) {
        static SEEDS: std::sync::LazyLock<Vec<Vec<u8>>> = std::sync::LazyLock::new(seeds);
        let mut model = SEEDS[seed.index(SEEDS.len())].clone();
        for (at, bit) in flips {
            let at = at.index(model.len());
            model[at] ^= 1 << bit;
        }
        survive(model);
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        survive(bytes);
    }
}
