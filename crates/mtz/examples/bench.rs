//! Milliseconds of a training step, of inference, or of a matrix kernel, for `tools/bench_vs_torch.py`: `bench WORK
//! ARCH BATCH THREADS SECONDS`, with WORK `train` or `infer`, `gram` (ARCH: inputs, BATCH: samples) or `cholesky`
//! (ARCH: size). Prints the median of all repetitions.

use mtz::architecture::{self, NetworkSpec};
use mtz::error::{Error, Result};
use mtz::linalg::Factor;
use mtz::run::Runner;
use mtz::statistics::Moments;
use mtz::tensor::Tensor;
use mtz::train::{Bindings, Loss, Optimizer, OptimizerKind, Parameters, Program, Target};
use mtz::{random, simplify};
use std::time::{Duration, Instant};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [work, arch, batch, threads, seconds] = args.as_slice() else {
        return Err(Error::usage("bench WORK ARCH BATCH THREADS SECONDS"));
    };
    let number = |text: &String| text.parse::<usize>().map_err(|_| Error::usage(format!("{text} is not a number")));
    let (batch, threads, seconds) = (number(batch)?, number(threads)?, number(seconds)?);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|e| Error::usage(e.to_string()))?;
    if work == "gram" || work == "cholesky" {
        let size = number(arch)?;
        let times =
            pool.install(|| if work == "gram" { gram(batch, size, seconds) } else { cholesky(size, seconds) })?;
        print_median(times);
        return Ok(());
    }
    let (name, side) = arch.split_once('@').unwrap_or((arch, "32"));
    let side: usize = side.parse().map_err(|_| Error::usage("ARCH@SIZE"))?;
    let (channels, side) = if name.starts_with("lenet") { (1, 28) } else { (3, side) };
    let task = NetworkSpec { input: vec![channels, side, side], outputs: 10, mean: vec![], std: vec![] };
    let graph = architecture::build(name, &task, 1.0, 0)?;
    let count = batch * channels * side * side;
    let data = (0..count as u64).map(|i| random::normal(1, i)).collect();
    let input = Tensor::new(vec![batch, channels, side, side], data)?;
    let times = pool.install(|| {
        if work == "train" { train(&graph, input, batch, seconds) } else { infer(&graph, input, seconds) }
    })?;
    print_median(times);
    Ok(())
}

fn print_median(mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or(f64::NAN);
    #[allow(clippy::print_stdout)] // the result, for the script
    {
        println!("{median:.3}");
    }
}

/// Second moments of samples × inputs numbers.
fn gram(samples: usize, inputs: usize, seconds: usize) -> Result<Vec<f64>> {
    let x: Vec<f32> = (0..(samples * inputs) as u64).map(|i| random::normal(1, i)).collect();
    repeat(seconds, || Moments::new(inputs, 0).add(&x, &[]))
}

/// The factorization of a symmetric matrix in f64.
fn cholesky(size: usize, seconds: usize) -> Result<Vec<f64>> {
    let mut a = vec![1.0; size * size];
    (0..size).for_each(|i| a[i * size + i] += size as f64);
    repeat(seconds, || Factor::new(a.clone(), size).map(|_| ()).ok_or_else(|| Error::model("not definite")))
}

/// Repeats `f` for some seconds after warming up; milliseconds of each repetition.
fn repeat(seconds: usize, mut f: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    f()?;
    f()?;
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < Duration::from_secs(seconds as u64) || times.len() < 3 {
        let begin = Instant::now();
        f()?;
        times.push(begin.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(times)
}

fn train(graph: &mtz::graph::Graph, input: Tensor, batch: usize, seconds: usize) -> Result<Vec<f64>> {
    let mut parameters = Parameters::new();
    let bindings = Bindings::of(graph, &mut parameters);
    let mut program = Program::new(graph, bindings, &parameters, batch, false);
    let kind = OptimizerKind::Sgd { momentum: 0.9, nesterov: false };
    let mut optimizer = Optimizer::new(kind, 0.0, &mut parameters);
    let classes: Vec<u32> = (0..batch).map(|i| (i % 10) as u32).collect();
    let mut gradient = vec![0.0; batch * 10];
    let inputs = [input];
    let output = graph.outputs().first().copied().ok_or_else(|| Error::model("no output"))?;
    repeat(seconds, || {
        program.forward(&mut parameters, &inputs, 0)?;
        let scores = program.value(output).data;
        Loss::CrossEntropy.compute(scores, 10, Target::Classes(&classes), &mut gradient);
        parameters.clear_gradients();
        program.backward(&mut parameters, &[&gradient])?;
        optimizer.step(&mut parameters, 1e-4);
        Ok(())
    })
}

fn infer(graph: &mtz::graph::Graph, input: Tensor, seconds: usize) -> Result<Vec<f64>> {
    let graph = simplify::for_inference(graph)?;
    let mut runner = Runner::new(&graph);
    let inputs = [input];
    repeat(seconds, || runner.run(&inputs).map(|_| ()))
}
