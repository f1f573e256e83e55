//! What the right answers are: a class per sample, or a row of yes-or-no attributes.

use super::Samples;
use super::array::Array;
use crate::error::{Error, Result};

/// The right answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labels {
    /// One class index per sample.
    Classes(Vec<u32>),
    /// `count` attributes per sample, row after row.
    Attributes {
        /// Attributes of one sample.
        count: usize,
        /// All rows.
        values: Vec<bool>,
    },
}

impl Labels {
    /// How many samples they are for.
    pub fn len(&self) -> usize {
        match self {
            Self::Classes(classes) => classes.len(),
            Self::Attributes { count, values } => values.len().checked_div(*count).unwrap_or(0),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Several labels of the same samples as one row of attributes: two classes are one of them, more classes one each.
    pub(super) fn joined(parts: &[Self]) -> Result<Self> {
        /// More would rather be a mistake than attributes.
        const MOST: u32 = 1000;
        let samples = parts.first().map_or(0, Self::len);
        let mut widths = Vec::new();
        for part in parts {
            widths.push(match part {
                Self::Attributes { count, .. } => *count,
                Self::Classes(classes) => match classes.iter().max().copied().unwrap_or(0) {
                    last if last >= MOST => {
                        return Err(Error::data(format!("class {last} cannot become an attribute"))
                            .hint("only labels with few classes can be joined"));
                    }
                    0 | 1 => 1,
                    last => usize::try_from(last).unwrap_or(usize::MAX).saturating_add(1),
                },
            });
        }
        let mut values = Vec::new();
        for sample in 0..samples {
            for (part, &width) in parts.iter().zip(&widths) {
                match part {
                    Self::Attributes { values: all, .. } => {
                        values.extend(all.iter().skip(sample * width).take(width));
                    }
                    Self::Classes(classes) => {
                        let class = classes.get(sample).copied().unwrap_or(0);
                        let first = if width == 1 { 1 } else { 0 };
                        values.extend((first..).take(width).map(|k: u32| k == class));
                    }
                }
            }
        }
        Ok(Self::Attributes { count: widths.iter().sum(), values })
    }

    /// From N class indices, or N×K attributes that are 0 or 1.
    pub(super) fn from_array(array: &Array) -> Result<Self> {
        let shape = array.full_shape();
        let numbers = array.numbers()?;
        match (shape.len(), array.shape()) {
            (1, _) | (2, [1]) if !array.element().is_float() => {
                let class = |x: f64| crate::op::node::to_integer(x).ok().and_then(|x| u32::try_from(x).ok());
                let classes =
                    numbers.iter().map(|&x| class(x).ok_or_else(|| bad("class", x))).collect::<Result<_>>()?;
                Ok(Self::Classes(classes))
            }
            (2, &[count]) if count > 0 => {
                let attribute = |&x: &f64| match x {
                    0.0 => Ok(false),
                    1.0 => Ok(true),
                    _ => Err(bad("attribute", x)),
                };
                Ok(Self::Attributes { count, values: numbers.iter().map(attribute).collect::<Result<_>>()? })
            }
            _ => Err(Error::data(format!("labels of shape {shape:?} and type {:?}", array.element()))
                .hint("labels are N class indices (integers), or N×K attributes that are 0 or 1")),
        }
    }
}

fn bad(what: &str, x: f64) -> Error {
    let hint = if what == "class" { "classes are counted 0, 1, 2, …" } else { "attributes are 0 or 1" };
    Error::data(format!("{x} is not a valid {what}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_labels_become_attributes() {
        let gender = Labels::Classes(vec![1, 0]);
        let race = Labels::Classes(vec![0, 2]);
        let worn = Labels::Attributes { count: 2, values: vec![true, false, false, true] };
        let values = [[true, true, false, false, true, false], [false, false, false, true, false, true]].concat();
        assert_eq!(Labels::joined(&[gender, race, worn]).unwrap(), Labels::Attributes { count: 6, values });
        assert!(Labels::joined(&[Labels::Classes(vec![4_000_000_000])]).is_err());
    }
}
