//! Scratch.
#![allow(clippy::print_stdout, clippy::unwrap_used)]
use mtz::data::{self, Feed, Normalisation, OpenOptions, Part};
use mtz::merge::{Matching, Recipe, Share};
use mtz::pipeline::{Aim, Plan, Task, zip};
use std::ops::ControlFlow;
use std::path::Path;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let n = args.iter().position(|a| a == "--").unwrap();
    let models = &args[..n];
    let opt = |name: &str| args[n..].iter().find_map(|a| a.strip_prefix(&format!("{name}=")).map(str::to_owned));
    let num = |name: &str, d: f64| opt(name).map_or(d, |x| x.parse().unwrap());
    let folder = data::locate(Path::new("data/mnist")).unwrap();
    let graphs: Vec<_> = models.iter().map(|m| mtz::onnx::read(Path::new(m)).unwrap().with_open_batch()).collect();
    let feed = |part: Part| Feed::new(folder.part(part).open(&OpenOptions::default()).unwrap(), &graphs[0], Normalisation::default()).unwrap();
    let (train, test) = (feed(Part::Train), feed(Part::Test));
    let start = mtz::plan::Joint::beside(graphs.iter().zip(models).map(|(g, m)| mtz::plan::Joint::single(m.clone(), g.clone()).unwrap()).collect()).unwrap();
    let tasks: Vec<Task> = graphs.iter().zip(models).map(|(_, m)| Task { name: m.clone(), train: &train, samples: None, test: Some((&test, (0..test.len()).collect())), weight: 1.0 }).collect();
    let plan = Plan {
        share: Share::Fraction(num("share", 1.0)), share_of: vec![],
        recipe: if opt("recipe").as_deref() == Some("paper") { Recipe::Paper } else { Recipe::Best },
        matching: match opt("match").as_deref() { Some("greedy") => Matching::Greedy, Some("random") => Matching::Random, _ => Matching::Optimal },
        ridge: num("ridge", 1e-2), calibration: num("cal", 20000.0) as usize, retrain: num("retrain", 0.0) as usize,
        aim: if opt("aim").as_deref() == Some("labels") { Aim::Labels } else { Aim::Distill }, rate: num("lr", 1e-3) as f32, batch_size: num("batch", 64.0) as usize, seed: num("seed", 0.0) as u64, memory: 1 << 33 };
    let t = std::time::Instant::now();
    let z = zip(start, &tasks, &plan, |_| ControlFlow::Continue(())).unwrap();
    println!("before {:?}", z.error_before);
    for l in &z.layers { println!("{} units {:?} shared {} d {:.4} zipped {:?} after {:?} {:.2}s ridge {} {}", l.name, l.units, l.merged.shared, l.merged.distance, l.error_zipped, l.error_after, l.seconds, l.merged.ridge, l.merged.raised); }
    if let Some(o) = opt("out") { let g = mtz::assemble::to_graph(&z.joint, false).unwrap(); mtz::onnx::write(&g, Path::new(&o)).unwrap(); let back = mtz::assemble::from_graph(&mtz::onnx::read(Path::new(&o)).unwrap()).unwrap().unwrap(); println!("read back {:?}", back.parameters()); for (a, b) in z.joint.members.iter().zip(&back.members) { println!("same weights {}", (0..a.layers.len()).all(|l| a.layers[l].read(&a.graph) == b.layers[l].read(&b.graph))); } }
    println!("parameters {} -> {:?} {:.2}s", z.parameters_before, z.joint.parameters(), t.elapsed().as_secs_f64());
}
