//! `Sub`: a − b.

crate::op::binary::binary_operator!(
    /// a − b, elementwise with broadcasting.
    Sub,
    |a, b| a - b,
    |_, _, _| 1.0,
    |_, _, _| -1.0
);
