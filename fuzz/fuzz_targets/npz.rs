//! Any bytes as an .npz of samples and labels.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mtz::data::{OpenOptions, Part, locate};
use std::io::Write;

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::Builder::new().suffix(".npz").tempfile().expect("a temporary file");
    file.write_all(bytes).expect("room for a few bytes");
    let parts = locate(file.path()).expect("the file is there");
    if let Ok(dataset) = parts.part(Part::Test).open(&OpenOptions::default()) {
        let size: usize = dataset.samples.shape().iter().product();
        if size < 1 << 20 {
            let _ = dataset.samples.read(0, &mut vec![0.0; size]);
        }
    }
});
