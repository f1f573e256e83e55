//! `Add`: a + b.

crate::op::binary::binary_operator!(
    /// a + b, elementwise with broadcasting.
    Add,
    |a, b| a + b
);
