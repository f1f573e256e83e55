//! `Pow`: aᵇ.

crate::op::binary::binary_operator!(
    /// aᵇ, elementwise with broadcasting.
    Pow,
    power,
    |a, b, _| b * power(a, b - 1.0),
    |a, _, y: f32| if y == 0.0 { 0.0 } else { y * a.ln() }
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
