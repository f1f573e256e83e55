//! Statistics of parts add up to those of the whole, also through files, and give the same joint model; hostile files
//! are refused.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod noise;

use mtz::architecture::{self, NetworkSpec};
use mtz::engine::CpuEngine;
use mtz::error::Result;
use mtz::merge::Recipe;
use mtz::sharing::{Joint, Share};
use mtz::statistics_file::SavedStatistics;
use mtz::tensor::Tensor;
use mtz::zip::{Session, Sources, TaskData, ZipOptions, Zipped, calibrations_of_originals};
use noise::noise;
use std::ops::ControlFlow;
use std::path::Path;

const SAMPLES: usize = 2100;
const PARTS: usize = 4;

fn pair(architecture: &str, width: f64) -> Joint {
    let spec = NetworkSpec { input: vec![3, 16, 16], outputs: 5, mean: vec![], std: vec![] };
    let single = |name: &str, seed| {
        Joint::single(name.into(), architecture::build(architecture, &spec, width, seed).unwrap()).unwrap()
    };
    Joint::from_networks(vec![single("a", 1), single("b", 2)]).unwrap()
}

fn options(recipe: Recipe) -> ZipOptions {
    ZipOptions::new(recipe).with(|o| {
        o.fitting.calibration = SAMPLES;
        o.fitting.shift = 1;
        o.retraining.iterations = 0;
        o.sharing.share = Share::Fraction(0.5);
    })
}

fn collected(joint: &Joint, recipe: Recipe, part: (usize, usize)) -> SavedStatistics {
    let feed = noise(&joint.members[0].graph, SAMPLES);
    let tasks = ["a", "b"].map(|name| TaskData::new(name, &feed));
    let from = calibrations_of_originals(joint, &tasks, &options(recipe), part);
    SavedStatistics::collect(joint, &from, &CpuEngine, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn zipped(joint: &Joint, recipe: Recipe, statistics: SavedStatistics) -> Result<Zipped> {
    let feed = noise(&joint.members[0].graph, SAMPLES);
    let tasks = ["a", "b"].map(|name| TaskData::new(name, &feed));
    let sources = Sources { statistics: Some(statistics), ..Sources::default() };
    Session::with_sources(joint.clone(), &tasks, &options(recipe), sources)?.run(&mut |_| ControlFlow::Continue(()))
}

fn weights(zipped: &Zipped) -> Vec<&Tensor> {
    let graphs = zipped.joint.members.iter().map(|m| &m.graph);
    graphs.flat_map(|g| g.values()).filter_map(|v| v.constant.as_ref()).collect()
}

/// Sums of products in f64 in another order: rounding, and nothing else.
const TOLERANCE: f32 = 1e-5;

#[test]
fn four_parts_add_up_to_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    for (architecture, width) in [("lenet-300-100", 0.1), ("resnet-20", 0.25)] {
        for recipe in [Recipe::Paper, Recipe::Best] {
            let joint = pair(architecture, width);
            let whole = collected(&joint, recipe, (0, 1));
            let files: Vec<_> = (0..PARTS).map(|i| folder.path().join(format!("{i}.stats"))).collect();
            for (i, file) in files.iter().enumerate() {
                collected(&joint, recipe, (i, PARTS)).write(file).unwrap();
            }
            let mut sum = SavedStatistics::read(&files[2], 1 << 30).unwrap();
            for file in [&files[0], &files[3], &files[1]] {
                sum.add(&SavedStatistics::read(file, 1 << 30).unwrap()).unwrap();
            }
            for (a, b) in whole.tasks.iter().zip(&sum.tasks) {
                for (a, b) in a.layers.iter().zip(&b.layers) {
                    assert_eq!(a.moments.samples(), b.moments.samples(), "{architecture} {}", a.name);
                }
            }
            let (one, four) = (zipped(&joint, recipe, whole).unwrap(), zipped(&joint, recipe, sum).unwrap());
            assert!(one.layers.iter().any(|l| l.merged.shared > 0), "{architecture}");
            for (m, n) in one.joint.members.iter().zip(&four.joint.members) {
                assert_eq!(m.units, n.units, "{architecture}: other pairs");
            }
            for (a, b) in weights(&one).into_iter().zip(weights(&four)) {
                let largest = a.data().iter().fold(1e-3f32, |m, x| m.max(x.abs()));
                let apart = a.data().iter().zip(b.data()).fold(0.0f32, |m, (x, y)| m.max((x - y).abs()));
                assert!(apart <= TOLERANCE * largest, "{architecture}: weights differ by {apart} of {largest}");
            }
        }
    }
}

#[test]
fn a_file_gives_back_what_was_written() {
    let joint = pair("lenet-300-100", 0.05);
    let statistics = collected(&joint, Recipe::Best, (0, 1));
    let file = tempfile::NamedTempFile::new().unwrap();
    statistics.write(file.path()).unwrap();
    let back = SavedStatistics::read(file.path(), 1 << 30).unwrap();
    for (a, b) in statistics.tasks.iter().flat_map(|t| &t.layers).zip(back.tasks.iter().flat_map(|t| &t.layers)) {
        for i in 0..a.moments.size() {
            assert!((i..a.moments.size()).all(|j| a.moments.product(i, j) == b.moments.product(i, j)), "{}", a.name);
        }
    }
}

/// What is wrong with a file, in words.
fn refused(path: &Path, bytes: &[u8]) -> String {
    std::fs::write(path, bytes).unwrap();
    SavedStatistics::read(path, 1 << 24).unwrap_err().to_string()
}

#[test]
fn hostile_files_are_refused() {
    let joint = pair("lenet-300-100", 0.05);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.stats");
    collected(&joint, Recipe::Best, (0, 1)).write(&path).unwrap();
    let good = std::fs::read(&path).unwrap();
    let header = usize::try_from(u64::from_le_bytes(good[8..16].try_into().unwrap())).unwrap();
    let text = String::from_utf8(good[16..16 + header].to_vec()).unwrap();
    let with_header = |text: &str| {
        let length = (text.len() as u64).to_le_bytes();
        [&good[..8], &length, text.as_bytes(), &good[16 + header..]].concat()
    };
    // Cut off anywhere, longer than it says, with a header that is longer than the file or than memory.
    for length in [0, 7, 8, 15, 16, 16 + header / 2, 16 + header, good.len() - 1] {
        assert!(!refused(&path, &good[..length]).is_empty());
    }
    assert!(refused(&path, &[good.as_slice(), &[0]].concat()).contains("damaged"));
    for length in [u64::MAX, u64::MAX - 15, 1 << 40, good.len() as u64] {
        assert!(refused(&path, &[&good[..8], &length.to_le_bytes(), &good[16..]].concat()).contains("damaged"));
    }
    // Sizes that overflow, that ask for more memory than there is, or that are not those of the numbers.
    let size = text.find("\"inputs\":").unwrap() + "\"inputs\":".len();
    let end = size + text[size..].find(',').unwrap();
    for inputs in ["18446744073709551615", "4294967295", "1000000", "0", "-1", "1e3", "null"] {
        let text = format!("{}{inputs}{}", &text[..size], &text[end..]);
        assert!(!refused(&path, &with_header(&text)).is_empty(), "{inputs}");
    }
    // Not a Gram matrix.
    let first = 16 + header;
    for number in [f64::NAN, f64::INFINITY, -1.0] {
        let mut bytes = good.clone();
        bytes[first..first + 8].copy_from_slice(&number.to_le_bytes());
        assert!(refused(&path, &bytes).contains("Gram"), "{number}");
    }
    for text in ["", "{}", "[]", &"[".repeat(100_000), "{\"tasks\":[]} ", "{\"tasks\":[{\"name\":1}]}"] {
        assert!(!refused(&path, &with_header(text)).is_empty());
    }
    // Every byte of the beginning turned around: an error or statistics, never a panic.
    for at in 0..first + 16 {
        let mut bytes = good.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&path, bytes).unwrap();
        let _ = SavedStatistics::read(&path, 1 << 24);
    }
    std::fs::write(&path, &good).unwrap();
    assert!(SavedStatistics::read(&path, 1000).unwrap_err().to_string().contains("MiB"));
}

#[test]
fn statistics_of_other_networks_are_refused() {
    let (joint, other) = (pair("lenet-300-100", 0.05), pair("lenet-300-100", 0.06));
    let mut statistics = collected(&joint, Recipe::Best, (0, 1));
    let text = zipped(&other, Recipe::Best, statistics.clone()).unwrap_err().to_string();
    assert!(text.contains("another network"), "{text}");
    let text = statistics.add(&collected(&other, Recipe::Best, (0, 1))).unwrap_err().to_string();
    assert!(text.contains("other networks"), "{text}");
    statistics.tasks.pop();
    assert!(zipped(&joint, Recipe::Best, statistics).unwrap_err().to_string().contains("no statistics for task"));
}
