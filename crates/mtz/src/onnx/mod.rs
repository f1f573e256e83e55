//! ONNX files: reading into a [`crate::graph::Graph`] and writing back.
//!
//! Files may be hostile. Sizes are checked before memory is taken, paths of external data stay inside the model's
//! folder, and no index or conversion can panic: clippy refuses both in this module.
#![deny(clippy::indexing_slicing, clippy::as_conversions)]

mod guard;
mod lower;
mod mapped;
mod order;
mod proto;
mod read;
mod sparse;
mod statics;
mod tensors;
mod write;

pub use read::{NEWEST_OPSET, OLDEST_OPSET, files, parse, read, read_bytes};
pub use write::{LARGEST, file_bytes, to_bytes, write, write_checked};
