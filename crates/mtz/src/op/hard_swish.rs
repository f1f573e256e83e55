//! `HardSwish`: x · clamp(x/6 + 1/2, 0, 1).

crate::op::unary::unary_operator!(
    /// x · clamp(x/6 + 1/2, 0, 1).
    HardSwish,
    |_: &Self, x: f32| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)
);
