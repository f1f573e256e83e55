//! `mtz eval`

use crate::args::{Common, Data, Eval, Resize};
use crate::show;
use crate::tasks::value_for;
use mtz::data::{Feed, ImageFit, Location, Normalisation, OpenOptions, Part, Parts, locate};
use mtz::error::{Error, Result};
use mtz::evaluate::{Options, evaluate};
use mtz::graph::Graph;
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;

pub fn run(args: &Eval, common: &Common) -> Result<ExitCode> {
    let task = args.model.name();
    if let Some(asked) = args.task.as_ref().filter(|t| **t != task) {
        return Err(Error::usage(format!("there is no task {asked:?}")).hint(format!("the model's task is {task:?}")));
    }
    let graph = mtz::onnx::read(&args.model.value)?.with_open_batch();
    let graph = mtz::simplify::for_inference(&graph)?;
    let (feed, part) = open(&args.data, &task, &graph)?;
    let bar = show::progress(feed.len(), common.quiet, "samples");
    let options = Options { batch_size: args.batch_size.get(), memory: args.memory };
    let start = Instant::now();
    let result = evaluate(&graph, &feed, options, |done| bar.set_position(done as u64))?;
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let rate = result.samples as f64 / seconds.max(1e-9);
    if common.json {
        show::result(
            &json!({
                "task": task, "error": result.error, "loss": result.loss, "samples": result.samples,
                "seconds": seconds, "images_per_second": rate, "part": part,
            })
            .to_string(),
        );
    } else {
        let head = ["task", "error %", "loss", "samples", "images/s"].map(str::to_owned).to_vec();
        let row = vec![
            task,
            format!("{:.2}", result.error),
            format!("{:.4}", result.loss),
            format!("{} {part}", result.samples),
            format!("{rate:.0}"),
        ];
        show::result(&show::table(&[head, row]));
    }
    Ok(ExitCode::SUCCESS)
}

/// The samples of a task that errors are reported on, and which part of the data they are.
fn open(args: &Data, task: &str, graph: &Graph) -> Result<(Feed, &'static str)> {
    let path = value_for("data", task, &args.data)?.ok_or_else(|| {
        Error::usage(format!("there is no data for task {task:?}")).hint("--data PATH, or --data TASK=PATH")
    })?;
    let own = value_for("test", task, &args.test)?;
    let parts = locate(own.unwrap_or(path))?;
    let part = match parts {
        Parts::Whole(_) if own.is_none() => "all",
        _ => "test",
    };
    let options = OpenOptions {
        label: value_for("label", task, &args.label)?.cloned(),
        image_shape: image_shape(graph),
        image_fit: match args.resize {
            None => ImageFit::Exact,
            Some(Resize::Crop) => ImageFit::Crop,
            Some(Resize::Stretch) => ImageFit::Stretch,
        },
    };
    let location = parts.part(Part::Test);
    if args.resize.is_some() && !matches!(location, Location::ClassFolders(_)) {
        show::note("warning: --resize only applies to folders of images");
    }
    let numbers =
        |flag, list| Ok(value_for(flag, task, list)?.map_or_else(Vec::new, |n: &crate::args::Numbers| n.0.clone()));
    let normalisation = Normalisation {
        scale: args.scale,
        raw: args.raw,
        mean: numbers("mean", &args.mean)?,
        std: numbers("std", &args.std)?,
    };
    let dataset = location.open(&options)?;
    Ok((Feed::new(dataset, graph, normalisation)?, part))
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
