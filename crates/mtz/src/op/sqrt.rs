//! `Sqrt`: √x; part of layer normalisation in older exports.

crate::op::unary::unary_operator!(
    /// √x; part of layer normalisation in older exports.
    Sqrt,
    |_: &Self, x: f32| x.sqrt(),
    |_: &Self, _: f32, y: f32| 0.5 / y
);
