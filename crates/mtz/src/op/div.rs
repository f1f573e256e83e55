//! `Div`: a / b.

crate::op::binary::binary_operator!(
    /// a / b, elementwise with broadcasting.
    Div,
    |a, b| a / b,
    |_, b, _| 1.0 / b,
    |_, b, y| -y / b
);
