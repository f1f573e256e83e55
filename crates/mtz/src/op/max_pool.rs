//! `MaxPool`: the largest number under the window.

use super::axes::{AxisLink, through};
use super::node::{NodeForm, NodeSpec};
use super::pool::{Planes, pool_shape, read_pool, write_windows};
use super::{Gradients, Inputs, Operator, Pass, Shapes, Training};
use crate::error::Result;
use crate::kernel::for_each_run;
use crate::kernel::window::Window;
use crate::tensor::{Shape, ViewMut};
use rayon::prelude::*;

/// The largest number under the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaxPool {
    /// One window per spatial axis.
    pub windows: Vec<Window>,
    /// Whether a last, incomplete place counts.
    pub ceil: bool,
}

/// The first largest of a 2×2 window, and its tap; NaN wins.
fn largest(&[a, b]: &[f32; 2], &[c, d]: &[f32; 2]) -> (f32, f32) {
    let better = |x: f32, than: f32| x > than || x.is_nan();
    let (upper, upper_tap) = if better(b, a) { (b, 1.0) } else { (a, 0.0) };
    let (lower, lower_tap) = if better(d, c) { (d, 3.0) } else { (c, 2.0) };
    if better(lower, upper) { (lower, lower_tap) } else { (upper, upper_tap) }
}

impl Operator for MaxPool {
    const NAME: &'static str = "MaxPool";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        node.ignore(&["storage_order"]); // orders the indices, which nobody may read here
        let (windows, ceil) = read_pool(node)?;
        Ok(Self { windows, ceil })
    }

    fn write(&self, form: &mut NodeForm) {
        write_windows(&self.windows, form);
        form.int("ceil_mode", self.ceil.into());
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        pool_shape(&self.windows, self.ceil, inputs.get(0)?)
    }

    fn forward(&self, inputs: &Inputs, out: ViewMut) {
        let x = inputs.get(0);
        let planes = Planes::new(&self.windows, x.shape, out.shape);
        for_each_run(out.data, planes.out_len(), |i, out| {
            let x = &x.data[i * planes.len()..][..planes.len()];
            if planes.is_two_by_two() {
                return planes.for_each_pair(x, |line, a, b| {
                    out[line].iter_mut().zip(a.as_chunks().0.iter().zip(b.as_chunks().0)).for_each(|(out, (a, b))| {
                        *out = largest(a, b).0;
                    });
                });
            }
            out.fill(f32::NEG_INFINITY);
            planes.for_each_tap(|_, from, step, at| {
                let x = x[from..].iter().step_by(step);
                out[at].iter_mut().zip(x).for_each(|(out, &x)| *out = if x > *out || x.is_nan() { x } else { *out });
            });
        });
    }

    /// The tap of the window each output came from.
    fn saved(&self, _inputs: &[&[usize]], output: &[usize]) -> usize {
        output.iter().product()
    }

    fn forward_training(&self, inputs: &Inputs, out: ViewMut, training: &mut Training) {
        let x = inputs.get(0);
        let planes = Planes::new(&self.windows, x.shape, out.shape);
        if planes.is_two_by_two() {
            let (len, out_len) = (planes.len(), planes.out_len());
            let runs = out.data.par_chunks_mut(out_len).zip(training.saved.par_chunks_mut(out_len))
            .zip(x.data.par_chunks(len));
            return runs.for_each(|((out, taps), x)| {
                planes.for_each_pair(x, |line, a, b| {
                    let places = out[line.clone()].iter_mut().zip(&mut taps[line]);
                    places.zip(a.as_chunks().0.iter().zip(b.as_chunks().0)).for_each(|((out, tap), (a, b))| {
                        (*out, *tap) = largest(a, b);
                    });
                });
            });
        }
        self.forward(inputs, ViewMut { shape: out.shape, data: &mut *out.data });
        let out = &*out.data;
        // The first of equal maxima receives the gradient, as in PyTorch: later taps are looked at first.
        for_each_run(training.saved, planes.out_len(), |i, taps| {
            let x = &x.data[i * planes.len()..][..planes.len()];
            let out = &out[i * planes.out_len()..][..planes.out_len()];
            planes.for_each_tap_backwards(|tap, from, step, at| {
                let x = x[from..].iter().step_by(step);
                let taps = taps[at.clone()].iter_mut().zip(&out[at]).zip(x);
                taps.for_each(|((place, out), x)| *place = if x == out { tap as f32 } else { *place });
            });
        });
    }

    fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
        let Some(gradient) = gradients.get(0) else { return };
        let planes = Planes::new(&self.windows, pass.inputs.get(0).shape, pass.grad.shape);
        let add = gradient.add;
        for_each_run(gradient.data, planes.len(), |i, gradient| {
            if !add {
                gradient.fill(0.0);
            }
            if planes.is_two_by_two() {
                let [taps, grad] = [pass.saved, pass.grad.data].map(|d| &d[i * planes.out_len()..][..planes.out_len()]);
                return planes.for_each_pair_mut(gradient, |line, upper, lower| {
                    let targets = upper.as_chunks_mut().0.iter_mut().zip(lower.as_chunks_mut().0);
                    for (([a, b], [c, d]), (&tap, &g)) in targets.zip(taps[line.clone()].iter().zip(&grad[line])) {
                        *a += if tap == 0.0 { g } else { 0.0 };
                        *b += if tap == 1.0 { g } else { 0.0 };
                        *c += if tap == 2.0 { g } else { 0.0 };
                        *d += if tap == 3.0 { g } else { 0.0 };
                    }
                });
            }
            let [taps, grad] = [pass.saved, pass.grad.data].map(|d| &d[i * planes.out_len()..][..planes.out_len()]);
            planes.for_each_tap(|tap, from, step, at| {
                let targets = gradient[from..].iter_mut().step_by(step).zip(&taps[at.clone()]).zip(&grad[at]);
                targets.for_each(|((target, place), g)| *target += if *place == tap as f32 { *g } else { 0.0 });
            });
        });
    }

    fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        through(0, output.len(), |axis| axis > 1)
    }
}
