//! What the right answers are: a class per sample, or a row of yes-or-no attributes.

use super::SampleSource;
use super::array::Array;
use crate::error::{Error, Result};
use std::collections::BTreeMap;

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

    /// The labels of the samples with these numbers.
    pub(super) fn of(&self, chosen: &[usize]) -> Self {
        match self {
            Self::Classes(classes) => Self::Classes(chosen.iter().filter_map(|&i| classes.get(i).copied()).collect()),
            Self::Attributes { count, values } => {
                let row = |&i: &usize| values.get(i.saturating_mul(*count)..)?.get(..*count);
                Self::Attributes { count: *count, values: chosen.iter().filter_map(row).flatten().copied().collect() }
            }
        }
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

    /// The class of each row with exactly one 1, if all rows are like that and have at least two attributes.
    pub(super) fn one_hot(&self) -> Option<Vec<u32>> {
        let Self::Attributes { count, values } = self else { return None };
        let class = |row: &[bool]| {
            let mut ones = row.iter().zip(0u32..).filter(|(one, _)| **one).map(|(_, class)| class);
            ones.next().filter(|_| ones.next().is_none())
        };
        if *count < 2 { None } else { values.chunks(*count).map(class).collect() }
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
                .hint("labels are N class indices (y.astype(int)) or names, or N×K attributes that are 0 or 1")),
        }
    }
}

/// Names of classes, as they come sample by sample.
#[derive(Default)]
pub(super) struct Names {
    /// Each name with the order it came in.
    known: BTreeMap<String, u32>,
    samples: Vec<u32>,
}

impl Names {
    /// Takes the name of the next sample; zeros at its end fill it up.
    pub fn add(&mut self, name: String) -> Result<()> {
        /// More are no classes, but a mistake.
        const MOST: usize = 100_000;
        let name = name.trim_end_matches('\0');
        let next = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        let class = match self.known.get(name) {
            Some(&class) => class,
            None if self.known.len() >= MOST => {
                return Err(Error::data(format!("more than {MOST} different names")));
            }
            None => *self.known.entry(name.to_owned()).or_insert(next),
        };
        self.samples.push(class);
        Ok(())
    }

    /// Classes in the order of the names, with the names. Whole numbers that are written as texts are the classes
    /// themselves.
    pub fn labels(self) -> (Labels, Vec<String>) {
        let numbers: Option<Vec<u32>> = self.known.keys().map(|name| name.parse().ok()).collect();
        let mut class_of = vec![0; self.known.len()];
        for (place, &came) in self.known.values().enumerate() {
            let class = numbers.as_ref().and_then(|n| n.get(place).copied());
            if let Some(slot) = usize::try_from(came).ok().and_then(|came| class_of.get_mut(came)) {
                *slot = class.unwrap_or(u32::try_from(place).unwrap_or(u32::MAX));
            }
        }
        let class = |came: u32| usize::try_from(came).ok().and_then(|came| class_of.get(came).copied()).unwrap_or(0);
        let classes = self.samples.iter().map(|&came| class(came)).collect();
        let names = if numbers.is_some() { Vec::new() } else { self.known.into_keys().collect() };
        (Labels::Classes(classes), names)
    }
}

fn bad(what: &str, x: f64) -> Error {
    let hint = if what == "class" { "classes are counted 0, 1, 2, …" } else { "attributes are 0 or 1" };
    Error::data(format!("{x} is not a valid {what}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> (Labels, Vec<String>) {
        let mut all = Names::default();
        names.iter().for_each(|n| all.add((*n).to_owned()).unwrap());
        all.labels()
    }

    #[test]
    fn names_are_classes_in_their_order() {
        let (labels, names) = named(&["dog", "cat\0\0", "emu", "cat"]);
        assert_eq!(labels, Labels::Classes(vec![1, 0, 2, 0]));
        assert_eq!(names, ["cat", "dog", "emu"]);
        // As texts, 10 would stand in front of 2.
        assert_eq!(named(&["2", "10", "0"]), (Labels::Classes(vec![2, 10, 0]), vec![]));
    }

    #[test]
    fn rows_with_one_1_are_classes() {
        let rows =
            |count, values: &[u8]| Labels::Attributes { count, values: values.iter().map(|v| *v == 1).collect() };
        assert_eq!(rows(3, &[0, 1, 0, 0, 0, 1]).one_hot(), Some(vec![1, 2]));
        assert_eq!(rows(3, &[0, 1, 0, 0, 0, 0]).one_hot(), None);
        assert_eq!(rows(3, &[0, 1, 0, 1, 0, 1]).one_hot(), None);
        assert_eq!(rows(1, &[1, 1]).one_hot(), None);
    }

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
