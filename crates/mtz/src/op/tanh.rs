//! `Tanh`: The hyperbolic tangent.

crate::op::unary::unary_operator!(
    /// The hyperbolic tangent.
    Tanh,
    |_: &Self, x: f32| x.tanh(),
    |_: &Self, _: f32, y: f32| 1.0 - y * y
);
