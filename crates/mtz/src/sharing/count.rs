//! How much is shared: the number of units to share, and the number of parameters that remain.

use serde::{Deserialize, Serialize};

/// How many units of a layer to share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// As many as the smaller network has.
    All,
    /// This share of the smaller network's.
    Fraction(f64),
    /// So many.
    Count(usize),
    /// Pairs whose distance d is below this.
    Below(f64),
}

impl Share {
    /// How many of the smaller network's units that is, at most.
    pub fn count(self, smaller: usize) -> usize {
        match self {
            Self::All | Self::Below(_) => smaller,
            Self::Fraction(f) => ((smaller as f64 * f).round() as usize).min(smaller),
            Self::Count(n) => n.min(smaller),
        }
    }
}
