//! `Tanh`: The hyperbolic tangent.

crate::op::unary::unary_operator!(
    /// The hyperbolic tangent.
    Tanh,
    |_: &Self, x: f32| x.tanh()
);
