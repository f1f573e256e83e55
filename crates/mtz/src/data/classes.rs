//! Some classes of a dataset only, as if it had no others.

use super::{Dataset, Labels, SampleSource};
use crate::error::{Error, Result};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A range of classes, written `0-4` or `7`. What is the first of them becomes class 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes(RangeInclusive<u32>);

impl std::fmt::Display for Classes {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}-{}", self.0.start(), self.0.end())
    }
}

impl FromStr for Classes {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let number = |part: &str| part.trim().parse::<u32>().map_err(|_| format!("{text:?} is no range like 0-4"));
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = number(first)?..=number(last)?;
        if range.is_empty() { Err(format!("{text:?} ends before it begins")) } else { Ok(Self(range)) }
    }
}

/// Some of the samples.
pub(super) struct Chosen {
    all: Box<dyn SampleSource>,
    chosen: Vec<usize>,
}

impl Chosen {
    /// A dataset of the samples with these numbers.
    pub fn of(dataset: Dataset, chosen: Vec<usize>) -> Dataset {
        let labels = dataset.labels.map(|labels| labels.of(&chosen));
        Dataset { samples: Box::new(Self { all: dataset.samples, chosen }), labels, ..dataset }
    }
}

impl SampleSource for Chosen {
    fn len(&self) -> usize {
        self.chosen.len()
    }

    fn shape(&self) -> &[usize] {
        self.all.shape()
    }

    fn is_bytes(&self) -> bool {
        self.all.is_bytes()
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<()> {
        let index = self.chosen.get(index).ok_or_else(|| Error::data(format!("there is no sample {index}")))?;
        self.all.read(*index, out)
    }

    fn cache_bytes(&self) -> u64 {
        self.all.cache_bytes()
    }
}

impl Classes {
    /// The samples of these classes.
    pub(super) fn of(&self, dataset: Dataset) -> Result<Dataset> {
        let Some(Labels::Classes(labels)) = &dataset.labels else {
            return Err(Error::usage("`classes` needs data with a class for each sample"));
        };
        let wanted = labels.iter().enumerate().filter(|(_, class)| self.0.contains(class));
        let chosen: Vec<usize> = wanted.map(|(i, _)| i).collect();
        if chosen.is_empty() {
            let last = labels.iter().max().copied().unwrap_or(0);
            return Err(Error::usage(format!("no sample has a class of {}-{}", self.0.start(), self.0.end()))
                .hint(format!("the data has classes 0-{last}")));
        }
        // Classes are counted from the first that is wanted, whatever there is beside it.
        let mut dataset = Dataset { other_part: None, ..Chosen::of(dataset, chosen) };
        if let Some(Labels::Classes(classes)) = &mut dataset.labels {
            classes.iter_mut().for_each(|class| *class -= self.0.start());
        }
        let names = (0u32..).zip(&dataset.class_names).filter(|(class, _)| self.0.contains(class));
        dataset.class_names = names.map(|(_, name)| name.clone()).collect();
        Ok(dataset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!("0-4".parse(), Ok(Classes(0..=4)));
        assert_eq!("7".parse(), Ok(Classes(7..=7)));
        assert!("4-0".parse::<Classes>().is_err() && "a-b".parse::<Classes>().is_err());
    }
}
