//! From `--data` and its companions to samples a network can be fed with.

use crate::args::{Command, Common, Data, Resize};
use crate::tasks::{Named, check_names, is_named, value_for};
use crate::terminal;
use crate::values::Numbers;
use mtz::data::{
    Dataset, Feed, ImageCache, ImageFit, LabelChoice, Location, Normalisation, OneHot, OpenOptions, Origin, Part,
    Parts, locate,
};
use mtz::error::{Error, Result};
use mtz::evaluate::{Answer, Ending, Evidence, Kind};
use mtz::graph::Graph;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// What all data of a run has in common.
#[derive(Debug, Default)]
pub struct Opened {
    quiet: AtomicBool,
    /// Bytes that decoded images may take.
    memory: AtomicU64,
    cache: OnceLock<ImageCache>,
    /// What the caller says that answers are.
    kinds: Mutex<Vec<Named<Kind>>>,
    /// Notes that were shown: several tasks, or both parts, may read the same data.
    shown: Mutex<BTreeSet<String>>,
}

/// Tells the data what the command allows. Without this nothing is kept of decoded images.
pub fn prepare(command: &Command, common: &Common) {
    /// The part of the memory that decoded images may take.
    const PART: u64 = 4;
    let (data, memory) = match command {
        Command::Zip(args) => (&args.data, args.memory),
        Command::Prune(args) => (&args.data, args.memory),
        Command::Stats(args) => (&args.data, args.memory),
        Command::Train(args) => (&args.data, args.memory),
        // Every sample is read once.
        Command::Eval(args) => (&args.data, 0),
        _ => return,
    };
    let kinds = match command {
        Command::Zip(args) => args.kind.clone(),
        Command::Eval(args) => args.kind.map(|value| Named { task: None, value }).into_iter().collect(),
        _ => Vec::new(),
    };
    *data.opened.kinds.lock().unwrap_or_else(PoisonError::into_inner) = kinds;
    data.opened.quiet.store(common.quiet, Ordering::Relaxed);
    data.opened.memory.store(memory / PART, Ordering::Relaxed);
}

/// Samples ready to be fed, and which part of the data they are: `train`, `test`, or `all` if it is not divided.
pub struct Prepared {
    pub feed: Feed,
    pub part: &'static str,
}

/// The samples of a task for learning or for reporting errors on, checked against the network.
pub fn open(args: &Data, task: &str, graph: &Graph, part: Part) -> Result<Prepared> {
    open_as(args, task, graph, part, normalisation(args, task)?)
}

/// The same, prepared in another way than the flags say.
pub fn open_as(args: &Data, task: &str, graph: &Graph, part: Part, normalisation: Normalisation) -> Result<Prepared> {
    let (location, name) = locate_part(args, task, part)?;
    let dataset = open_location(args, task, (&location, part), image_shape(graph))?;
    let mut feed = Feed::new(dataset, graph, normalisation)?;
    feed.fit_labels(graph, one_hot(args, task, graph)?)?;
    if part == Part::Train {
        feed.check_variety()?;
    }
    tell(args, feed.notes());
    Ok(Prepared { feed, part: name })
}

/// What rows with a single 1 are: `--kind attributes` and `--label a+b` ask for attributes, and a network that ends in
/// sigmoids answers them.
fn one_hot(args: &Data, task: &str, graph: &Graph) -> Result<OneHot> {
    let kinds = args.opened.kinds.lock().unwrap_or_else(PoisonError::into_inner);
    match value_for("kind", task, &kinds)? {
        Some(Kind::Attributes) => return Ok(OneHot::Attributes),
        Some(Kind::Classes) => return Ok(OneHot::Classes),
        _ => {}
    }
    if value_for("label", task, &args.label)?.is_some_and(|label| label.contains('+')) {
        return Ok(OneHot::Attributes);
    }
    let answer = graph.outputs().first().map(|&output| Answer::of(&Ending::of(graph, output), None, None, &[]));
    let yes_or_no = answer.is_some_and(|a| a.evidence == Evidence::LastOperator && a.kind == Kind::Attributes);
    Ok(if yes_or_no { OneHot::ClassesUnlessTheyFit } else { OneHot::Classes })
}

/// Shows what was found out about data, once.
fn tell(args: &Data, notes: &[String]) {
    let mut shown = args.opened.shown.lock().unwrap_or_else(PoisonError::into_inner);
    for note in notes {
        if shown.insert(note.clone()) && !args.opened.quiet.load(Ordering::Relaxed) {
            terminal::note(&format!("note: {note}"));
        }
    }
}

/// Keeps decoded images; the memory for them is shared out evenly among the folders.
fn cache(args: &Data) -> ImageCache {
    let is_images = |location: &Location| matches!(location, Location::ClassFolders(_) | Location::Images(_));
    let open = || {
        let paths: BTreeSet<&PathBuf> = args.data.iter().chain(&args.test).map(|named| &named.value).collect();
        let parts = paths.iter().filter_map(|path| locate(path).ok());
        let folders = parts.map(|parts| match &parts {
            Parts::Whole(all) => u64::from(is_images(all)),
            Parts::Split { train, test } => u64::from(is_images(train)) + u64::from(is_images(test)),
        });
        ImageCache::new(args.opened.memory.load(Ordering::Relaxed) / folders.sum::<u64>().max(1))
    };
    args.opened.cache.get_or_init(open).clone()
}

/// Whether there is a part to report errors on: in the data itself, or named by `--test`.
pub fn has_test(args: &Data, task: &str) -> Result<bool> {
    Ok(locate_part(args, task, Part::Test)?.1 != "all")
}

/// Refuses data for tasks that are not there, before any work begins.
pub fn check(args: &Data, tasks: &[String]) -> Result<()> {
    check_names("data", tasks, &args.data)?;
    check_names("test", tasks, &args.test)?;
    check_names("label", tasks, &args.label)?;
    check_names("classes", tasks, &args.classes)?;
    check_names("scale", tasks, &args.scale)?;
    check_names("raw", tasks, &args.raw)?;
    check_names("mean", tasks, &args.mean)?;
    check_names("std", tasks, &args.std)
}

/// The samples alone, before there is a network.
pub fn dataset(args: &Data, task: &str, image_shape: Option<[usize; 3]>, part: Part) -> Result<Dataset> {
    let dataset = open_location(args, task, (&locate_part(args, task, part)?.0, part), image_shape)?;
    let mut dataset = dataset.with_channels_first();
    if !value_for("label", task, &args.label)?.is_some_and(|label| label.contains('+')) {
        dataset.take_one_hot_as_classes();
    }
    tell(args, &dataset.notes);
    Ok(dataset)
}

fn locate_part(args: &Data, task: &str, part: Part) -> Result<(Location, &'static str)> {
    let path = value_for("data", task, &args.data)?.ok_or_else(|| {
        Error::usage(format!("there is no data for task {task:?}")).hint("--data PATH, or --data TASK=PATH")
    })?;
    let own = value_for("test", task, &args.test)?.filter(|_| part == Part::Test);
    let path = own.unwrap_or(path);
    let parts = locate(path).map_err(|e| origin(task, path).error(e))?;
    let name = match (&parts, part) {
        (_, Part::Train) => "train",
        (Parts::Whole(_), Part::Test) if own.is_none() => "all",
        (_, Part::Test) => "test",
    };
    Ok((parts.part(part).clone(), name))
}

fn origin(task: &str, path: &Path) -> Origin {
    Origin { task: Some(task.to_owned()), path: Some(path.to_owned()) }
}

fn open_location(
    args: &Data,
    task: &str,
    (location, part): (&Location, Part),
    image_shape: Option<[usize; 3]>,
) -> Result<Dataset> {
    let folders = |location: &Location| matches!(location, Location::ClassFolders(_) | Location::Images(_));
    // Flags speak of all data: some of it may be a folder.
    let any =
        args.data.iter().chain(&args.test).filter_map(|named| locate(&named.value).ok()).any(|parts| match &parts {
            Parts::Whole(all) => folders(all),
            Parts::Split { train, test } => folders(train) || folders(test),
        });
    if !any {
        for (flag, _) in [("--resize", args.resize.is_some()), ("--skip-bad", args.skip_bad)].iter().filter(|f| f.1) {
            terminal::warning(&format!("{flag} only applies to folders of images"));
        }
    }
    location.open(&OpenOptions {
        task: Some(task.to_owned()),
        label: value_for("label", task, &args.label)?.map_or(LabelChoice::Usual, |l| LabelChoice::from(l.as_str())),
        other_part: locate_part(args, task, part.other()).ok().map(|found| found.0).filter(|other| other != location),
        classes: value_for("classes", task, &args.classes)?.cloned(),
        image_shape,
        image_fit: match args.resize {
            None => ImageFit::Exact,
            Some(Resize::Crop) => ImageFit::Crop,
            Some(Resize::Stretch) => ImageFit::Stretch,
        },
        skip_bad: args.skip_bad,
        cache: cache(args),
    })
}

/// What the flags say about scaling.
pub fn normalisation(args: &Data, task: &str) -> Result<Normalisation> {
    let numbers = |flag, list| Ok(value_for(flag, task, list)?.map_or_else(Vec::new, |n: &Numbers| n.0.clone()));
    let (mut scale, mut raw) =
        (value_for("scale", task, &args.scale)?.copied(), value_for("raw", task, &args.raw)?.is_some());
    if scale.is_some() && raw {
        // What names the task wins here, too.
        match (is_named(task, &args.scale), is_named(task, &args.raw)) {
            (true, false) => raw = false,
            (false, true) => scale = None,
            _ => {
                return Err(Error::usage(format!("task {task}: --raw leaves samples as they are, --scale does not"))
                    .hint("use one of them; --raw=TASK and --scale TASK=X are for one task"));
            }
        }
    }
    Ok(Normalisation { scale, raw, mean: numbers("mean", &args.mean)?, std: numbers("std", &args.std)? })
}

/// Mean and standard deviation of each channel after scaling, over the first thousand samples.
pub fn statistics(dataset: &Dataset, n: &Normalisation) -> Result<(Vec<f32>, Vec<f32>)> {
    let shape = dataset.samples.shape();
    let channels = if shape.len() == 3 { shape.first().copied().unwrap_or(1) } else { 1 };
    let size: usize = shape.iter().product();
    let scale = f64::from(n.scale.unwrap_or(if dataset.samples.is_bytes() && !n.raw { 1.0 / 255.0 } else { 1.0 }));
    let mut sums = vec![(0.0f64, 0.0f64); channels];
    let mut sample = vec![0.0; size];
    let count = dataset.samples.len().min(1000);
    for i in 0..count {
        dataset.samples.read(i, &mut sample)?;
        for (sums, plane) in sums.iter_mut().zip(sample.chunks((size / channels).max(1))) {
            for &x in plane {
                let x = f64::from(x) * scale;
                *sums = (sums.0 + x, sums.1 + x * x);
            }
        }
    }
    let total = (count * size / channels).max(1) as f64;
    let mean = sums.iter().map(|s| (s.0 / total) as f32).collect();
    // A channel that never changes is left as it is.
    let deviation = |s: &(f64, f64)| (s.1 / total - (s.0 / total).powi(2)).max(0.0).sqrt();
    let std = sums.iter().map(deviation).map(|d| if d < 1e-6 { 1.0 } else { d as f32 }).collect();
    Ok((mean, std))
}

/// Channels, height and width of a network that takes images, in either order of axes.
fn image_shape(graph: &Graph) -> Option<[usize; 3]> {
    let input = graph.inputs().first()?;
    let dims: Vec<usize> = graph[*input].shape.dims().iter().skip(1).filter_map(|d| d.fixed()).collect();
    match *dims.as_slice() {
        [c, h, w] if c == 1 || c == 3 => Some([c, h, w]),
        [h, w, c] if c == 1 || c == 3 => Some([c, h, w]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::as_flags;
    use clap::Parser;
    use mtz::architecture::{self, NetworkSpec};
    use mtz::data::Labels;

    /// The data of a zip with these flags; `DATA/` stands for the folder of golden data.
    fn data(flags: &str) -> Data {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../mtz/tests/golden/data/");
        let flags = flags.replace("DATA/", golden);
        let arguments = ["mtz", "zip", "age=age.onnx", "sex=sex.onnx", "-o", "joint.onnx"];
        let cli = crate::args::Cli::try_parse_from(arguments.into_iter().chain(flags.split(' '))).unwrap();
        prepare(&cli.command, &cli.common);
        match cli.command {
            Command::Zip(zip) => zip.data,
            _ => unreachable!(),
        }
    }

    /// A network for images of 3×4×5.
    fn network(outputs: usize) -> Graph {
        let task = NetworkSpec { input: vec![3, 4, 5], outputs, mean: vec![], std: vec![] };
        architecture::build("lenet-300-100", &task, 0.02, 0).unwrap()
    }

    fn fails(flags: &str, outputs: usize) -> (String, String) {
        let error = open(&data(flags), "age", &network(outputs), Part::Train).err().unwrap();
        let hint = as_flags(error.hint_text().unwrap_or_default()).into_owned();
        (as_flags(&error.to_string()).into_owned(), hint)
    }

    #[test]
    fn errors_name_task_and_file_and_what_to_type() {
        for (flags, file, hint) in [
            ("--data DATA/ages.npz", "ages.npz: array \"age\"", "--label age=none"),
            ("--data DATA/plain.npz", "plain.npz: labels go up to 3", "--label age=none"),
            ("--data DATA/attributes.npz", "attributes.npz: the labels are 4 attributes", "--label age=none"),
            ("--data DATA/same.npz --label none", "same.npz: all samples are the same", "different samples"),
            ("--data DATA/idx", "but the data has [N, 1, 4, 5]", "channels"),
            ("--data nowhere.npz", "nowhere.npz", "spelling"),
        ] {
            let (error, help) = fails(flags, 3);
            assert!(error.starts_with("task age: ") && error.contains(file), "{flags}: {error}");
            assert!(help.contains(hint), "{flags}: {help}");
        }
    }

    #[test]
    fn labels_are_left_out_or_understood() {
        let labels = |flags: &str| {
            let prepared = open(&data(flags), "age", &network(4), Part::Train).unwrap();
            prepared.feed.labels().cloned()
        };
        for flags in ["--data DATA/ages.npz --label age=none", "--data DATA/negative.npz --label none"] {
            assert_eq!(labels(flags), None);
        }
        assert_eq!(labels("--data DATA/photographs"), None);
        assert_eq!(labels("--data DATA/one_hot.npz"), Some(Labels::Classes(vec![3, 0, 1, 1, 2, 0, 3])));
        assert_eq!(labels("--data DATA/from_one.npz"), Some(Labels::Classes(vec![0, 1, 2, 3, 3, 1, 0])));
        assert_eq!(labels("--data DATA/names.npz"), Some(Labels::Classes(vec![2, 0, 1, 0, 1, 3, 0])));
    }

    #[test]
    fn a_network_of_sigmoids_keeps_rows_of_attributes() {
        let mut graph = network(4);
        let output = graph.outputs()[0];
        let end = graph.add_node("end", mtz::op::Sigmoid, vec![Some(output)], "end").unwrap();
        let graph = graph.with_outputs(vec![end]);
        let args = data("--data DATA/one_hot.npz");
        let prepared = open(&args, "age", &graph, Part::Train).unwrap();
        assert!(matches!(prepared.feed.labels(), Some(Labels::Attributes { count: 4, .. })));
    }

    #[test]
    fn samples_are_scaled_task_by_task() {
        let of = |flags: &str, task: &str| {
            let n = normalisation(&data(&format!("--data DATA/plain.npz {flags}")), task);
            n.map(|n| (n.raw, n.scale)).map_err(|e| e.to_string())
        };
        assert_eq!([of("--raw=age", "age"), of("--raw=age", "sex")], [Ok((true, None)), Ok((false, None))]);
        assert_eq!([of("--raw", "age"), of("--raw", "sex")], [Ok((true, None)), Ok((true, None))]);
        assert_eq!(of("--scale age=2 --scale 3", "age"), Ok((false, Some(2.0))));
        assert_eq!(of("--scale age=2 --raw", "age"), Ok((false, Some(2.0))));
        assert_eq!(of("--scale 2 --raw=age", "age"), Ok((true, None)));
        assert!(of("--scale 2 --raw", "age").unwrap_err().contains("--raw"));
        assert!(check(&data("--data x --raw=cat"), &["age".into()]).is_err());
    }

    #[test]
    fn folders_share_the_memory_for_images() {
        // A quarter of the memory, for two parts; three images of 60 bytes are less.
        let args = data("--data DATA/photographs --memory 1M");
        let (train, again) =
            (open(&args, "age", &network(2), Part::Train), open(&args, "sex", &network(2), Part::Train));
        assert_eq!([train.unwrap(), again.unwrap()].map(|p| p.feed.cache_bytes()), [180, 0]);
        let args = data("--data DATA/photographs --memory 1K");
        assert_eq!(open(&args, "age", &network(2), Part::Train).unwrap().feed.cache_bytes(), 128);
        assert_eq!(args.opened.shown.lock().unwrap().len(), 0);
    }
}
