//! Speed of the kernels, layer by layer: `cargo bench [-- TEXT] [--threads N]`. For each convolution and fully
//! connected layer of the benchmark's networks: GFLOP/s of the forward pass, the input gradient and the weight
//! gradient, and what part that is of the machine's peak, which is measured first.
#![allow(clippy::print_stdout)]

use mtz::error::{Error, Result};
use mtz::graph::Graph;
use mtz::op::{Conv, Gemm, Op, Window};
use mtz::random;
use mtz::tensor::{Dim, Shape, Tensor};
use mtz::train::{Bindings, Parameters, Program};
use std::time::{Duration, Instant};

/// (network, batch, inputs, outputs, side of the image, kernel, stride); side 0: fully connected.
const LAYERS: [(&str, usize, usize, usize, usize, usize, usize); 33] = [
    ("lenet-300-100", 64, 784, 300, 0, 1, 1),
    ("lenet-300-100", 64, 300, 100, 0, 1, 1),
    ("lenet-5", 64, 1, 20, 28, 5, 1),
    ("lenet-5", 64, 20, 50, 12, 5, 1),
    ("lenet-5", 64, 800, 500, 0, 1, 1),
    ("resnet-20", 64, 3, 16, 32, 3, 1),
    ("resnet-20", 64, 16, 16, 32, 3, 1),
    ("resnet-20", 64, 16, 32, 32, 3, 2),
    ("resnet-20", 64, 32, 32, 16, 3, 1),
    ("resnet-20", 64, 32, 64, 16, 3, 2),
    ("resnet-20", 64, 64, 64, 8, 3, 1),
    ("vgg-16@32", 32, 3, 64, 32, 3, 1),
    ("vgg-16@32", 32, 64, 64, 32, 3, 1),
    ("vgg-16@32", 32, 64, 128, 16, 3, 1),
    ("vgg-16@32", 32, 128, 128, 16, 3, 1),
    ("vgg-16@32", 32, 128, 256, 8, 3, 1),
    ("vgg-16@32", 32, 256, 256, 8, 3, 1),
    ("vgg-16@32", 32, 256, 512, 4, 3, 1),
    ("vgg-16@32", 32, 512, 512, 4, 3, 1),
    ("vgg-16@32", 32, 512, 512, 2, 3, 1),
    ("vgg-16@32", 32, 512, 4096, 0, 1, 1),
    ("vgg-16@32", 32, 4096, 4096, 0, 1, 1),
    ("resnet-18@224", 4, 3, 64, 224, 7, 2),
    ("resnet-18@224", 4, 64, 64, 56, 3, 1),
    ("resnet-18@224", 4, 64, 128, 56, 3, 2),
    ("resnet-18@224", 4, 64, 128, 56, 1, 2),
    ("resnet-18@224", 4, 128, 128, 28, 3, 1),
    ("resnet-18@224", 4, 128, 256, 28, 3, 2),
    ("resnet-18@224", 4, 128, 256, 28, 1, 2),
    ("resnet-18@224", 4, 256, 256, 14, 3, 1),
    ("resnet-18@224", 4, 256, 512, 14, 3, 2),
    ("resnet-18@224", 4, 256, 512, 14, 1, 2),
    ("resnet-18@224", 4, 512, 512, 7, 3, 1),
];

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1).filter(|a| a != "--bench");
    let (mut only, mut threads) = (String::new(), 1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--threads" => threads = args.next().and_then(|n| n.parse().ok()).unwrap_or(1),
            _ => only = arg,
        }
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|e| Error::usage(e.to_string()))?.install(|| {
        let peak = peak_gflops() * threads as f64;
        println!("{threads} thread(s), peak {peak:.0} GFLOP/s; ms, GFLOP/s and percent of the peak");
        println!("{:42} {:>22} {:>22} {:>22}", "layer", "forward", "input gradient", "weight gradient");
        for (network, batch, inputs, outputs, side, kernel, stride) in LAYERS {
            let size = if side == 0 { String::new() } else { format!(" @{side}² {kernel}×{kernel}/{stride}") };
            let label = format!("{network} {inputs}→{outputs}{size}");
            if !label.contains(&only) {
                continue;
            }
            let (flops, times) = layer(batch, inputs, outputs, side, kernel, stride)?;
            print!("{label:42}");
            for ms in times {
                let rate = flops / ms / 1e6;
                print!(" {ms:8.2} {rate:6.0} {:5.0} %", 100.0 * rate / peak);
            }
            println!();
        }
        Ok(())
    })
}

/// Multiply-adds per second of a loop that does nothing else, on one core.
fn peak_gflops() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        #[target_feature(enable = "avx2,fma")]
        fn spin(rounds: usize) -> f32 {
            let (a, b) = (_mm256_set1_ps(0.999), _mm256_set1_ps(0.001));
            // Twelve sums that differ, so that the compiler keeps twelve chains: enough to hide the latency.
            let mut sums: [__m256; 12] = std::array::from_fn(|i| _mm256_set1_ps(i as f32));
            for _ in 0..rounds {
                for sum in &mut sums {
                    *sum = _mm256_fmadd_ps(*sum, a, b);
                }
            }
            let sum = sums.into_iter().fold(_mm256_setzero_ps(), |x, y| _mm256_add_ps(x, y));
            _mm256_cvtss_f32(sum)
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            let rounds = 10_000_000;
            let time = || {
                let begin = Instant::now();
                // SAFETY: the instruction sets have just been detected.
                #[allow(unsafe_code)]
                std::hint::black_box(unsafe { spin(std::hint::black_box(rounds)) });
                begin.elapsed().as_secs_f64()
            };
            let best = (0..5).map(|_| time()).fold(f64::INFINITY, f64::min);
            return rounds as f64 * 12.0 * 8.0 * 2.0 / best / 1e9;
        }
    }
    f64::NAN
}

/// Operations, and milliseconds of the three passes.
fn layer(
    batch: usize,
    inputs: usize,
    outputs: usize,
    side: usize,
    kernel: usize,
    stride: usize,
) -> Result<(f64, [f64; 3])> {
    let numbers = |n: usize, seed: u64| (0..n as u64).map(|i| random::normal(seed, i)).collect::<Vec<f32>>();
    let mut graph = Graph::new("layer");
    let before = if side == 12 || side == 28 && inputs == 1 { 0 } else { kernel / 2 };
    let window = Window { size: kernel, stride, dilation: 1, before, after: before };
    let (op, shape, weight) = if side == 0 {
        (Op::from(Gemm { transpose_b: true, ..Gemm::PLAIN }), vec![inputs], vec![outputs, inputs])
    } else {
        let conv = Conv { windows: vec![window; 2], groups: 1 };
        (Op::from(conv), vec![inputs, side, side], vec![outputs, inputs, kernel, kernel])
    };
    let dims = std::iter::once(Dim::Batch(1)).chain(shape.iter().map(|&n| Dim::Fixed(n))).collect();
    let x = graph.add_input("x", Shape::new(dims)?);
    let count = weight.iter().product();
    let w = graph.add_constant("w", Tensor::new(weight, numbers(count, 1))?)?;
    let y = graph.add_node("layer", op, vec![Some(x), Some(w)], "y")?;
    graph.add_output(y);
    let dims: Vec<usize> = std::iter::once(batch).chain(shape).collect();
    let input = Tensor::new(dims.clone(), numbers(dims.iter().product(), 2))?;
    let results = graph[y].shape.at(batch).iter().product::<usize>();
    let flops = 2.0 * results as f64 * count as f64 / outputs as f64;
    let gradient = numbers(results, 3);

    let mut parameters = Parameters::new();
    let bindings = Bindings::of(&graph, &mut parameters);
    let mut weights = Program::new(&graph, bindings, &parameters, batch, false);
    let mut nothing = Parameters::new();
    let mut inputs = Program::new(&graph, Bindings::default(), &nothing, batch, true);
    let input = [input];
    let forward = median(|| weights.forward(&mut parameters, &input, 0))?;
    let weights = median(|| weights.backward(&mut parameters, &[&gradient]))?;
    inputs.forward(&mut nothing, &input, 0)?;
    let inputs = median(|| inputs.backward(&mut nothing, &[&gradient]))?;
    Ok((flops, [forward, inputs, weights]))
}

/// Milliseconds of `f`, the median over half a second.
fn median(mut f: impl FnMut() -> Result<()>) -> Result<f64> {
    f()?;
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < Duration::from_millis(300) || times.len() < 5 {
        let begin = Instant::now();
        f()?;
        times.push(begin.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
