//! Sums in a fixed order: sixteen lanes, so that they vectorise and lose little precision.

/// Σ f(x).
pub(crate) fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0f32; 16];
    let (blocks, rest) = x.as_chunks::<16>();
    for block in blocks {
        for (lane, &x) in lanes.iter_mut().zip(block) {
            *lane += f(x);
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|&x| f(x)).sum::<f32>()
}

/// (Σ f(x, y), Σ g(x, y)).
pub(crate) fn two_sums(x: &[f32], y: &[f32], f: impl Fn(f32, f32) -> f32, g: impl Fn(f32, f32) -> f32) -> (f32, f32) {
    let (mut first, mut second) = ([0f32; 16], [0f32; 16]);
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<16>(), y.as_chunks::<16>());
    for (x, y) in x.iter().zip(y) {
        for i in 0..16 {
            first[i] += f(x[i], y[i]);
            second[i] += g(x[i], y[i]);
        }
    }
    let mut sums = (first.iter().sum::<f32>(), second.iter().sum::<f32>());
    for (&x, &y) in x_rest.iter().zip(y_rest) {
        sums = (sums.0 + f(x, y), sums.1 + g(x, y));
    }
    sums
}

/// The largest number; NaN only if all are.
pub(crate) fn max(x: &[f32]) -> f32 {
    x.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}
