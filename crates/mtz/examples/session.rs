//! Merges one layer at a time and looks at each: `cargo run --release --example session -- A.onnx B.onnx DATA`
#![allow(clippy::print_stdout)]

use mtz::data::{Feed, Normalisation, OpenOptions, Part, locate};
use mtz::merge::Recipe;
use mtz::sharing::Joint;
use mtz::zip::{Session, TaskData};
use mtz::{Error, Network, Result, ZipOptions};
use std::ops::ControlFlow;
use std::path::Path;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [first, second, data] = arguments.as_slice() else {
        return Err(Error::usage("A.onnx B.onnx DATA are needed"));
    };
    // Each network is a joint model of one task; next to each other they share nothing yet.
    let single = |name: &str, path: &str| Joint::single(name.into(), Network::open(path)?.graph().clone());
    let start = Joint::from_networks(vec![single("first", first)?, single("second", second)?])?;
    let parts = locate(Path::new(data))?;
    let feed = |task: usize, part| {
        Feed::new(parts.part(part).open(&OpenOptions::default())?, &start.members[task].graph, Normalisation::default())
    };
    let feeds = [(feed(0, Part::Train)?, feed(0, Part::Test)?), (feed(1, Part::Train)?, feed(1, Part::Test)?)];
    let tasks =
        [TaskData::whole("first", &feeds[0].0, &feeds[0].1), TaskData::whole("second", &feeds[1].0, &feeds[1].1)];
    let mut progress = |_| ControlFlow::Continue(());
    let options = ZipOptions::suited(Recipe::Best, &start);
    let mut session = Session::new(start, &tasks, &options)?;
    while let Some(layer) = session.next_layer(&mut progress)? {
        println!("{}: {} units shared, Σ d = {:.3}", layer.name, layer.merged.shared, layer.merged.distance);
        println!("  parameters now: {}", session.joint().parameters().0);
    }
    let zipped = session.finish(&mut progress)?;
    println!("{} iterations of retraining", zipped.iterations);
    Ok(())
}
