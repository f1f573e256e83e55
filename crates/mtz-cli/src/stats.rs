//! `mtz stats`: what the layers of networks see, from all samples or a part of them, as a file.

use crate::args::{Common, Stats};
use crate::outputs;
use crate::progress::Stages;
use crate::samples;
use crate::terminal;
use crate::zip::{OpenedTask, read_models};
use mtz::engine::CpuEngine;
use mtz::error::Result;
use mtz::merge::Recipe;
use mtz::statistics_file::SavedStatistics;
use mtz::zip::{TaskData, ZipOptions, calibrations_of_originals};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

pub fn run(args: &Stats, common: &Common) -> Result<ExitCode> {
    let inputs: Vec<&Path> = args.models.iter().map(|m| m.value.as_path()).collect();
    outputs::check(&args.output, args.force, &inputs)?;
    let joint = read_models(&args.models)?;
    let names: Vec<String> = joint.members.iter().map(|m| m.name.clone()).collect();
    samples::check(&args.data, &names)?;
    let opened = names.iter().zip(&joint.members).map(|(name, m)| OpenedTask::open(&args.data, name, &m.graph));
    let opened: Vec<OpenedTask> = opened.collect::<Result<_>>()?;
    let tasks: Vec<TaskData> = names.iter().zip(&opened).map(|(name, data)| data.task(name)).collect();
    let suited = ZipOptions::suited(Recipe::Best, &joint);
    let options = suited.with(|o| {
        o.fitting.calibration = args.calibration.map_or(o.fitting.calibration, |n| n.get());
        o.fitting.shift = args.shift.unwrap_or(o.fitting.shift);
        o.seed = common.seed;
        o.resources.memory = args.memory;
    });
    let begin = Instant::now();
    let from = calibrations_of_originals(&joint, &tasks, &options, args.part);
    let bar = Stages::new(common.quiet);
    let statistics = SavedStatistics::collect(&joint, &from, &CpuEngine, &mut |now| {
        bar.advance(
            (now.layer as f64, now.layers as f64),
            "statistics",
            &format!("layer {} of {}", now.layer + 1, now.layers),
        );
        ControlFlow::Continue(())
    });
    bar.finish();
    let statistics = statistics?;
    statistics.write(&args.output)?;
    show_result(args, &statistics, begin.elapsed().as_secs_f64(), common);
    Ok(ExitCode::SUCCESS)
}

/// The statistics of some files, added up; nothing if there are none.
pub fn read(files: &[PathBuf], memory: u64) -> Result<Option<SavedStatistics>> {
    let mut sum: Option<SavedStatistics> = None;
    for file in files {
        let part = SavedStatistics::read(file, memory)?;
        match &mut sum {
            Some(sum) => sum.add(&part).map_err(|e| e.in_file(file))?,
            None => sum = Some(part),
        }
    }
    Ok(sum)
}

fn show_result(args: &Stats, statistics: &SavedStatistics, seconds: f64, common: &Common) {
    let bytes = std::fs::metadata(&args.output).map_or(0, |m| m.len());
    if common.json {
        let layer = |l: &mtz::statistics_file::SavedLayer| {
            json!({ "name": l.name, "inputs": l.moments.size(),
        "samples": l.moments.samples() })
        };
        let task = |t: &mtz::statistics_file::SavedTask| {
            (
                t.name.clone(),
                json!({ "network": t.network, "layers": t.layers.iter().map(layer).collect::<Vec<Value>>() }),
            )
        };
        let tasks: serde_json::Map<String, Value> = statistics.tasks.iter().map(task).collect();
        let value = json!({
            "version": 1, "part": { "number": args.part.0 + 1, "of": args.part.1 }, "tasks": tasks, "file_bytes": bytes,
            "seconds": seconds, "output": args.output.display().to_string(),
        });
        return terminal::result(&value.to_string());
    }
    let mut rows = vec![["layer", "task", "inputs", "samples"].map(str::to_owned).to_vec()];
    for (task, layer) in statistics.tasks.iter().flat_map(|t| t.layers.iter().map(move |l| (t, l))) {
        let (inputs, samples) = (layer.moments.size() as u64, layer.moments.samples());
        rows.push(vec![layer.name.clone(), task.name.clone(), terminal::grouped(inputs), terminal::grouped(samples)]);
    }
    terminal::result(&terminal::table(&rows));
    terminal::note(&format!("written to {} ({})", args.output.display(), terminal::bytes(bytes)));
}
