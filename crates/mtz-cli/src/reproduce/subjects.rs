//! What networks are trained for: data by name, as it lies in `--data-dir`.

use super::Context;
use crate::bundled;
use mtz::data::{Classes, Dataset, LabelChoice, OpenOptions, Part, Parts, locate};
use mtz::error::{Error, Result};

/// A task to train for.
pub struct Subject {
    pub name: &'static str,
    /// The folder, or what the two .npz files begin with.
    source: &'static str,
    /// The label array, where there are several.
    label: Option<&'static str>,
    /// Some classes only.
    classes: Option<&'static str>,
    /// Whether an image and its mirror image mean the same.
    pub flip: bool,
    /// Added to the seed of networks: those of one experiment begin with weights of their own. Networks with the same
    /// first weights stay alike in training and would be easier to zip than networks from two makers.
    pub seed: u64,
}

const PLAIN: Subject = Subject { name: "", source: "", label: None, classes: None, flip: false, seed: 0 };

const SUBJECTS: [Subject; 10] = [
    Subject { name: "mnist", source: "mnist", ..PLAIN },
    Subject { name: "fashion-mnist", source: "fashion-mnist", seed: 100, ..PLAIN },
    Subject { name: "cifar-10", source: "cifar-10", flip: true, ..PLAIN },
    Subject { name: "cifar-10-0-4", source: "cifar-10", classes: Some("0-4"), flip: true, ..PLAIN },
    Subject { name: "cifar-10-5-9", source: "cifar-10", classes: Some("5-9"), flip: true, seed: 100, ..PLAIN },
    Subject { name: "gtsrb", source: "gtsrb", seed: 200, ..PLAIN },
    Subject { name: "omniglot", source: "omniglot", seed: 300, ..PLAIN },
    Subject { name: "svhn", source: "svhn", seed: 400, ..PLAIN },
    Subject { name: "utkface-gender", source: "utkface", label: Some("gender"), flip: true, seed: 500, ..PLAIN },
    Subject {
        name: "utkface-attributes",
        source: "utkface",
        label: Some("gender+race+age_group"),
        flip: true,
        seed: 600,
        ..PLAIN
    },
];

impl Subject {
    pub fn named(name: &str) -> Result<&'static Self> {
        SUBJECTS.iter().find(|s| s.name == name).ok_or_else(|| Error::usage(format!("there is no subject {name:?}")))
    }
}

impl Context<'_> {
    /// Data by name; MNIST comes with the program.
    pub fn dataset(&self, subject: &Subject, part: Part) -> Result<Dataset> {
        if subject.source == "mnist" {
            return bundled::mnist(part);
        }
        let folder = self.args.data_dir.join(subject.source);
        let file = |part: &str| self.args.data_dir.join(format!("{}-{part}.npz", subject.source));
        let parts = match part {
            _ if folder.exists() => locate(&folder),
            Part::Train => locate(&file("train")),
            Part::Test => locate(&file("test")),
        };
        let name = subject.source;
        let missing = |e: Error| {
            e.hint(format!("--data-dir should contain a folder {name}, or {name}-train.npz and {name}-test.npz"))
        };
        let classes = subject.classes.map(str::parse::<Classes>).transpose().map_err(Error::usage)?;
        let options = OpenOptions {
            label: subject.label.map_or(LabelChoice::Usual, LabelChoice::from),
            classes,
            ..OpenOptions::default()
        };
        let parts: Parts = parts.map_err(missing)?;
        if folder.exists() && matches!(parts, Parts::Whole(_)) {
            return Err(missing(Error::data(format!("{} has no test part", folder.display()))));
        }
        parts.part(part).open(&options)
    }
}
