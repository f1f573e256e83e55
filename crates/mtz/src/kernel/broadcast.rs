//! Elementwise operators on two tensors, with numpy's broadcasting.

use super::PIECE;
use crate::tensor::{View, ViewMut, strides};
use rayon::prelude::*;

/// The distance between neighbours of `input` along each axis of `out`, 0 where it is repeated.
pub(crate) fn broadcast_strides(input: &[usize], out: &[usize]) -> Vec<usize> {
    let missing = out.len() - input.len();
    let own = strides(input);
    (0..out.len())
        .map(|axis| if axis < missing || input[axis - missing] == 1 { 0 } else { own[axis - missing] })
        .collect()
}

/// Axes of `shape` that behave as one for both operands, merged; always at least one axis is left.
fn merge_axes(shape: &[usize], a: &[usize], b: &[usize]) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
    let (mut dims, mut sa, mut sb) = (vec![], vec![], vec![]);
    for axis in 0..shape.len() {
        if shape[axis] == 1 {
            continue;
        }
        match (dims.last_mut(), sa.last_mut(), sb.last_mut()) {
            (Some(dim), Some(last_a), Some(last_b))
                if *last_a == a[axis] * shape[axis] && *last_b == b[axis] * shape[axis] =>
            {
                *dim *= shape[axis];
                (*last_a, *last_b) = (a[axis], b[axis]);
            }
            _ => {
                dims.push(shape[axis]);
                sa.push(a[axis]);
                sb.push(b[axis]);
            }
        }
    }
    if dims.is_empty() {
        return (vec![1], vec![0], vec![0]);
    }
    (dims, sa, sb)
}

/// out = f(a, b), both repeated to the shape of `out`.
pub(crate) fn zip(a: View, b: View, out: ViewMut, f: impl Fn(f32, f32) -> f32 + Sync) {
    let (dims, sa, sb) =
        merge_axes(out.shape, &broadcast_strides(a.shape, out.shape), &broadcast_strides(b.shape, out.shape));
    let last = dims.len() - 1;
    let (row, step_a, step_b) = (dims[last], sa[last], sb[last]);
    let run = |start_a: usize, start_b: usize, out: &mut [f32]| match (step_a, step_b) {
        (1, 1) => {
            for ((out, &a), &b) in out.iter_mut().zip(&a.data[start_a..]).zip(&b.data[start_b..]) {
                *out = f(a, b);
            }
        }
        (1, 0) => {
            let b = b.data[start_b];
            for (out, &a) in out.iter_mut().zip(&a.data[start_a..]) {
                *out = f(a, b);
            }
        }
        (0, 1) => {
            let a = a.data[start_a];
            for (out, &b) in out.iter_mut().zip(&b.data[start_b..]) {
                *out = f(a, b);
            }
        }
        _ => {
            for (i, out) in out.iter_mut().enumerate() {
                *out = f(a.data[start_a + i * step_a], b.data[start_b + i * step_b]);
            }
        }
    };
    if last == 0 {
        out.data.par_chunks_mut(PIECE).enumerate().for_each(|(i, piece)| {
            run(i * PIECE * step_a, i * PIECE * step_b, piece);
        });
        return;
    }
    super::for_each_run(out.data, row, |index, out| {
        let (mut rest, mut start_a, mut start_b) = (index, 0, 0);
        for axis in (0..last).rev() {
            let i = rest % dims[axis];
            rest /= dims[axis];
            start_a += i * sa[axis];
            start_b += i * sb[axis];
        }
        run(start_a, start_b, out);
    });
}

/// Where a gradient goes: overwritten, or added to.
pub(crate) struct Target<'a> {
    pub data: &'a mut [f32],
    pub add: bool,
}

/// The gradient of one operand of out = f(a, b): g · ∂f, summed over all places the operand was repeated to. `operand`
/// is its shape, `derivative` a function of (a, b, out).
pub(crate) fn backward(
    a: View,
    b: View,
    out: View,
    grad: &[f32],
    operand: &[usize],
    gradient: Target,
    derivative: impl Fn(f32, f32, f32) -> f32 + Sync,
) {
    if a.shape == out.shape && b.shape == out.shape {
        let pieces = gradient.data.par_chunks_mut(PIECE).zip(grad.par_chunks(PIECE)).enumerate();
        return pieces.for_each(|(i, (target, grad))| {
            let [a, b, out] = [a.data, b.data, out.data].map(|d| &d[i * PIECE..][..target.len()]);
            let values = grad.iter().zip(a.iter().zip(b).zip(out)).map(|(g, ((&a, &b), &y))| g * derivative(a, b, y));
            if gradient.add {
                target.iter_mut().zip(values).for_each(|(target, value)| *target += value);
            } else {
                target.iter_mut().zip(values).for_each(|(target, value)| *target = value);
            }
        });
    }
    let [sa, sb, target] = [a.shape, b.shape, operand].map(|shape| broadcast_strides(shape, out.shape));
    let row = out.shape.last().copied().unwrap_or(1);
    let last = out.shape.len().saturating_sub(1);
    let step = |strides: &[usize]| strides.get(last).copied().unwrap_or(0);
    let (step_a, step_b, step_target) = (step(&sa), step(&sb), step(&target));
    let start = |strides: &[usize], index: usize| {
        let (mut rest, mut start) = (index, 0);
        for axis in (0..last).rev() {
            start += rest % out.shape[axis] * strides[axis];
            rest /= out.shape[axis];
        }
        start
    };
    let value = |index: usize, i: usize, at_a: usize, at_b: usize| {
        let flat = index * row + i;
        grad[flat] * derivative(a.data[at_a + i * step_a], b.data[at_b + i * step_b], out.data[flat])
    };
    if operand == out.shape {
        // Not repeated: every element of the gradient has one term.
        let add = gradient.add;
        super::for_each_run(gradient.data, row, |index, gradient| {
            let (at_a, at_b) = (start(&sa, index), start(&sb, index));
            for (i, gradient) in gradient.iter_mut().enumerate() {
                let value = value(index, i, at_a, at_b);
                *gradient = if add { *gradient + value } else { value };
            }
        });
        return;
    }
    // Repeated operands are small (a bias, a scale): summed in order on one thread.
    if !gradient.add {
        gradient.data.fill(0.0);
    }
    for index in 0..out.data.len() / row.max(1) {
        let (at_a, at_b, at) = (start(&sa, index), start(&sb, index), start(&target, index));
        if step_target == 0 {
            let mut sum = 0.0;
            for i in 0..row {
                sum += value(index, i, at_a, at_b);
            }
            gradient.data[at] += sum;
        } else {
            for i in 0..row {
                gradient.data[at + i] += value(index, i, at_a, at_b);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_axes_keeps_the_definition() {
        let shapes: [(&[usize], &[usize], &[usize]); 6] = [
            (&[2, 3, 4, 5], &[2, 3, 4, 5], &[2, 3, 4, 5]),
            (&[2, 3, 4, 5], &[3, 1, 1], &[2, 3, 4, 5]),
            (&[1, 3, 1, 5], &[2, 1, 4, 1], &[2, 3, 4, 5]),
            (&[5], &[2, 3, 4, 1], &[2, 3, 4, 5]),
            (&[], &[1, 1], &[1, 1]),
            (&[40_000], &[1], &[40_000]),
        ];
        for (a, b, out) in shapes {
            let count = |s: &[usize]| s.iter().product::<usize>();
            let av: Vec<f32> = (0..count(a)).map(|i| i as f32).collect();
            let bv: Vec<f32> = (0..count(b)).map(|i| 1000.0 * i as f32).collect();
            let mut got = vec![0.0; count(out)];
            let (va, vb) = (View { shape: a, data: &av }, View { shape: b, data: &bv });
            zip(va, vb, ViewMut { shape: out, data: &mut got }, |a, b| a + b);
            let (sa, sb) = (broadcast_strides(a, out), broadcast_strides(b, out));
            for (flat, &value) in got.iter().enumerate() {
                let (mut rest, mut ia, mut ib) = (flat, 0, 0);
                for axis in (0..out.len()).rev() {
                    ia += rest % out[axis] * sa[axis];
                    ib += rest % out[axis] * sb[axis];
                    rest /= out[axis];
                }
                assert_eq!(value, av[ia] + bv[ib]);
            }
        }
    }
}
