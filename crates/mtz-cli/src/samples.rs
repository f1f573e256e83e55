//! From `--data` and its companions to samples a network can be fed with.

use crate::args::{Data, Numbers, Resize};
use crate::show;
use crate::tasks::{check_names, value_for};
use mtz::data::{Dataset, Feed, ImageFit, Location, Normalisation, OpenOptions, Part, Parts, locate};
use mtz::error::{Error, Result};
use mtz::graph::Graph;

/// Samples ready to be fed, and which part of the data they are: `train`, `test`, or `all` if it is not divided.
pub struct Prepared {
    pub feed: Feed,
    pub part: &'static str,
}

/// The samples of a task for learning or for reporting errors on, checked against the network.
pub fn open(args: &Data, task: &str, graph: &Graph, part: Part) -> Result<Prepared> {
    let (location, name) = locate_part(args, task, part)?;
    let dataset = open_location(args, task, &location, image_shape(graph))?;
    Ok(Prepared { feed: Feed::new(dataset, graph, normalisation(args, task)?)?, part: name })
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
    check_names("mean", tasks, &args.mean)?;
    check_names("std", tasks, &args.std)
}

/// The samples alone, before there is a network.
pub fn dataset(args: &Data, task: &str, image_shape: Option<[usize; 3]>, part: Part) -> Result<Dataset> {
    open_location(args, task, &locate_part(args, task, part)?.0, image_shape)
}

fn locate_part(args: &Data, task: &str, part: Part) -> Result<(Location, &'static str)> {
    let path = value_for("data", task, &args.data)?.ok_or_else(|| {
        Error::usage(format!("there is no data for task {task:?}")).hint("--data PATH, or --data TASK=PATH")
    })?;
    let own = value_for("test", task, &args.test)?.filter(|_| part == Part::Test);
    let parts = locate(own.unwrap_or(path))?;
    let name = match (&parts, part) {
        (_, Part::Train) => "train",
        (Parts::Whole(_), Part::Test) if own.is_none() => "all",
        (_, Part::Test) => "test",
    };
    Ok((parts.part(part).clone(), name))
}

fn open_location(args: &Data, task: &str, location: &Location, image_shape: Option<[usize; 3]>) -> Result<Dataset> {
    if args.resize.is_some() && !matches!(location, Location::ClassFolders(_)) {
        show::warning("--resize only applies to folders of images");
    }
    location.open(&OpenOptions {
        label: value_for("label", task, &args.label)?.cloned(),
        classes: value_for("classes", task, &args.classes)?.cloned(),
        image_shape,
        image_fit: match args.resize {
            None => ImageFit::Exact,
            Some(Resize::Crop) => ImageFit::Crop,
            Some(Resize::Stretch) => ImageFit::Stretch,
        },
    })
}

/// What the flags say about scaling.
pub fn normalisation(args: &Data, task: &str) -> Result<Normalisation> {
    let numbers = |flag, list| Ok(value_for(flag, task, list)?.map_or_else(Vec::new, |n: &Numbers| n.0.clone()));
    Ok(Normalisation {
        scale: args.scale,
        raw: args.raw,
        mean: numbers("mean", &args.mean)?,
        std: numbers("std", &args.std)?,
    })
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
