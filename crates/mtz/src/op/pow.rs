//! `Pow`: aᵇ.

crate::op::binary::binary_operator!(
    /// aᵇ, elementwise with broadcasting.
    Pow,
    power
);

/// aᵇ; squares and roots, which normalisation layers use, exactly.
fn power(a: f32, b: f32) -> f32 {
    if b == 2.0 {
        a * a
    } else if b == 0.5 {
        a.sqrt()
    } else {
        a.powf(b)
    }
}
