//! What a zip is asked to do: the data of every task, and how to go about it.

use crate::data::Feed;
use crate::evaluate::Kind;
use crate::graph::Graph;
use crate::merge::{Align, Matching, Recipe, Share, Streams};
use crate::plan::{Joint, Layer};
use crate::train::Augmentation;
use std::path::PathBuf;

/// The data of a task.
#[derive(Clone, Debug)]
pub struct Task<'a> {
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
    /// The network that agreement and the error before are those of, where it is another than the one that is zipped: a task that comes from a joint model has lost
    /// something already.
    pub original: Option<&'a Graph>,
    /// How much it counts.
    pub weight: f64,
    /// Whether an image and its mirror image mean the same: retraining sees both then.
    pub mirrored: bool,
}

impl<'a> Task<'a> {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// The labels; in deep networks also the original networks' answers.
    Labels,
    /// The original networks' answers alone.
    Distill,
}

/// How to zip.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many units to share, unless a layer says otherwise.
    pub share: Share,
    /// By name of the layer.
    pub share_of: Vec<(String, Share)>,
    /// Which weights shared units get.
    pub recipe: Recipe,
    /// Which units go together.
    pub matching: Matching,
    /// Which inputs of a layer count as the same; by default what suits recipe and networks.
    pub align: Option<Align>,
    /// How units are paired that are added to others.
    pub streams: Streams,
    /// Ridge of all solves, relative to the mean of the diagonal.
    pub ridge: f64,
    /// Samples per task for statistics.
    pub calibration: usize,
    /// Statistics see every image shifted by up to so many pixels. Networks know their training samples by heart; agreeing on what lies beside
    /// them too is what carries over to new samples.
    pub shift: usize,
    /// What retraining does to images, for the same reason.
    pub augmentation: Augmentation,
    /// Iterations of retraining after each hidden layer.
    pub retrain: usize,
    /// What retraining aims at.
    pub aim: Aim,
    /// The highest learning rate of retraining.
    pub rate: f32,
    /// How much of the rate pulls weights towards zero. Where they are normalised it keeps them movable: the larger they are, the less a step turns them.
    /// A few hundred iterations do without.
    pub weight_decay: f32,
    /// Samples of each task per iteration.
    pub batch_size: usize,
    /// Errors after each layer are measured on at least so many samples of each task, where there are so many; on more if the networks are small. 0: only after the last layer.
    pub measured: usize,
    /// Where random numbers begin.
    pub seed: u64,
    /// Bytes to stay within.
    pub memory: u64,
    /// Where the state goes after every layer, and where a run that was killed goes on.
    pub checkpoint: Option<PathBuf>,
}

impl Plan {
    /// Everything shared and lightly retrained, with what measured best for the recipe.
    pub fn new(recipe: Recipe) -> Self {
        let best = recipe == Recipe::Best;
        Self {
            share: Share::All,
            share_of: Vec::new(),
            recipe,
            matching: if best { Matching::Optimal } else { Matching::Greedy },
            align: None,
            streams: if best { Streams::First } else { Streams::Last },
            ridge: if best { 1e-2 } else { 1e-4 },
            calibration: 20_000,
            shift: if best { 2 } else { 0 },
            augmentation: Augmentation { shift: if best { 1 } else { 0 }, flip: false },
            retrain: 200,
            aim: Aim::Distill,
            rate: 2e-3,
            weight_decay: 0.0,
            batch_size: 256,
            measured: 500,
            seed: 0,
            memory: crate::run::DEFAULT_MEMORY,
            checkpoint: None,
        }
    }
}

impl Plan {
    /// The same as it suits these networks. Deep ones get fewer iterations per layer and smaller batches, and networks with batch normalisation were
    /// trained on shifted images as a rule: they need none. What deep ones compute inside is imitated too, which allows a higher rate; sparse ones
    /// have fewer weights to move, which may move further. A step of Adam moves every weight as far: the more inputs a unit has, the smaller its weights are
    /// and the more of them move its answer together, so that rates go down as the inputs go up (Yang et al. 2021).
    pub fn suited(recipe: Recipe, networks: &Joint) -> Self {
        const ITERATIONS: usize = 600;
        /// Layers with at most so many inputs bear the usual rate; found with LeNets and ResNet-20, which have up to 800.
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
        Self {
            rate: faster * usual.rate * (INPUTS / inputs.max(1) as f32).min(1.0),
            retrain: usual.retrain.min(ITERATIONS.div_ceil(hidden)),
            batch_size: if deep { 64 } else { usual.batch_size },
            shift: if normalised { 0 } else { usual.shift },
            augmentation: if normalised { Augmentation::default() } else { usual.augmentation },
            ..usual
        }
    }
}
