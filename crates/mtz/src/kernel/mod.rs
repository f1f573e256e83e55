//! The loops behind the operators. They know slices and sizes, not graphs.
//!
//! Work is cut into pieces whose size depends on the shapes alone and never on the number of threads, and each
//! piece is summed in a fixed order: results are the same bits for any thread count. Beside two places, in
//! `statistics::gram` and `onnx::mapped`, this is the only module with `unsafe`.

pub(crate) mod broadcast;
pub(crate) mod conv;
pub(crate) mod disjoint;
pub(crate) mod gemm;
pub(crate) mod reduce;
pub(crate) mod scratch;
pub(crate) mod simd;
pub(crate) mod transpose;
pub(crate) mod window;

use rayon::prelude::*;

/// Elements per piece of elementwise work: large enough to hide the scheduling, small enough to stay in cache.
const PIECE: usize = 16 * 1024;

/// out[i] = f(x[i]).
pub(crate) fn map(x: &[f32], out: &mut [f32], f: impl Fn(f32) -> f32 + Sync) {
    out.par_chunks_mut(PIECE).zip(x.par_chunks(PIECE)).for_each(|(out, x)| {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = f(x);
        }
    });
}

/// out[i] = f(x[i]), or out[i] += f(x[i]).
pub(crate) fn map_into(x: &[f32], out: &mut [f32], add: bool, f: impl Fn(f32) -> f32 + Sync) {
    if !add {
        return map(x, out, f);
    }
    out.par_chunks_mut(PIECE).zip(x.par_chunks(PIECE)).for_each(|(out, x)| {
        for (out, &x) in out.iter_mut().zip(x) {
            *out += f(x);
        }
    });
}

/// out[i] = f(a[i], b[i], c[i]), or +=.
pub(crate) fn map3_into(
    a: &[f32],
    b: &[f32],
    c: &[f32],
    out: &mut [f32],
    add: bool,
    f: impl Fn(f32, f32, f32) -> f32 + Sync,
) {
    let pieces = out.par_chunks_mut(PIECE).zip(a.par_chunks(PIECE)).zip(b.par_chunks(PIECE)).zip(c.par_chunks(PIECE));
    pieces.for_each(|(((out, a), b), c)| {
        let values = a.iter().zip(b).zip(c).map(|((&a, &b), &c)| f(a, b, c));
        if add {
            out.iter_mut().zip(values).for_each(|(out, value)| *out += value);
        } else {
            out.iter_mut().zip(values).for_each(|(out, value)| *out = value);
        }
    });
}

/// out[index] = f(x[Σ index · stride]) over all indices below `shape`, or +=.
pub(crate) fn read_strided(
    x: &[f32],
    shape: &[usize],
    strides: &[usize],
    out: &mut [f32],
    add: bool,
    f: impl Fn(f32) -> f32 + Sync,
) {
    let Some((&step, front)) = strides.split_last() else { return map_into(x, out, add, f) };
    for_each_run(out, shape[front.len()], |index, run| {
        let (mut rest, mut start) = (index, 0);
        for (axis, stride) in front.iter().enumerate().rev() {
            start += rest % shape[axis] * stride;
            rest /= shape[axis];
        }
        for (i, out) in run.iter_mut().enumerate() {
            let value = f(x[start + i * step]);
            *out = if add { *out + value } else { value };
        }
    });
}

/// Calls `f(index, piece)` on each run of `len` elements of `out`, in parallel.
pub(crate) fn for_each_run(out: &mut [f32], len: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    // Runs may be tiny (one number per pooled plane): several go into one piece.
    let runs = (PIECE / len.max(1)).max(1);
    out.par_chunks_mut(runs * len.max(1)).enumerate().for_each(|(piece, out)| {
        for (i, run) in out.chunks_mut(len.max(1)).enumerate() {
            f(piece * runs + i, run);
        }
    });
}
