//! `Sigmoid`: 1 / (1 + e⁻ˣ).

crate::op::unary::unary_operator!(
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    |_: &Self, x: f32| 1.0 / (1.0 + (-x).exp()),
    |_: &Self, _: f32, y: f32| y * (1.0 - y)
);
