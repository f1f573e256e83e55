//! Whether labels fit what a network answers, and what they mean where they could mean several things.

use super::{Dataset, Labels};
use crate::error::{Error, Result};
use crate::graph::Graph;
use std::collections::BTreeSet;

/// What rows with exactly one 1 each are taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneHot {
    /// Classes.
    Classes,
    /// Classes, unless the network has as many outputs: each of them answers a question of its own.
    ClassesUnlessTheyFit,
    /// Attributes, because someone said so.
    Attributes,
}

impl Dataset {
    /// Takes rows with exactly one 1 each for classes, and says so.
    pub fn take_one_hot_as_classes(&mut self) {
        let Some(labels @ Labels::Attributes { count, .. }) = &self.labels else { return };
        let count = *count;
        // One row that is none speaks for attributes, in whichever part it stands.
        let other_part = match &self.other_part {
            Some(other @ Labels::Attributes { count: others, .. }) if *others == count => other.one_hot().is_none(),
            _ => false,
        };
        if let Some(classes) = labels.one_hot().filter(|_| !other_part) {
            self.labels = Some(Labels::Classes(classes));
            self.note(&format!("every row of the labels has a single 1: they are taken as {count} classes"));
        }
    }

    /// Whether the labels of this part alone could be taken for something else than those of both parts: rows of
    /// attributes, names, and classes without a 0.
    pub(super) fn labels_need_the_other_part(&self) -> bool {
        match &self.labels {
            None => false,
            Some(Labels::Attributes { .. }) => true,
            Some(Labels::Classes(classes)) => !self.class_names.is_empty() || !classes.contains(&0),
        }
    }

    /// Numbers the classes as both parts together have them: by the names of both, where they have names. Remembers the
    /// other labels.
    pub(super) fn number_classes_with(&mut self, mut other: Self) {
        let named = |part: &Self| !part.class_names.is_empty();
        if named(self) && named(&other) && self.class_names != other.class_names {
            let all: BTreeSet<&String> = self.class_names.iter().chain(&other.class_names).collect();
            let all: Vec<String> = all.into_iter().cloned().collect();
            for part in [&mut *self, &mut other] {
                part.rename_classes(&all);
            }
        }
        self.other_part = other.labels;
    }

    /// Gives each class the number of its name in `all`, which is sorted.
    fn rename_classes(&mut self, all: &[String]) {
        let number = |name: &String| all.binary_search(name).ok().and_then(|place| u32::try_from(place).ok());
        let numbers: Vec<Option<u32>> = self.class_names.iter().map(number).collect();
        if let Some(Labels::Classes(classes)) = &mut self.labels {
            for class in classes {
                let new = usize::try_from(*class).ok().and_then(|class| numbers.get(class).copied().flatten());
                *class = new.unwrap_or(*class);
            }
        }
        self.class_names = all.to_vec();
    }

    /// Brings the labels into the form the network's first output needs, and refuses those that cannot fit it.
    pub fn fit_labels(&mut self, graph: &Graph, one_hot: OneHot) -> Result<()> {
        if self.labels.is_none() {
            return Ok(());
        }
        self.fitted(graph, one_hot).map_err(|e| self.origin.error(self.origin.label_error(e)))
    }

    fn fitted(&mut self, graph: &Graph, one_hot: OneHot) -> Result<()> {
        let (name, outputs) = outputs(graph)?;
        let rows_fit = matches!(&self.labels, Some(Labels::Attributes { count, .. }) if *count == outputs);
        match one_hot {
            OneHot::Classes => self.take_one_hot_as_classes(),
            OneHot::ClassesUnlessTheyFit if !rows_fit => self.take_one_hot_as_classes(),
            _ => {}
        }
        // A single output tells two classes apart.
        let classes = u32::try_from(outputs.max(2)).unwrap_or(u32::MAX);
        match &mut self.labels {
            Some(Labels::Classes(labels)) => {
                let other_part = match &self.other_part {
                    Some(Labels::Classes(other_part)) => other_part.as_slice(),
                    _ => &[],
                };
                let highest = labels.iter().max().copied().unwrap_or(0);
                let from_one = labels.iter().chain(other_part).min().is_some_and(|least| *least >= 1);
                if from_one && labels.iter().chain(other_part).max() == Some(&classes) {
                    labels.iter_mut().for_each(|label| *label -= 1);
                    self.note(&format!("labels are counted from 1 to {classes}: read as 0 to {}", classes - 1));
                } else if highest >= classes {
                    return Err(Error::data(format!(
                        "labels go up to {highest}, but output {name} has {outputs} classes"
                    ))
                    .hint("is this the data the model was trained for?"));
                } else if from_one && highest > 1 && self.class_names.is_empty() {
                    self.note(&format!("no label is 0: labels are taken as counted from 0, up to {}", classes - 1));
                }
                let names = self.class_names.len();
                if names > 0 && u32::try_from(names) != Ok(classes) {
                    let shown = self.class_names.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
                    self.note(&format!(
                        "the data names {names} classes ({shown}, …), output {name} has {classes}: \
                         names are numbered in their order"
                    ));
                }
                Ok(())
            }
            Some(Labels::Attributes { count, .. }) if *count != outputs => Err(Error::data(format!(
                "the labels are {count} attributes for each sample, but output {name} has {outputs}"
            ))
            .hint("`label` NAME chooses another array of the file")),
            _ => Ok(()),
        }
    }
}

/// The name of the first output, and how many numbers it has for a sample. Labels are made for one row of them.
fn outputs(graph: &Graph) -> Result<(String, usize)> {
    let output = graph.outputs().first().and_then(|id| Some((*id, graph.values().get(id.index())?)));
    let (id, value) = output.ok_or_else(|| Error::model("the network has no output"))?;
    let name = format!("{:?}", value.name);
    match graph.row_of_scores(id) {
        Some(outputs) => Ok((name, outputs)),
        None => Err(Error::data(format!(
            "the labels are for one row of scores per sample, but output {name} is {}",
            value.shape
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of which only the labels matter.
    struct Nothing;

    impl crate::data::SampleSource for Nothing {
        fn len(&self) -> usize {
            2
        }

        fn shape(&self) -> &[usize] {
            &[1]
        }

        fn is_bytes(&self) -> bool {
            true
        }

        fn read(&self, _: usize, _: &mut [f32]) -> Result<()> {
            Ok(())
        }
    }

    /// A test part in which every row happens to have one 1 is of attributes if the training part is.
    #[test]
    fn rows_are_taken_alike_in_both_parts() {
        let rows = |values: [bool; 4]| Labels::Attributes { count: 2, values: values.to_vec() };
        let (one_hot, others) = (rows([true, false, false, true]), rows([true, true, false, true]));
        for (other_part, taken) in [(None, true), (Some(one_hot.clone()), true), (Some(others), false)] {
            let mut part = Dataset { other_part, ..Dataset::new(Box::new(Nothing), Some(one_hot.clone())) };
            part.take_one_hot_as_classes();
            assert_eq!(part.labels == Some(Labels::Classes(vec![0, 1])), taken);
        }
    }
}
