//! Steps along the gradient.

use super::parameters::Parameters;
use rayon::prelude::*;

/// The rule of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptimizerKind {
    /// v ← μ v + g, then w ← w − η v; with Nesterov's look ahead, w ← w − η (g + μ v).
    Sgd {
        /// μ.
        momentum: f32,
        /// Look ahead.
        nesterov: bool,
    },
    /// Adam (Kingma and Ba 2015); with `decoupled` weight decay, AdamW (Loshchilov and Hutter 2019).
    Adam {
        /// Decay of the mean of gradients.
        beta1: f32,
        /// Decay of the mean of squared gradients.
        beta2: f32,
        /// Decay the weights themselves instead of adding to the gradient.
        decoupled: bool,
    },
}

/// An optimizer with its memory of past gradients.
#[derive(Clone, Debug)]
pub struct Optimizer {
    kind: OptimizerKind,
    weight_decay: f32,
    /// For each parameter: velocities (SGD), or first and second moments (Adam).
    memory: Vec<[Vec<f32>; 2]>,
    steps: i32,
}

const PIECE: usize = 16 * 1024;
const EPSILON: f32 = 1e-8;

impl Optimizer {
    /// An optimizer for these parameters.
    pub fn new(kind: OptimizerKind, weight_decay: f32, parameters: &mut Parameters) -> Self {
        let memory = parameters.iter_mut().map(|p| {
            let second = matches!(kind, OptimizerKind::Adam { .. });
            let n = if p.trainable { p.data.len() } else { 0 };
            [vec![0.0; n], vec![0.0; if second { n } else { 0 }]]
        });
        Self { kind, weight_decay, memory: memory.collect(), steps: 0 }
    }

    /// What it remembers.
    pub(super) fn memory_mut(&mut self) -> impl Iterator<Item = &mut Vec<f32>> {
        self.memory.iter_mut().flatten()
    }

    /// So many steps were done.
    pub(super) fn set_steps(&mut self, steps: usize) {
        self.steps = i32::try_from(steps).unwrap_or(i32::MAX);
    }

    /// One step with the present gradients. Masked numbers stay exactly zero.
    pub fn step(&mut self, parameters: &mut Parameters, rate: f32) {
        self.steps = self.steps.saturating_add(1);
        let steps = self.steps;
        let kind = self.kind;
        for (parameter, [first, second]) in parameters.iter_mut().zip(&mut self.memory) {
            if !parameter.trainable {
                continue;
            }
            let decay = if parameter.decay { self.weight_decay } else { 0.0 };
            let pieces = parameter
                .data
                .par_chunks_mut(PIECE)
                .zip(parameter.grad.par_chunks(PIECE))
                .zip(first.par_chunks_mut(PIECE));
            match kind {
                OptimizerKind::Sgd { momentum, nesterov } => pieces.for_each(|((data, grad), velocity)| {
                    for ((w, g), v) in data.iter_mut().zip(grad).zip(velocity) {
                        let g = g + decay * *w;
                        *v = momentum * *v + g;
                        *w -= rate * if nesterov { g + momentum * *v } else { *v };
                    }
                }),
                OptimizerKind::Adam { beta1, beta2, decoupled } => {
                    let (c1, c2) = (1.0 - beta1.powi(steps), 1.0 - beta2.powi(steps));
                    pieces.zip(second.par_chunks_mut(PIECE)).for_each(|(((data, grad), first), second)| {
                        for (((w, g), m), v) in data.iter_mut().zip(grad).zip(first).zip(second) {
                            let g = if decoupled { *g } else { g + decay * *w };
                            *m = beta1 * *m + (1.0 - beta1) * g;
                            *v = beta2 * *v + (1.0 - beta2) * g * g;
                            if decoupled {
                                *w -= rate * decay * *w;
                            }
                            *w -= rate * (*m / c1) / ((*v / c2).sqrt() + EPSILON);
                        }
                    });
                }
            }
            if let Some(mask) = &parameter.mask {
                parameter.data.par_chunks_mut(PIECE).zip(mask.par_chunks(PIECE)).for_each(|(data, mask)| {
                    data.iter_mut().zip(mask).for_each(|(w, m)| *w = if *m == 0.0 { 0.0 } else { *w });
                });
            }
        }
    }
}
