//! What a zip is asked to do: the data of every task, and how to go about it.

use crate::data::{Augmentation, Feed};
use crate::evaluate::Kind;
use crate::graph::Graph;
use crate::merge::{Align, Matching, Recipe, Streams};
use crate::sharing::Share;
use crate::sharing::{Joint, Layer};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The data of a task.
#[derive(Clone, Debug)]
pub struct TaskData<'a> {
    /// Its name.
    pub name: String,
    /// Samples for statistics and retraining.
    pub train: &'a Feed,
    /// Those of them that may be used; all by default.
    pub samples: Option<Vec<usize>>,
    /// Samples that errors and agreement are reported on.
    pub test: Option<(&'a Feed, Vec<usize>)>,
    /// What the network's answers are; found out if nothing is said.
    pub kind: Option<Kind>,
    /// The network that agreement and the error before are those of, where it is another than the one that is zipped: a
    /// task that comes from a joint model has lost something already.
    pub original: Option<&'a Graph>,
    /// How much it counts.
    pub weight: f64,
    /// Whether an image and its mirror image mean the same: retraining sees both then.
    pub mirrored: bool,
}

impl<'a> TaskData<'a> {
    /// A task that may use all of its samples, counts as much as any other and is measured nowhere.
    pub fn new(name: &str, train: &'a Feed) -> Self {
        Self {
            name: name.to_owned(),
            train,
            samples: None,
            test: None,
            kind: None,
            original: None,
            weight: 1.0,
            mirrored: false,
        }
    }

    /// A task that may use all of its samples and counts as much as any other.
    pub fn whole(name: &str, train: &'a Feed, test: &'a Feed) -> Self {
        let test = Some((test, (0..test.len()).collect()));
        Self { test, ..Self::new(name, train) }
    }

    /// The same with at most so many samples to report errors on; with none, nothing is reported.
    pub(super) fn to_measure(&self, samples: usize) -> Self {
        let spread = |all: &[usize]| -> Vec<usize> {
            let step = (all.len() / samples.max(1)).max(1);
            all.iter().copied().step_by(step).collect()
        };
        let test = self.test.as_ref().filter(|_| samples > 0);
        Self { test: test.map(|(feed, all)| (*feed, spread(all))), ..self.clone() }
    }
}

/// Networks with at most so many layers are not deep.
pub(super) const SHALLOW: usize = 4;

/// What retraining aims at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetrainingTarget {
    /// The labels; in deep networks also the original networks' answers.
    Labels,
    /// The original networks' answers alone.
    Distill,
}

/// How to zip.
///
/// ```
/// use mtz::merge::Recipe;
/// use mtz::{Share, ZipOptions};
/// let options = ZipOptions::new(Recipe::Best).with(|o| {
///     o.sharing.share = Share::Fraction(0.75);
///     o.retraining.iterations = 0;
/// });
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ZipOptions {
    /// Which weights shared units get.
    pub recipe: Recipe,
    /// What is shared.
    pub sharing: SharingOptions,
    /// How weights are found.
    pub fitting: FittingOptions,
    /// How the joint model is trained afterwards.
    pub retraining: RetrainingOptions,
    /// What a run may take, and where it keeps its state.
    pub resources: Resources,
    /// Where random numbers begin.
    pub seed: u64,
}

/// What is shared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SharingOptions {
    /// How many units of a layer, unless `share_of` says otherwise.
    pub share: Share,
    /// The same for single layers, by name.
    pub share_of: Vec<(String, Share)>,
    /// Which units go together.
    pub matching: Matching,
    /// Which inputs of a layer count as the same; by default what suits recipe and networks.
    pub align: Option<Align>,
    /// How units are paired that are added to others, as in residual networks.
    pub streams: Streams,
}

/// How weights are found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FittingOptions {
    /// Ridge of all solves, relative to the mean of the diagonal.
    pub ridge: f64,
    /// Samples per task for statistics, at most.
    pub calibration: usize,
    /// Statistics see every image shifted by up to this many pixels. Networks know their training samples by heart;
    /// agreeing on images near them carries over to new samples.
    pub shift: usize,
}

/// How the joint model is trained afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RetrainingOptions {
    /// Iterations per hidden layer; 0 for none.
    pub iterations: usize,
    /// What it aims at.
    pub target: RetrainingTarget,
    /// The highest learning rate.
    pub rate: f32,
    /// How much of the rate pulls weights towards zero. Where weights are normalised it keeps them movable: the larger
    /// they are, the less a step turns them. A few hundred iterations do without.
    pub weight_decay: f32,
    /// Samples of each task per iteration.
    pub batch_size: usize,
    /// Random changes to images, for the same reason as [`FittingOptions::shift`].
    pub augmentation: Augmentation,
}

/// What a run may take, and where it keeps its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Resources {
    /// Bytes to stay within.
    pub memory: u64,
    /// Errors after each layer are measured on at least this many samples of each task, if there are as many; on more
    /// if the networks are small. 0: only after the last layer.
    pub measured: usize,
    /// A folder for the state after every layer, from which a run that was killed is resumed.
    pub checkpoint: Option<PathBuf>,
}

impl ZipOptions {
    /// Everything shared and lightly retrained, with what measured best for the recipe.
    pub fn new(recipe: Recipe) -> Self {
        let best = recipe == Recipe::Best;
        Self {
            recipe,
            sharing: SharingOptions {
                share: Share::All,
                share_of: Vec::new(),
                matching: if best { Matching::Optimal } else { Matching::Greedy },
                align: None,
                streams: if best { Streams::First } else { Streams::Last },
            },
            fitting: FittingOptions {
                ridge: if best { 1e-2 } else { 1e-4 },
                calibration: 20_000,
                shift: if best { 2 } else { 0 },
            },
            retraining: RetrainingOptions {
                iterations: 200,
                target: RetrainingTarget::Distill,
                rate: 2e-3,
                weight_decay: 0.0,
                batch_size: 256,
                augmentation: Augmentation { shift: if best { 1 } else { 0 }, flip: false },
            },
            resources: Resources { memory: crate::run::DEFAULT_MEMORY, measured: 500, checkpoint: None },
            seed: 0,
        }
    }

    /// The same with some changes.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The same as it suits these networks. Deep ones get fewer iterations per layer and smaller batches, and networks
    /// with batch normalisation were trained on shifted images as a rule: they need none. What deep ones compute inside
    /// is imitated too, which allows a higher rate; sparse ones have fewer weights to move, which may move further. A
    /// step of Adam moves every weight as far: the more inputs a unit has, the smaller its weights are and the more of
    /// them move its answer together, so that rates go down as the inputs go up (Yang et al. 2021).
    pub fn suited(recipe: Recipe, networks: &Joint) -> Self {
        const ITERATIONS: usize = 600;
        /// Layers with at most so many inputs bear the usual rate; found with LeNets and ResNet-20, which have up to
        /// 800.
        const INPUTS: f32 = 800.0;
        let usual = Self::new(recipe);
        let hidden = networks.hidden_layers().max(1);
        let deep = networks.depth() > SHALLOW;
        let normalised =
            networks.members.iter().flat_map(|m| m.graph.nodes()).any(|n| n.op.name() == "BatchNormalization");
        let sparse = networks.members.iter().any(|m| m.layers.iter().any(|l| l.is_sparse(&m.graph)));
        let faster = match (sparse, deep) {
            (true, _) => 3.0,
            (false, true) => 2.0,
            (false, false) => 1.0,
        };
        let inputs = networks.members.iter().flat_map(|m| &m.layers).map(Layer::columns).max().unwrap_or(1);
        let mut options = usual;
        let retraining = &mut options.retraining;
        retraining.rate *= faster * (INPUTS / inputs.max(1) as f32).min(1.0);
        retraining.iterations = retraining.iterations.min(ITERATIONS.div_ceil(hidden));
        if deep {
            retraining.batch_size = 64;
        }
        if normalised {
            retraining.augmentation = Augmentation::default();
            options.fitting.shift = 0;
        }
        options
    }
}
