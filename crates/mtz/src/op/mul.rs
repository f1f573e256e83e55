//! `Mul`: a · b.

crate::op::binary::binary_operator!(
    /// a · b, elementwise with broadcasting.
    Mul,
    |a, b| a * b,
    |_, b, _| b,
    |a, _, _| a
);
