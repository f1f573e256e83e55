//! Every data format as numpy, gzip and Pillow write it, and what damaged files get.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cases;

use cases::golden;
use mtz::data::{Dataset, Feed, ImageFit, Labels, Location, Normalisation, OpenOptions, Part, Parts, locate};
use mtz::error::Result;
use mtz::graph::Graph;
use mtz::tensor::{Dim, Shape};
use std::path::{Path, PathBuf};

fn path(name: &str) -> PathBuf {
    golden().join("data").join(name)
}

fn open(path: &Path, part: Part) -> Result<Dataset> {
    let options = OpenOptions { image_shape: Some([3, 4, 5]), ..OpenOptions::default() };
    locate(path)?.part(part).open(&options)
}

fn sample(dataset: &Dataset, index: usize) -> Vec<f32> {
    let mut out = vec![0.0; dataset.samples.shape().iter().product()];
    dataset.samples.read(index, &mut out).unwrap();
    out
}

/// A network that passes samples of this shape through.
fn network(shape: &[usize]) -> Graph {
    let mut graph = Graph::new("test");
    let dims = [Dim::Batch(1)].into_iter().chain(shape.iter().map(|&n| Dim::Fixed(n))).collect();
    let x = graph.add_input("image", Shape::new(dims).unwrap());
    let y = graph.add_node("relu", mtz::op::Relu, vec![Some(x)], "y").unwrap();
    graph.add_output(y);
    graph
}

#[test]
fn numpy_archives_of_all_kinds_hold_the_same_samples() {
    let plain = open(&path("plain.npz"), Part::Test).unwrap();
    assert_eq!((plain.samples.len(), plain.samples.shape()), (7, &[3, 4, 5][..]));
    assert!(plain.samples.is_bytes());
    for name in ["compressed.npz", "floats.npz", "doubles.npz", "halves.npz"] {
        let other = open(&path(name), Part::Train).unwrap();
        assert_eq!(other.labels, plain.labels, "{name}");
        let bytes = other.samples.is_bytes();
        assert_eq!(bytes, name == "compressed.npz");
        let tolerance = if name == "halves.npz" { 0.2 } else { 1e-4 };
        for i in 0..7 {
            for (a, b) in sample(&plain, i).iter().zip(sample(&other, i)) {
                assert!((a - if bytes { b } else { b * 255.0 }).abs() < tolerance, "{name}: {a} {b}");
            }
        }
    }
}

#[test]
fn labels_of_all_kinds() {
    let attributes = open(&path("attributes.npz"), Part::Test).unwrap().labels.unwrap();
    assert!(matches!(&attributes, Labels::Attributes { count: 4, values } if values.len() == 28));
    assert!(matches!(
        open(&path("boolean.npz"), Part::Test).unwrap().labels,
        Some(Labels::Attributes { count: 4, .. })
    ));
    assert_eq!(open(&path("unlabelled.npz"), Part::Test).unwrap().labels, None);
    let several = locate(&path("several.npz")).unwrap();
    let choose = |label: &str| {
        several.part(Part::Test).open(&OpenOptions { label: Some(label.into()), ..OpenOptions::default() })
    };
    assert!(choose("gender").unwrap().labels != choose("age").unwrap().labels);
    assert!(choose("height").unwrap_err().to_string().contains("height"));
}

#[test]
fn mnist_files_zipped_or_not() {
    for name in ["idx", "idx_gz"] {
        assert!(matches!(locate(&path(name)).unwrap(), Parts::Split { .. }));
        let (train, test) = (open(&path(name), Part::Train).unwrap(), open(&path(name), Part::Test).unwrap());
        assert_eq!((train.samples.len(), test.samples.len()), (5, 3));
        assert_eq!(test.samples.shape(), [1, 4, 5]);
        assert_eq!(test.labels, Some(Labels::Classes(vec![0, 1, 2])));
        assert_eq!(sample(&test, 2), (40..60).map(|i| i as f32).collect::<Vec<_>>());
    }
}

#[test]
fn cifar_files() {
    let train = open(&path("cifar"), Part::Train).unwrap();
    assert_eq!(train.samples.shape(), [3, 32, 32]);
    assert_eq!(train.labels, Some(Labels::Classes(vec![1, 1, 2, 2])));
    assert_eq!(sample(&train, 3), vec![21.0; 3072]);
    let test = open(&path("cifar"), Part::Test).unwrap();
    assert_eq!(sample(&test, 0)[..3], [0.0, 1.0, 2.0]);
    // CIFAR-100 has a coarse label in front of the fine one.
    assert_eq!(open(&path("cifar100"), Part::Test).unwrap().labels, Some(Labels::Classes(vec![77])));
    // A single file is not divided.
    assert!(matches!(locate(&path("cifar/test_batch.bin")).unwrap(), Parts::Whole(Location::Cifar(_))));
}

#[test]
fn folders_of_images() {
    let train = open(&path("images"), Part::Train).unwrap();
    assert_eq!(train.labels, Some(Labels::Classes(vec![0, 0, 1, 1])));
    let dog = sample(&train, 3);
    assert_eq!(dog[..20], [200.0; 20]); // red
    assert_eq!(dog[20..25], [0.0, 10.0, 20.0, 30.0, 40.0]); // green grows to the right
    assert_eq!(dog[40..], [1.0; 20]); // blue is the number of the picture
    assert_eq!(open(&path("images"), Part::Test).unwrap().samples.len(), 2);
}

#[test]
fn images_of_another_size_are_refused_or_fitted() {
    let location = locate(&path("large_images")).unwrap();
    for (fit, fine) in [(ImageFit::Exact, false), (ImageFit::Crop, true), (ImageFit::Stretch, true)] {
        let options = OpenOptions { image_shape: Some([1, 4, 5]), image_fit: fit, ..OpenOptions::default() };
        let dataset = location.part(Part::Test).open(&options).unwrap();
        let result = dataset.samples.read(0, &mut [0.0; 20]);
        assert_eq!(result.is_ok(), fine);
        if let Err(error) = result {
            assert!(error.to_string().contains("10×8") && error.hint_text().unwrap().contains("--resize"), "{error}");
        }
    }
}

#[test]
fn samples_become_batches_scaled_and_normalised() {
    let open = || open(&path("plain.npz"), Part::Test).unwrap();
    let raw = sample(&open(), 2);
    let feed =
        |n: Normalisation, shape: &[usize]| Feed::new(open(), &network(shape), n).unwrap().batch(&[0, 2]).unwrap();
    let default = feed(Normalisation::default(), &[3, 4, 5]);
    assert_eq!(default.shape(), [2, 3, 4, 5]);
    assert_eq!(default.data()[60..], raw.iter().map(|x| x / 255.0).collect::<Vec<_>>());
    assert_eq!(feed(Normalisation { raw: true, ..Normalisation::default() }, &[3, 4, 5]).data()[60..], raw);
    let n = Normalisation { mean: vec![0.1, 0.2, 0.3], std: vec![0.5], scale: Some(0.25), raw: false };
    let normalised = feed(n, &[60]);
    for (i, (got, x)) in normalised.data()[60..].iter().zip(&raw).enumerate() {
        assert_eq!(*got, (x * 0.25 - [0.1, 0.2, 0.3][i / 20]) / 0.5);
    }
    // Height × width × channels, as Keras has it.
    let last = feed(Normalisation { raw: true, ..Normalisation::default() }, &[4, 5, 3]);
    for (i, x) in raw.iter().enumerate() {
        assert_eq!(last.data()[60 + i % 20 * 3 + i / 20], *x);
    }
}

#[test]
fn data_that_does_not_fit_the_model_is_refused_before_work_begins() {
    let feed = |shape: &[usize], n: Normalisation| {
        Feed::new(open(&path("plain.npz"), Part::Test).unwrap(), &network(shape), n)
    };
    let error = feed(&[3, 5, 5], Normalisation::default()).unwrap_err().to_string();
    assert!(
        error.contains("\"image\"") && error.contains("[N, 3, 5, 5]") && error.contains("[N, 3, 4, 5] (uint8)"),
        "{error}"
    );
    for (mean, std) in [(vec![0.1; 2], vec![]), (vec![], vec![0.0]), (vec![f32::NAN], vec![])] {
        assert!(feed(&[3, 4, 5], Normalisation { mean, std, ..Normalisation::default() }).is_err());
    }
}

#[test]
fn unusable_files_are_refused_with_a_reason() {
    for (name, reason) in [
        ("fortran.npz", "Fortran"),
        ("big_endian.npz", "type '>f4'"),
        ("objects.npz", "type '|O'"),
        ("mismatch.npz", "7 samples but 5 labels"),
        ("negative.npz", "not a valid class"),
        ("float_labels.npz", "labels of shape"),
        ("no_x.npz", "no array \"x\""),
        ("several.npz", "several label arrays: age, gender"),
        ("nowhere.npz", "there is no such file"),
        ("", "no images"),
    ] {
        let error = open(&path(name), Part::Test).unwrap_err().to_string();
        assert!(error.contains(reason), "{name}: {error}");
    }
}

/// Every file cut off at many places, and with single bytes changed: an error or the right number of samples, no panic.
#[test]
fn damaged_files_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let try_file = |target: &Path, bytes: &[u8], data: &Path| {
        std::fs::write(target, bytes).unwrap();
        for part in [Part::Train, Part::Test] {
            if let Ok(dataset) = open(data, part) {
                let size: usize = dataset.samples.shape().iter().product();
                if size <= 1 << 20 && dataset.samples.len() < 100 {
                    let mut out = vec![0.0; size];
                    (0..dataset.samples.len()).for_each(|i| drop(dataset.samples.read(i, &mut out)));
                }
            }
        }
    };
    for name in ["plain.npz", "compressed.npz", "attributes.npz"] {
        let (bytes, target) = (std::fs::read(path(name)).unwrap(), folder.path().join("x.npz"));
        damage(&bytes, |bytes| try_file(&target, bytes, &target));
    }
    for (name, file) in
        [("idx", "t10k-images-idx3-ubyte"), ("idx_gz", "t10k-images-idx3-ubyte.gz"), ("cifar", "test_batch.bin")]
    {
        let copy = folder.path().join(name);
        std::fs::create_dir(&copy).unwrap();
        for entry in std::fs::read_dir(path(name)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
        let bytes = std::fs::read(path(name).join(file)).unwrap();
        damage(&bytes, |bytes| try_file(&copy.join(file), bytes, &copy));
    }
    let class = folder.path().join("images/cat");
    std::fs::create_dir_all(&class).unwrap();
    let bytes = std::fs::read(path("images/train/cat/0.png")).unwrap();
    damage(&bytes, |bytes| try_file(&class.join("0.png"), bytes, &folder.path().join("images")));
}

fn damage(bytes: &[u8], mut f: impl FnMut(&[u8])) {
    for cut in (0..bytes.len()).step_by(bytes.len() / 50 + 1) {
        f(&bytes[..cut]);
    }
    for at in (0..bytes.len()).step_by(bytes.len() / 400 + 1) {
        for value in [0, 0xff, bytes[at] ^ 1, bytes[at] ^ 0x80] {
            let mut changed = bytes.to_vec();
            changed[at] = value;
            f(&changed);
        }
    }
}

#[test]
fn some_classes_are_a_set_of_their_own() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/mnist");
    let open = |classes: Option<&str>| {
        let options = OpenOptions { classes: classes.map(|c| c.parse().unwrap()), ..OpenOptions::default() };
        locate(&folder).unwrap().part(Part::Test).open(&options)
    };
    let (all, some) = (open(None).unwrap(), open(Some("5-9")).unwrap());
    let (Some(Labels::Classes(all_labels)), Some(Labels::Classes(labels))) = (&all.labels, &some.labels) else {
        panic!()
    };
    let chosen: Vec<usize> = (0..all_labels.len()).filter(|&i| all_labels[i] >= 5).collect();
    assert_eq!((some.samples.len(), labels.len(), labels.iter().max()), (chosen.len(), chosen.len(), Some(&4)));
    for k in [0, 17, chosen.len() - 1] {
        let read = |d: &Dataset, i: usize| {
            let mut image = vec![0.0; 784];
            d.samples.read(i, &mut image).unwrap();
            image
        };
        assert_eq!((read(&some, k), labels[k] + 5), (read(&all, chosen[k]), all_labels[chosen[k]]));
    }
    assert!(open(Some("10-12")).unwrap_err().hint_text().unwrap().contains("0-9"));
}
