//! `mtz eval`

use crate::args::{Common, Eval};
use crate::samples::{self, Prepared};
use crate::show;
use mtz::data::Part;
use mtz::error::{Error, Result};
use mtz::evaluate::{Options, evaluate};
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
    let Prepared { feed, part } = samples::open(&args.data, &task, &graph, Part::Test)?;
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
