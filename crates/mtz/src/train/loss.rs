//! What training makes smaller, and its gradient with respect to a network's output.

use crate::kernel::reduce;

/// What the output should be.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// One class per sample.
    Classes(&'a [u32]),
    /// Yes or no for each number.
    Attributes(&'a [bool]),
    /// Numbers: the output of a teacher, or the truth.
    Numbers(&'a [f32]),
}

/// How far the output is from the target, as a mean over the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss<'a> {
    /// `−log softmax(x)[class]`; the output is logits.
    CrossEntropy,
    /// Binary cross-entropy of each number, which is a logit; mean over the attributes.
    BinaryCrossEntropy,
    /// Σ (x − t)² / Σ t² over the batch: how far answers are off, whatever their scale.
    RelativeSquares,
    /// Σ_k p_k (x_k − t_k)² over the numbers of a sample, mean over them: `precision` holds p, one for each number.
    /// With p_k = 1 / var(t_k) every number counts in units of its own deviation, whatever its scale.
    WeightedSquares {
        /// p.
        precision: &'a [f32],
    },
    /// T² · KL(softmax(t/T) ‖ softmax(x/T)): imitate a teacher's logits, softened by the temperature (Hinton et al.
    /// 2015).
    Distillation {
        /// T.
        temperature: f32,
    },
    /// The same for answers that are yes or no each, where softmax(x/T) would make them compete: T² · KL(σ(t/T) ‖
    /// σ(x/T)), mean over the attributes.
    BinaryDistillation {
        /// T.
        temperature: f32,
    },
}

/// A mean square that counts as nothing.
const SILENT: f32 = 1e-8;

impl Loss<'_> {
    /// The loss of a batch of rows of `width` numbers; `gradient` receives its derivative. Samples are summed in order.
    pub fn compute(self, output: &[f32], width: usize, target: Target, gradient: &mut [f32]) -> f64 {
        let rows = output.len() / width.max(1);
        let scale = 1.0 / rows.max(1) as f32;
        let mut total = 0.0;
        // Where the other is all but silent, relative squares would be without bounds.
        let energy = match (self, target) {
            (Self::RelativeSquares, Target::Numbers(t)) => reduce::sum(t, |t| t * t).max(SILENT * t.len() as f32),
            _ => 1.0,
        };
        for (i, (x, g)) in output.chunks(width).zip(gradient.chunks_mut(width)).enumerate() {
            total += match (self, target) {
                (Self::CrossEntropy, Target::Classes(classes)) => {
                    let class = classes[i] as usize;
                    let log = log_softmax(x, 1.0, g);
                    let loss = -(x[class] - log);
                    g.iter_mut().for_each(|p| *p *= scale);
                    g[class] -= scale;
                    f64::from(loss)
                }
                (Self::Distillation { temperature }, Target::Numbers(t)) => {
                    distill(x, &t[i * width..][..width], temperature, scale, g)
                }
                (Self::BinaryCrossEntropy, Target::Attributes(truth)) => {
                    let mut sum = 0.0;
                    for ((x, g), &t) in x.iter().zip(g.iter_mut()).zip(&truth[i * width..]) {
                        let t = f32::from(u8::from(t));
                        sum += f64::from(binary_cross_entropy(*x, t));
                        *g = (sigmoid(*x) - t) * scale / width as f32;
                    }
                    sum / width as f64
                }
                (Self::BinaryDistillation { temperature }, Target::Numbers(t)) => {
                    let mut sum = 0.0;
                    for ((x, g), t) in x.iter().zip(g.iter_mut()).zip(&t[i * width..]) {
                        let (x, t) = (x / temperature, t / temperature);
                        let q = sigmoid(t);
                        // KL(q ‖ p) is the cross-entropy of p without that of q itself.
                        sum += f64::from(binary_cross_entropy(x, q) - binary_cross_entropy(t, q));
                        *g = (sigmoid(x) - q) * temperature * scale / width as f32;
                    }
                    sum * f64::from(temperature * temperature) / width as f64
                }
                (Self::WeightedSquares { precision }, Target::Numbers(t)) => {
                    let mut sum = 0.0;
                    for (((x, g), t), p) in x.iter().zip(g.iter_mut()).zip(&t[i * width..]).zip(precision) {
                        sum += f64::from(p * (x - t) * (x - t));
                        *g = 2.0 * p * (x - t) * scale / width as f32;
                    }
                    sum / width as f64
                }
                (_, Target::Numbers(t)) => {
                    let mut sum = 0.0;
                    for ((x, g), t) in x.iter().zip(g.iter_mut()).zip(&t[i * width..]) {
                        sum += f64::from((x - t) * (x - t));
                        *g = 2.0 * (x - t) / energy;
                    }
                    sum * rows as f64 / f64::from(energy)
                }
                // A target of another kind than the loss: nothing to learn from.
                _ => {
                    g.fill(0.0);
                    0.0
                }
            };
        }
        total / rows.max(1) as f64
    }
}

/// Numbers of `shape` with the axis moved to the end: rows along it, position by position.
pub(super) fn rows_along(numbers: &[f32], shape: &[usize], axis: usize) -> Vec<f32> {
    let (width, inner) = block(shape, axis);
    let blocks = numbers.chunks_exact(width * inner);
    blocks.flat_map(|b| (0..inner).flat_map(move |i| (0..width).map(move |k| b[k * inner + i]))).collect()
}

/// The way back from [`rows_along`].
pub(super) fn from_rows_along(rows: &[f32], shape: &[usize], axis: usize, numbers: &mut [f32]) {
    let (width, inner) = block(shape, axis);
    for (rows, block) in rows.chunks_exact(width * inner).zip(numbers.chunks_exact_mut(width * inner)) {
        for (i, row) in rows.chunks_exact(width).enumerate() {
            row.iter().enumerate().for_each(|(k, x)| block[k * inner + i] = *x);
        }
    }
}

/// The length of an axis, and numbers of one step along it.
fn block(shape: &[usize], axis: usize) -> (usize, usize) {
    (shape.get(axis).copied().unwrap_or(1).max(1), shape.iter().skip(axis + 1).product::<usize>().max(1))
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// −t log σ(x) − (1 − t) log(1 − σ(x)), without overflow.
fn binary_cross_entropy(x: f32, t: f32) -> f32 {
    x.max(0.0) - x * t + (-x.abs()).exp().ln_1p()
}

/// Writes softmax(x / T) and returns log Σ e^(x/T).
fn log_softmax(x: &[f32], temperature: f32, softmax: &mut [f32]) -> f32 {
    let largest = reduce::max(x) / temperature;
    for (p, x) in softmax.iter_mut().zip(x) {
        *p = (x / temperature - largest).exp();
    }
    let sum = reduce::sum(softmax, |p| p);
    softmax.iter_mut().for_each(|p| *p /= sum);
    largest + sum.ln()
}

/// T² Σ q (log q − log p) with q = softmax(t/T), p = softmax(x/T); its gradient is T (p − q).
fn distill(x: &[f32], t: &[f32], temperature: f32, scale: f32, g: &mut [f32]) -> f64 {
    let log_p = log_softmax(x, temperature, g);
    let largest = reduce::max(t) / temperature;
    let sum: f32 = t.iter().map(|t| (t / temperature - largest).exp()).sum();
    let log_q = largest + sum.ln();
    let mut loss = 0.0;
    for ((x, t), g) in x.iter().zip(t).zip(g.iter_mut()) {
        let (lp, lq) = (x / temperature - log_p, t / temperature - log_q);
        let q = lq.exp();
        loss += f64::from(q * (lq - lp));
        *g = (*g - q) * temperature * scale;
    }
    loss * f64::from(temperature * temperature)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every loss against central differences.
    #[test]
    fn gradients_are_the_derivatives() {
        let x: Vec<f32> = (0..12).map(|i| ((i * 7) % 5) as f32 - 1.7).collect();
        let numbers: Vec<f32> = (0..12).map(|i| ((i * 3) % 7) as f32 * 0.5 - 1.0).collect();
        let attributes: Vec<bool> = (0..12).map(|i| i % 3 == 0).collect();
        let classes = [2, 0, 3];
        for (loss, target) in [
            (Loss::CrossEntropy, Target::Classes(&classes)),
            (Loss::BinaryCrossEntropy, Target::Attributes(&attributes)),
            (Loss::RelativeSquares, Target::Numbers(&numbers)),
            (Loss::WeightedSquares { precision: &[0.5, 2.0, 1.0, 0.1] }, Target::Numbers(&numbers)),
            (Loss::Distillation { temperature: 1.0 }, Target::Numbers(&numbers)),
            (Loss::Distillation { temperature: 4.0 }, Target::Numbers(&numbers)),
            (Loss::BinaryDistillation { temperature: 1.0 }, Target::Numbers(&numbers)),
            (Loss::BinaryDistillation { temperature: 4.0 }, Target::Numbers(&numbers)),
        ] {
            let mut g = vec![0.0; 12];
            let value = |x: &[f32]| loss.compute(x, 4, target, &mut [0.0; 12]);
            assert!(loss.compute(&x, 4, target, &mut g) >= 0.0);
            for i in 0..12 {
                let step = |d: f32| {
                    let mut y = x.clone();
                    y[i] += d;
                    value(&y)
                };
                let numeric = (step(0.01) - step(-0.01)) / 0.02;
                assert!((numeric - f64::from(g[i])).abs() < 1e-3, "{loss:?} {i}: {numeric} {}", g[i]);
            }
        }
    }

    #[test]
    fn rows_stand_along_any_axis() {
        let numbers: Vec<f32> = (0..24u8).map(f32::from).collect();
        let shape = [2, 3, 4];
        let rows = rows_along(&numbers, &shape, 1);
        assert_eq!(rows[..6], [0.0, 4.0, 8.0, 1.0, 5.0, 9.0]);
        let mut back = vec![0.0; 24];
        from_rows_along(&rows, &shape, 1, &mut back);
        assert_eq!(back, numbers);
        assert_eq!(rows_along(&numbers, &shape, 2), numbers);
    }

    #[test]
    fn imitating_perfectly_costs_nothing() {
        let x = [1.0, -2.0, 0.5];
        for loss in [Loss::Distillation { temperature: 3.0 }, Loss::BinaryDistillation { temperature: 3.0 }] {
            let mut g = [1.0; 3];
            assert!(loss.compute(&x, 3, Target::Numbers(&x), &mut g).abs() < 1e-6);
            assert!(g.iter().all(|g| g.abs() < 1e-6));
        }
    }

    /// A single number has nothing to compete with: only as yes or no does it teach anything.
    #[test]
    fn one_output_is_imitated_as_yes_or_no() {
        let mut g = [0.0];
        let loss = Loss::BinaryDistillation { temperature: 2.0 };
        assert!(loss.compute(&[1.0], 1, Target::Numbers(&[-1.0]), &mut g) > 0.1 && g[0] > 0.1);
        let softmax = Loss::Distillation { temperature: 2.0 };
        assert!(softmax.compute(&[1.0], 1, Target::Numbers(&[-1.0]), &mut g).abs() < 1e-6);
    }
}
