//! Every data format as numpy, gzip and Pillow write it, and what damaged files get.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cases;

use cases::golden;
use mtz::data::{
    Dataset, Feed, ImageCache, ImageFit, LabelChoice, Labels, Location, Normalisation, OneHot, OpenOptions, Part,
    Parts, locate,
};
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
    for (name, labelled) in [
        ("compressed.npz", true),
        ("floats.npz", true),
        ("doubles.npz", true),
        ("halves.npz", true),
        ("fortran.npz", true),
        ("fortran_compressed.npz", true),
        ("bare.npy", false),
        ("fortran.npy", false),
    ] {
        let other = open(&path(name), Part::Train).unwrap();
        assert_eq!(other.labels, plain.labels.clone().filter(|_| labelled), "{name}");
        assert_eq!(other.samples.shape(), [3, 4, 5], "{name}");
        let bytes = other.samples.is_bytes();
        let floats = ["floats.npz", "doubles.npz", "halves.npz", "fortran.npy"];
        assert_eq!(bytes, !floats.contains(&name));
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
    let choose =
        |label: &str| several.part(Part::Test).open(&OpenOptions { label: label.into(), ..OpenOptions::default() });
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
            assert!(error.to_string().contains("10×8") && error.hint_text().unwrap().contains("`resize`"), "{error}");
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
    let arrays =
        ["plain.npz", "compressed.npz", "attributes.npz", "fortran_compressed.npz", "names.npz", "fortran.npy"];
    for name in arrays {
        let target = folder.path().join(if name.ends_with("npy") { "x.npy" } else { "x.npz" });
        let bytes = std::fs::read(path(name)).unwrap();
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

/// Options of a task named age, for images of 3×4×5.
fn age() -> OpenOptions {
    OpenOptions { task: Some("age".into()), image_shape: Some([3, 4, 5]), ..OpenOptions::default() }
}

fn open_age(name: &str, options: &OpenOptions) -> Result<Dataset> {
    locate(&path(name)).unwrap().part(Part::Test).open(options)
}

/// What an error says: names the task and the file, and what to type.
fn says(error: &mtz::error::Error, file: &str, hint: &str) {
    let text = error.to_string();
    assert!(text.starts_with("task age: ") && text.contains(file), "{text}");
    assert!(error.hint_text().unwrap_or_default().contains(hint), "{text}: {:?}", error.hint_text());
}

#[test]
fn photographs_without_classes_are_unlabelled() {
    assert!(matches!(locate(&path("photographs")).unwrap(), Parts::Split { .. }));
    for (folder, part, count) in
        [("photographs", Part::Train, 3), ("photographs", Part::Test, 2), ("photographs/train", Part::Test, 3)]
    {
        let photographs = open(&path(folder), part).unwrap();
        assert_eq!((photographs.samples.len(), &photographs.labels), (count, &None), "{folder}");
        let last = count - 1;
        assert_eq!(sample(&photographs, last), vec![(10 * last + count) as f32; 60]);
    }
}

#[test]
fn what_begins_with_a_dot_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let image = path("photographs/train/0.png");
    for place in ["cat/0.png", "cat/._0.png", "cat/.ipynb_checkpoints/0.png", ".ipynb_checkpoints/0.png", "dog/1.png"] {
        let file = folder.path().join(place);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::copy(&image, file).unwrap();
    }
    assert_eq!(open(folder.path(), Part::Test).unwrap().labels, Some(Labels::Classes(vec![0, 1])));
    let flat = open(&folder.path().join("cat"), Part::Test).unwrap();
    assert_eq!((flat.samples.len(), flat.labels), (1, None));
}

#[test]
fn an_empty_class_folder_is_named_and_keeps_its_number() {
    let folder = tempfile::tempdir().unwrap();
    for class in ["cat", "dog", "emu"] {
        std::fs::create_dir(folder.path().join(class)).unwrap();
    }
    for file in ["cat/0.png", "emu/0.png", "beside.png"] {
        std::fs::copy(path("photographs/train/0.png"), folder.path().join(file)).unwrap();
    }
    let dataset = open(folder.path(), Part::Test).unwrap();
    assert_eq!(dataset.labels, Some(Labels::Classes(vec![0, 2])));
    assert_eq!(dataset.class_names, ["cat", "dog", "emu"]);
    let notes = dataset.notes.join("\n");
    assert!(notes.contains("dog has no images") && notes.contains("1 images beside the class folders"), "{notes}");
}

#[test]
fn every_format_goes_on_without_labels() {
    let none = OpenOptions { label: LabelChoice::None, ..age() };
    for name in [
        "plain.npz",
        "several.npz",
        "ages.npz",
        "negative.npz",
        "idx",
        "idx_gz",
        "cifar",
        "cifar100",
        "images",
        "bare.npy",
    ] {
        let dataset = open_age(name, &none).unwrap();
        assert_eq!(dataset.labels, None, "{name}");
        assert!(!dataset.samples.is_empty());
    }
    assert_eq!(
        [LabelChoice::from("none"), LabelChoice::from("y")],
        [LabelChoice::None, LabelChoice::Array("y".into())]
    );
}

#[test]
fn labels_that_are_none_name_task_and_file() {
    for name in ["ages.npz", "negative.npz", "mismatch.npz", "several.npz"] {
        says(&open_age(name, &age()).unwrap_err(), name, "`label` age=none");
    }
    let fit = |name: &str, outputs: &[usize]| {
        open_age(name, &age()).and_then(|mut d| d.fit_labels(&network(outputs), OneHot::Classes).map(|()| d))
    };
    assert!(fit("plain.npz", &[4]).is_ok());
    let error = fit("plain.npz", &[2]).unwrap_err();
    says(&error, "plain.npz", "`label` age=none");
    assert!(error.to_string().contains("labels go up to 3, but output \"y\" has 2 classes"), "{error}");
    let error = fit("attributes.npz", &[9]).unwrap_err();
    says(&error, "attributes.npz", "`label` age=none");
    assert!(error.to_string().contains("4 attributes for each sample, but output \"y\" has 9"), "{error}");
    says(&fit("plain.npz", &[4, 8, 8]).unwrap_err(), "plain.npz", "`label` age=none");
}

#[test]
fn rows_with_a_single_1_are_classes_unless_outputs_are_yes_or_no() {
    let fit = |outputs: usize, one_hot| {
        let mut dataset = open_age("one_hot.npz", &age()).unwrap();
        dataset.fit_labels(&network(&[outputs]), one_hot).map(|()| (dataset.labels.unwrap(), dataset.notes))
    };
    let classes = Labels::Classes(vec![3, 0, 1, 1, 2, 0, 3]);
    for (outputs, one_hot) in [(4, OneHot::Classes), (10, OneHot::ClassesUnlessTheyFit)] {
        let (labels, notes) = fit(outputs, one_hot).unwrap();
        assert_eq!(labels, classes);
        assert!(notes.len() == 1 && notes[0].contains("one_hot.npz: every row") && notes[0].contains("4 classes"));
    }
    for one_hot in [OneHot::Attributes, OneHot::ClassesUnlessTheyFit] {
        let (labels, notes) = fit(4, one_hot).unwrap();
        assert!(matches!(labels, Labels::Attributes { count: 4, .. }) && notes.is_empty());
    }
    assert!(fit(10, OneHot::Attributes).is_err());
}

#[test]
fn names_are_classes() {
    for name in ["names.npz", "names_bytes.npz"] {
        let mut dataset = open_age(name, &age()).unwrap();
        assert_eq!(dataset.labels, Some(Labels::Classes(vec![2, 0, 1, 0, 1, 3, 0])), "{name}");
        assert_eq!(dataset.class_names, ["cat", "dog", "emu", "ox"]);
        assert!(dataset.notes[0].contains("cat = 0, dog = 1, emu = 2, ox = 3"), "{:?}", dataset.notes);
        dataset.fit_labels(&network(&[4]), OneHot::Classes).unwrap();
        assert_eq!(dataset.notes.len(), 1);
        // As many names as outputs, or the numbers may be others than the network's.
        dataset.fit_labels(&network(&[6]), OneHot::Classes).unwrap();
        assert!(dataset.notes[1].contains("4 classes (cat, dog, emu, …)"), "{:?}", dataset.notes);
    }
}

#[test]
fn labels_counted_from_one_are_shifted() {
    let fit = |outputs: usize| {
        let mut dataset = open_age("from_one.npz", &age()).unwrap();
        dataset.fit_labels(&network(&[outputs]), OneHot::Classes).map(|()| (dataset.labels.unwrap(), dataset.notes))
    };
    let (labels, notes) = fit(4).unwrap();
    assert_eq!(labels, Labels::Classes(vec![0, 1, 2, 3, 3, 1, 0]));
    assert!(notes[0].contains("counted from 1 to 4"), "{notes:?}");
    let (labels, notes) = fit(5).unwrap();
    assert_eq!(labels, Labels::Classes(vec![1, 2, 3, 4, 4, 2, 1]));
    assert!(notes[0].contains("no label is 0"), "{notes:?}");
    assert!(fit(3).is_err());
}

/// Both parts of a folder, each opened beside the other.
fn both_parts(folder: &Path) -> [Dataset; 2] {
    let parts = locate(folder).unwrap();
    [Part::Train, Part::Test].map(|part| {
        let beside = Some(parts.part(part.other()).clone());
        parts.part(part).open(&OpenOptions { other_part: beside, ..age() }).unwrap()
    })
}

/// A part without some class must not be numbered in another way than the one that has it.
#[test]
fn classes_have_the_same_numbers_in_both_parts() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["train/ant/0.png", "train/bee/0.png", "train/cat/0.png", "test/bee/0.png", "test/dog/0.png"] {
        let file = folder.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::copy(path("photographs/train/0.png"), file).unwrap();
    }
    let [train, test] = both_parts(folder.path());
    assert_eq!(train.labels, Some(Labels::Classes(vec![0, 1, 2])));
    assert_eq!(test.labels, Some(Labels::Classes(vec![1, 3])));
    assert!([train, test].iter().all(|part| part.class_names == ["ant", "bee", "cat", "dog"]));
    // Counted from 1: in front of samples of 1×1, as MNIST has them.
    for (train, test, expected) in [
        (&[1, 2, 3][..], &[2, 1][..], [vec![0, 1, 2], vec![1, 0]]),
        (&[2, 3], &[1, 1], [vec![1, 2], vec![0, 0]]),
        (&[0, 1, 2], &[1, 2], [vec![0, 1, 2], vec![1, 2]]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for (prefix, labels) in [("train", train), ("t10k", test)] {
            let count = labels.len() as u8;
            let write = |name: &str, head: &[u8], numbers: &[u8]| {
                let file = folder.path().join(format!("{prefix}-{name}-ubyte"));
                std::fs::write(file, [head, numbers].concat()).unwrap();
            };
            write("images-idx3", &[0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 1, 0, 0, 0, 1], &vec![7; labels.len()]);
            write("labels-idx1", &[0, 0, 8, 1, 0, 0, 0, count], labels);
        }
        let fitted = both_parts(folder.path()).map(|mut part| {
            part.fit_labels(&network(&[3]), OneHot::Classes).unwrap();
            part.labels
        });
        assert_eq!(fitted, expected.map(|classes| Some(Labels::Classes(classes))));
    }
}

#[test]
fn channels_at_the_end_are_turned() {
    let first = || open_age("plain.npz", &age()).unwrap();
    let last = || open_age("channels_last.npz", &age()).unwrap();
    let per_channel = Normalisation { mean: vec![0.1, 0.2, 0.3], std: vec![0.5, 0.6, 0.7], ..Normalisation::default() };
    for n in [Normalisation::default(), per_channel] {
        for shape in [[3, 4, 5], [4, 5, 3]] {
            let expected = Feed::new(first(), &network(&shape), n.clone()).unwrap().batch(&[0, 6]).unwrap();
            let turned = Feed::new(last(), &network(&shape), n.clone()).unwrap();
            assert_eq!(turned.batch(&[0, 6]).unwrap(), expected, "{shape:?} {n:?}");
            let note = turned.notes().iter().any(|n| n.contains("[N, 4, 5, 3] is read as [N, 3, 4, 5]"));
            assert_eq!(note, shape == [3, 4, 5], "{:?}", turned.notes());
        }
    }
    let before_there_is_a_network = last().with_channels_first();
    assert_eq!(before_there_is_a_network.samples.shape(), [3, 4, 5]);
    assert_eq!(sample(&before_there_is_a_network, 3), sample(&first(), 3));
    assert_eq!(first().with_channels_first().samples.shape(), [3, 4, 5]);
}

#[test]
fn labels_in_fortran_order() {
    let Some(Labels::Attributes { count: 4, values }) = open_age("fortran_attributes.npz", &age()).unwrap().labels
    else {
        panic!()
    };
    assert_eq!(values, (0..28).map(|i| i % 3 == 0).collect::<Vec<_>>());
}

#[test]
fn floats_up_to_255_are_noticed() {
    let notes = |name: &str, n: Normalisation| {
        Feed::new(open_age(name, &age()).unwrap(), &network(&[3, 4, 5]), n).unwrap().notes().join("")
    };
    let text = notes("floats_255.npz", Normalisation::default());
    assert!(text.starts_with("task age: ") && text.contains("`scale` 0.00392157") && text.contains("`raw`"), "{text}");
    let plain = Normalisation::default();
    for n in [
        Normalisation { raw: true, ..plain.clone() },
        Normalisation { scale: Some(1.0), ..plain.clone() },
        Normalisation { mean: vec![120.0], ..plain.clone() },
    ] {
        assert_eq!(notes("floats_255.npz", n), "");
    }
    assert_eq!(notes("floats.npz", plain.clone()) + &notes("plain.npz", plain), "");
}

#[test]
fn numbers_that_are_none_are_found_when_they_are_read() {
    let feed = Feed::new(open_age("nan.npz", &age()).unwrap(), &network(&[3, 4, 5]), Normalisation::default());
    let feed = feed.unwrap();
    assert!(feed.batch(&[0, 1, 2, 4, 5, 6]).is_ok());
    let error = feed.batch(&[2, 3]).unwrap_err();
    says(&error, "nan.npz", "numpy.isfinite");
    assert!(error.to_string().contains("sample 3 has NaN"), "{error}");
}

/// Four images, two of them no images, and one that is cut off.
fn some_bad_images() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let png = std::fs::read(path("large_images/a/big.png")).unwrap();
    for class in ["cat", "dog"] {
        std::fs::create_dir(folder.path().join(class)).unwrap();
        std::fs::write(folder.path().join(class).join("0.png"), &png).unwrap();
    }
    std::fs::write(folder.path().join("cat/1.png"), &png[..png.len() / 2]).unwrap();
    std::fs::write(folder.path().join("cat/2.jpg"), "no image").unwrap();
    folder
}

#[test]
fn images_that_cannot_be_read_are_refused_or_skipped() {
    let folder = some_bad_images();
    let fitted = OpenOptions { image_fit: ImageFit::Stretch, ..age() };
    let open = |options: &OpenOptions| locate(folder.path()).unwrap().part(Part::Test).open(options);
    let all = Feed::new(open(&fitted).unwrap(), &network(&[3, 4, 5]), Normalisation::default()).unwrap();
    assert_eq!(all.len(), 4);
    for (index, file) in [(1, "1.png"), (2, "2.jpg")] {
        says(&all.batch(&[index]).unwrap_err(), file, "`skip_bad`");
    }
    let good = open(&OpenOptions { skip_bad: true, ..fitted.clone() }).unwrap();
    assert_eq!(good.labels, Some(Labels::Classes(vec![0, 1])));
    assert_eq!(sample(&good, 1), all.batch(&[3]).unwrap().data().iter().map(|x| x * 255.0).collect::<Vec<_>>());
    assert!(good.notes[0].ends_with("2 of 4 images cannot be read and are skipped: 1.png, 2.jpg"), "{:?}", good.notes);
    // Another size is no damage.
    says(&open(&OpenOptions { skip_bad: true, ..age() }).unwrap_err(), "0.png", "`resize`");
    for class in ["cat", "dog"] {
        std::fs::write(folder.path().join(class).join("0.png"), "").unwrap();
    }
    let error = open(&OpenOptions { skip_bad: true, ..fitted }).unwrap_err();
    assert!(error.to_string().contains("none of the 4 images"), "{error}");
}

#[test]
fn decoded_images_are_kept_within_a_budget() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<PathBuf> = (0..20).map(|k| folder.path().join(format!("{k:02}.png"))).collect();
    for (k, file) in files.iter().enumerate() {
        std::fs::copy(path(&format!("photographs/train/{}.png", k % 3)), file).unwrap();
    }
    let feed = |cache: &ImageCache| {
        let options = OpenOptions { cache: cache.clone(), ..age() };
        let dataset = locate(folder.path()).unwrap().part(Part::Test).open(&options).unwrap();
        Feed::new(dataset, &network(&[3, 4, 5]), Normalisation::default()).unwrap()
    };
    let plain = feed(&ImageCache::default());
    let (roomy, tight) = (ImageCache::new(1 << 20), ImageCache::new(5 * 60 + 59));
    let (all, shared, some) = (feed(&roomy), feed(&roomy), feed(&tight));
    // Images of 60 bytes; what is shared counts once.
    assert_eq!([&plain, &all, &shared, &some].map(Feed::cache_bytes), [0, 20 * 60, 0, 359]);
    let expected = plain.batch(&plain.all()).unwrap();
    for feed in [&all, &shared, &some] {
        for _ in 0..2 {
            assert_eq!(feed.batch(&feed.all()).unwrap(), expected);
        }
    }
    // Without the files only what was kept is left.
    files.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let kept = |feed: &Feed| feed.all().into_iter().filter(|&i| feed.batch(&[i]).is_ok()).count();
    assert_eq!([&plain, &all, &shared, &some].map(kept), [0, 20, 20, 5]);
}

/// Tasks with inputs of other sizes keep other pixels of the same files: all of them together stay in the budget.
#[test]
fn sizes_of_one_folder_share_its_budget() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<PathBuf> = (0..6).map(|k| folder.path().join(format!("{k}.png"))).collect();
    for (k, file) in files.iter().enumerate() {
        std::fs::copy(path(&format!("photographs/train/{}.png", k % 3)), file).unwrap();
    }
    let cache = ImageCache::new(6 * 60 + 2 * 15);
    let feeds = [[3, 4, 5], [1, 3, 5], [1, 4, 4]].map(|shape| {
        let options =
            OpenOptions { cache: cache.clone(), image_shape: Some(shape), image_fit: ImageFit::Stretch, ..age() };
        let dataset = locate(folder.path()).unwrap().part(Part::Test).open(&options).unwrap();
        Feed::new(dataset, &network(&shape), Normalisation::default()).unwrap()
    });
    feeds.iter().for_each(|feed| drop(feed.batch(&feed.all()).unwrap()));
    files.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let kept = |feed: &Feed| feed.all().into_iter().filter(|&i| feed.batch(&[i]).is_ok()).count();
    assert_eq!(feeds.each_ref().map(kept), [6, 2, 0]);
    assert_eq!(feeds.each_ref().map(Feed::cache_bytes), [360, 30, 0]);
}

#[test]
fn samples_that_are_all_the_same_are_refused() {
    let feed = |name: &str, part: Part| {
        let dataset = locate(&path(name)).unwrap().part(part).open(&age()).unwrap();
        let shape = dataset.samples.shape().to_vec();
        Feed::new(dataset, &network(&shape), Normalisation::default()).unwrap()
    };
    assert!(feed("plain.npz", Part::Train).check_variety().is_ok());
    let error = feed("same.npz", Part::Train).check_variety().unwrap_err();
    says(&error, "same.npz", "different samples");
    assert!(error.to_string().contains("all samples are the same"), "{error}");
    let error = feed("cifar100", Part::Train).check_variety().unwrap_err();
    assert!(error.to_string().contains("only one sample"), "{error}");
}

#[test]
fn unknown_data_gets_a_list_of_what_is_known() {
    let error = locate(&golden().join("hostile")).unwrap_err();
    assert!(error.to_string().contains("there is no such file"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let hint = locate(folder.path()).unwrap_err().hint_text().unwrap().to_owned();
    for word in [".npz", ".npy", "IDX", "CIFAR", "images", "train/"] {
        assert!(hint.contains(word), "{hint}");
    }
}
