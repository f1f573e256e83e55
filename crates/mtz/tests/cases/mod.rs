//! Golden cases made by `tools/golden`: a model, its inputs, and what onnxruntime computes.
#![allow(dead_code)] // each test file uses its part

use mtz::data::Archive;
use mtz::graph::Graph;
use mtz::run::Runner;
use mtz::tensor::Tensor;
use std::path::{Path, PathBuf};

pub struct Case {
    pub name: String,
    pub model: Vec<u8>,
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
}

pub fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// All cases of all files in a folder of `tests/golden`; none if the folder is not there.
pub fn cases(folder: &str) -> Vec<Case> {
    let Ok(entries) = std::fs::read_dir(golden().join(folder)) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "npz"));
    files.sort();
    files.iter().flat_map(|file| read(file)).collect()
}

fn read(file: &Path) -> Vec<Case> {
    let mut archive = Archive::open(file).unwrap();
    let names: Vec<String> =
        archive.names().iter().filter_map(|n| n.strip_suffix("/model")).map(str::to_owned).collect();
    let all = archive.names().to_vec();
    let mut tensors = |name: &str, kind: &str| -> Vec<Tensor> {
        (0..)
            .map(|i| format!("{name}/{kind}{i}"))
            .take_while(|n| all.contains(n))
            .map(|n| {
                let array = archive.array(&n).unwrap();
                let data = array.numbers().unwrap().iter().map(|&x| x as f32).collect();
                Tensor::new(array.full_shape(), data).unwrap()
            })
            .collect()
    };
    let stem = file.file_stem().unwrap().to_string_lossy();
    let parts: Vec<_> = names.iter().map(|n| (tensors(n, "in"), tensors(n, "out"))).collect();
    names
        .iter()
        .zip(parts)
        .map(|(name, (inputs, outputs))| {
            let model = archive.array(&format!("{name}/model")).unwrap().numbers().unwrap();
            Case { name: format!("{stem}/{name}"), model: model.iter().map(|&b| b as u8).collect(), inputs, outputs }
        })
        .collect()
}

impl Case {
    pub fn graph(&self) -> Graph {
        mtz::onnx::read_bytes(self.model.clone().into(), None).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// The outputs of `graph` on this case's inputs.
    pub fn run(&self, graph: &Graph) -> Vec<Tensor> {
        Runner::new(graph).run(&self.inputs).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// Fails unless `got` equals onnxruntime's outputs within 1e-4 relative and 1e-5 absolute.
    pub fn check(&self, got: &[Tensor], what: &str) {
        assert_eq!(got.len(), self.outputs.len(), "{}: number of outputs", self.name);
        for (got, expected) in got.iter().zip(&self.outputs) {
            // A scalar is stored as one record.
            let shape = if got.shape().is_empty() { &[1][..] } else { got.shape() };
            assert_eq!(shape, expected.shape(), "{} ({what})", self.name);
            for (i, (a, b)) in got.data().iter().zip(expected.data()).enumerate() {
                let close = (a - b).abs() <= 1e-5 + 1e-4 * b.abs() || a == b;
                assert!(close, "{} ({what}): element {i} is {a}, onnxruntime says {b}", self.name);
            }
        }
    }
}
