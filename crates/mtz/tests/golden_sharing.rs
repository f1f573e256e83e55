//! d and f against a dense implementation nobody here wrote: SciPy's least squares by singular values
//! (tools/golden/sharing.py).
#![allow(clippy::unwrap_used, clippy::panic)]

mod cases;

use cases::golden;
use mtz::data::Archive;
use mtz::merge::{Problem, Targets, distances};
use mtz::statistics::Moments;

struct Side {
    inputs: usize,
    samples: usize,
    moments: Moments,
    x: Vec<f64>,
    w: Vec<f64>,
    scale: f64,
}

fn transposed(a: &[f64], columns: usize) -> Vec<f64> {
    (0..columns).flat_map(|j| a.chunks(columns).map(move |row| row[j])).collect()
}

fn close(name: &str, what: &str, ours: &[f64], theirs: &[f64]) {
    assert_eq!(ours.len(), theirs.len(), "{name}: {what}");
    let scale = theirs.iter().fold(1e-2f64, |m, x| m.max(x.abs()));
    for (a, b) in ours.iter().zip(theirs) {
        assert!((a - b).abs() < 1e-5 * scale, "{name}: {what} {a}, expected {b}");
    }
}

#[test]
fn d_and_f_are_those_of_dense_least_squares() {
    let mut archive = Archive::open(&golden().join("sharing.npz")).unwrap();
    let names = archive.names().to_vec();
    let mut seen = 0;
    for name in names.iter().filter_map(|n| n.strip_suffix("/d")) {
        let mut read = |key: &str| {
            let array = archive.array(&format!("{name}/{key}")).unwrap();
            (array.full_shape(), array.numbers().unwrap())
        };
        let settings = read("settings").1;
        let (alpha, ridge) = (settings[0], settings[1]);
        let mut side = |key: &str, weight: f64| {
            let (shape, x) = read(&format!("x{key}"));
            let (samples, inputs) = (shape[0], shape[1]);
            let new = if ridge > 0.0 { Moments::of_rows } else { Moments::new };
            let mut moments = new(inputs, 0);
            moments.add(&x.iter().map(|x| *x as f32).collect::<Vec<_>>(), &[]).unwrap();
            let scale = weight / samples as f64;
            Side { inputs, samples, moments, x, w: read(&format!("w{key}")).1, scale }
        };
        let (a, b) = (side("a", alpha), side("b", 1.0 - alpha));
        let size = a.inputs + 1;
        let place: Vec<Option<usize>> = (0..size).map(Some).collect();
        let alone = |side: &Side| {
            let mut problem = Problem::new(size, 0, ridge > 0.0);
            problem.add(&side.moments, side.scale, &place, Targets::Outputs(&[])).unwrap();
            problem
        };
        let (d, _) = distances(&alone(&a), &alone(&b), &a.w, &b.w, ridge).unwrap();
        close(name, "d", &d, &read("d").1);

        let pairs = (a.w.len() / size).min(b.w.len() / size);
        let mut problem = Problem::new(size, pairs, ridge > 0.0);
        let mut prior = vec![0.0; size * pairs];
        for side in [&a, &b] {
            let w = transposed(&side.w[..pairs * size], size);
            problem.add(&side.moments, side.scale, &place, Targets::Weights(&w)).unwrap();
            prior.iter_mut().zip(&w).for_each(|(p, w)| *p += 0.5 * w);
        }
        let shared = problem.solve(&prior, ridge.max(1e-10)).unwrap().x;
        let mut answers = Vec::new();
        for side in [&a, &b] {
            for sample in 0..side.samples {
                let x = side.x[sample * side.inputs..][..side.inputs].iter().copied().chain([1.0]);
                let x: Vec<f64> = x.map(|x| x * side.scale.sqrt()).collect();
                answers.extend(
                    (0..pairs).map(|u| x.iter().enumerate().map(|(k, x)| x * shared[k * pairs + u]).sum::<f64>()),
                );
            }
        }
        close(name, "answers", &answers, &read("answers").1);
        seen += 1;
    }
    assert_eq!(seen, 7);
}
