//! `Erf`: the error function; part of Gelu in older exports.

crate::op::unary::unary_operator!(
    /// 2/√π ∫₀ˣ e^(−t²) dt.
    Erf,
    |_: &Self, x: f32| libm::erff(x),
    |_: &Self, x: f32, _: f32| std::f32::consts::FRAC_2_SQRT_PI * (-x * x).exp()
);
