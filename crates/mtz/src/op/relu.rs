//! `Relu`: max(x, 0).

crate::op::unary::unary_operator!(
    /// max(x, 0).
    Relu,
    |_: &Self, x: f32| if x < 0.0 { 0.0 } else { x },
    |_: &Self, _: f32, y: f32| if y > 0.0 { 1.0 } else { 0.0 }
);
