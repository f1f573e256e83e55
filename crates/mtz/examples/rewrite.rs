//! Reads models and writes them again, as they are and simplified: `rewrite IN_FOLDER OUT_FOLDER`.
//! `tools/golden/roundtrip.py` lets onnxruntime run what comes out.

use mtz::error::{Error, Result};
use mtz::{onnx, simplify};
use std::path::PathBuf;

fn main() -> Result<()> {
    let folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [from, to] = folders.as_slice() else {
        return Err(Error::usage("two folders are needed: where models are, and where they go"));
    };
    let entries = std::fs::read_dir(from).map_err(|e| Error::io(from, &e))?;
    for entry in entries {
        let path = entry.map_err(|e| Error::io(from, &e))?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let graph = onnx::read(&path)?;
        onnx::write(&graph, &to.join(format!("{name}.plain.onnx")))?;
        onnx::write(&simplify::for_inference(&graph)?, &to.join(format!("{name}.simple.onnx")))?;
    }
    Ok(())
}
