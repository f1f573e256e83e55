//! How the learning rate changes over a training run.

/// The learning rate over the steps of a run, as a factor of the highest rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Always the highest.
    Constant,
    /// Half a cosine down to zero.
    Cosine,
    /// Up in a straight line over the first 30 % of the steps, then half a cosine down to zero (Smith 2018).
    OneCycle,
}

impl Schedule {
    /// The factor at `step` of `total`.
    pub fn factor(self, step: usize, total: usize) -> f32 {
        let done = step as f32 / total.max(1) as f32;
        let cosine = |x: f32| 0.5 * (1.0 + (std::f32::consts::PI * x.clamp(0.0, 1.0)).cos());
        match self {
            Self::Constant => 1.0,
            Self::Cosine => cosine(done),
            Self::OneCycle if done < 0.3 => 0.04 + 0.96 * done / 0.3,
            Self::OneCycle => cosine((done - 0.3) / 0.7),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_start_and_end_where_they_should() {
        assert_eq!(Schedule::Constant.factor(99, 100), 1.0);
        assert_eq!(Schedule::Cosine.factor(0, 100), 1.0);
        assert!(Schedule::Cosine.factor(99, 100) < 0.001);
        assert!(Schedule::OneCycle.factor(0, 100) < 0.05);
        assert!((Schedule::OneCycle.factor(30, 100) - 1.0).abs() < 1e-6);
        assert!(Schedule::OneCycle.factor(99, 100) < 0.001);
    }
}
