//! What can be typed: commands, flags and their help.

use crate::samples::normalisation;
use crate::tasks::{Named, switch, value_for};
use crate::values::{Numbers, Size, agreement, kind, memory, part, percent, quoted, size};
use clap::{Args, Parser, Subcommand, ValueEnum};
use mtz::data::Normalisation;
use mtz::error::Result;
use mtz::evaluate::Kind;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Zips several trained neural networks into one.
#[derive(Debug, Parser)]
#[command(
    name = "mtz",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Example:\n  mtz demo"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub common: Common,
}

/// Flags every command has.
#[derive(Debug, Args)]
pub struct Common {
    /// Print one JSON object on stdout, and nothing else there
    #[arg(long, global = true, display_order = 900)]
    pub json: bool,
    /// No progress bar; results, and where they were written to, are still shown
    #[arg(long, short, global = true, display_order = 901)]
    pub quiet: bool,
    /// Threads to use [default: all cores]. Results do not depend on it
    #[arg(long, global = true, display_order = 902, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Seed of all random numbers: the same seed gives the same result
    #[arg(long, global = true, display_order = 903, value_name = "N", default_value = "0")]
    pub seed: u64,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(Demo),
    Zip(Box<Zip>),
    Eval(Eval),
    Inspect(Inspect),
    Extract(Extract),
    Prune(Box<Prune>),
    Stats(Box<Stats>),
    Train(Train),
    Reproduce(Reproduce),
    Report(Report),
    Completions(Completions),
    Man(Man),
}

/// Show inputs, outputs, layers, parameters and multiply-adds of models
///
/// Exits with 1 and lists every offending node if a model uses something that is not supported.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  mtz inspect models/lenet-5-a.onnx")]
pub struct Inspect {
    /// ONNX files
    #[arg(required = true, value_name = "MODEL")]
    pub models: Vec<PathBuf>,
}

/// Measure error and loss of a model, or its agreement with another one
#[derive(Debug, Args)]
#[command(
    after_help = concat!(
        "Example:\n",
        "  mtz eval models/lenet-5-a.onnx --data data/mnist\n",
        "  mtz eval models/lenet-5-a.onnx --data data/mnist --against models/lenet-5-b.onnx",
    )
)]
pub struct Eval {
    /// An ONNX file; NAME=PATH names its task, which is the file's stem otherwise
    #[arg(value_name = "MODEL")]
    pub model: Named<PathBuf>,
    /// The task to measure; a plain model has just one
    #[arg(long, value_name = "TASK")]
    pub task: Option<String>,
    /// Also measure how far the answers agree with this model's, which needs no labels: the network that a zipped or
    /// pruned one was made from, say. Of a joint model, its task of the same name
    #[arg(long, value_name = "MODEL")]
    pub against: Option<PathBuf>,
    /// What the answers are, for --against [default: found out, and said]
    #[arg(long, value_name = "KIND", requires = "against", value_parser = kind)]
    pub kind: Option<Kind>,
    #[command(flatten)]
    pub data: Data,
    /// Samples per batch
    #[arg(long, value_name = "N", default_value = "64")]
    pub batch_size: NonZeroUsize,
    /// Memory the network's values may take, like 800M or 8G
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = memory)]
    pub memory: u64,
}

/// Train a network from scratch, or go on with one
///
/// Ctrl-C stops and writes what has been learned so far. The input's normalisation is written into the model.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  mtz train lenet-300-100 --data data/mnist -o digits.onnx")]
pub struct Train {
    /// What to build
    #[arg(value_name = "ARCH", value_parser = clap::builder::PossibleValuesParser::new(crate::train::names()),
        required_unless_present = "from", conflicts_with = "from")]
    pub architecture: Option<String>,
    #[command(flatten)]
    pub data: Data,
    /// Where the trained model goes
    #[arg(long, short, value_name = "OUT.onnx")]
    pub output: PathBuf,
    /// Replace the output if it exists
    #[arg(long)]
    pub force: bool,
    /// Go on with this model instead of starting from scratch
    #[arg(long, value_name = "MODEL", help_heading = "Network")]
    pub from: Option<PathBuf>,
    /// So many times the usual width
    #[arg(long, value_name = "X", default_value = "1", help_heading = "Network")]
    pub width: f64,
    /// Passes over the data [default: by the kind of network]
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub epochs: Option<usize>,
    /// Samples per step [default: 64]
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub batch_size: Option<NonZeroUsize>,
    /// The highest learning rate [default: by the kind of network]
    #[arg(long, value_name = "X", help_heading = "Training")]
    pub lr: Option<f32>,
    /// How much weights are pulled towards zero [default: by the kind of network]
    #[arg(long, value_name = "X", help_heading = "Training")]
    pub weight_decay: Option<f32>,
    /// Shift training images by up to so many pixels [default: 2 for networks with batch norm, 0 for others]
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub shift: Option<usize>,
    /// Mirror every second training image
    #[arg(long, help_heading = "Training")]
    pub flip: bool,
    /// The share of the training samples held out to choose the best epoch; 0 keeps the last
    #[arg(long, value_name = "X", default_value = "0", help_heading = "Training")]
    pub validation: f32,
    /// Bring the hidden units into a random order afterwards; the network computes the same
    #[arg(long, help_heading = "Training")]
    pub permute: bool,
    /// The size folders of images are brought to, as CxHxW
    #[arg(long, value_name = "CxHxW", help_heading = "Network")]
    pub image_size: Option<String>,
    /// Memory an evaluation may take, like 800M or 8G
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = memory)]
    pub memory: u64,
}

/// Zip trained networks into one that does all their tasks
///
/// The result is an ordinary ONNX file with the inputs and outputs of every task; weights that tasks share are stored
/// once. A MODEL may be a joint model itself: its tasks keep what they share, and the others join them.
#[derive(Debug, Args)]
#[command(
    after_help = concat!(
        "Example:\n",
        "  mtz zip a=models/lenet-300-100-a.onnx b=models/lenet-300-100-b.onnx \\\n",
        "    --data data/mnist -o joint.onnx",
    )
)]
pub struct Zip {
    /// ONNX files; NAME=PATH names the task, which is the file's stem otherwise
    #[arg(required = true, value_name = "MODEL")]
    pub models: Vec<Named<PathBuf>>,
    #[command(flatten)]
    pub data: Data,
    /// Where the joint model goes
    #[arg(long, short, value_name = "OUT.onnx")]
    pub output: PathBuf,
    /// Replace the output if it exists
    #[arg(long)]
    pub force: bool,
    /// How many units of each hidden layer to share: all, a part like 0.5 or 50% (of the smaller network's), a count
    /// like 64, a threshold like below=1e-3 on the distance d, or layer by layer: conv1=50%,fc6=1792
    #[arg(long, value_name = "HOW", default_value = "all", help_heading = "Sharing")]
    pub share: String,
    /// Share as much as loses at most so many points of error in any task; how much in which layer is found out, on a
    /// tenth of the training samples that zipping does not use otherwise
    #[arg(long, value_name = "POINTS", conflicts_with = "share", help_heading = "Sharing")]
    pub max_error_increase: Option<f64>,
    /// Share as much as leaves every task at least this agreement with its original network, like 99%. Needs no labels;
    /// measured on the same tenth
    #[arg(long, value_name = "PERCENT", conflicts_with = "share", value_parser = agreement, help_heading = "Sharing")]
    pub min_agreement: Option<f64>,
    /// Standard errors of what was measured that must fit into --max-error-increase or --min-agreement as well: few
    /// samples tell little, and what just fits on them may not fit on others. 0 takes it as measured
    #[arg(long, value_name = "N", default_value_t = 0.0, help_heading = "Sharing")]
    pub margin: f64,
    /// Share as little as brings the file of the joint model to this size: a part of the given files like 60% or 0.6,
    /// or bytes like 30MB
    #[arg(long, value_name = "SIZE", conflicts_with = "share", value_parser = size, help_heading = "Sharing")]
    pub target_size: Option<Size>,
    /// Share at least so much: 40% means that as many weights are shared as 40% of one network has
    #[arg(long, value_name = "PART", conflicts_with = "share", value_parser = percent, help_heading = "Sharing")]
    pub min_sharing: Option<f64>,
    /// Which weights shared units get: what measured best, or the paper to the letter
    #[arg(long, value_enum, default_value = "best", help_heading = "Sharing")]
    pub recipe: RecipeName,
    /// Which units go together [default: optimal for --recipe best, greedy for --recipe paper]
    #[arg(long = "match", value_enum, value_name = "HOW", help_heading = "For experts")]
    pub matching: Option<MatchName>,
    /// Which inputs of a layer count as the same, so that weights from them can be shared [default: all in residual
    /// networks, shared in others]
    #[arg(long, value_enum, value_name = "WHICH", help_heading = "For experts")]
    pub align: Option<AlignName>,
    /// How units are paired that are added to those of earlier layers, as in residual networks [default: first; last
    /// for --recipe paper]
    #[arg(long, value_enum, value_name = "HOW", help_heading = "For experts")]
    pub streams: Option<StreamsName>,
    /// How much the first of two tasks counts, between 0 and 1
    #[arg(long, value_name = "X", conflicts_with = "weight", help_heading = "Sharing")]
    pub alpha: Option<f64>,
    /// How much a task counts beside the others, like age=2 [default: 1]
    #[arg(long, value_name = "TASK=X", help_heading = "Sharing")]
    pub weight: Vec<Named<f64>>,
    /// Samples per task for the statistics, at most; large networks take fewer where a layer has many positions
    /// [default: 20000]
    #[arg(long, value_name = "N", help_heading = "Statistics")]
    pub calibration: Option<NonZeroUsize>,
    /// Shift images by up to so many pixels for the statistics, and by half as many for retraining: networks should
    /// agree on more than the samples they were trained on [default: 2; 0 for networks with batch normalisation and for
    /// --recipe paper]
    #[arg(long, value_name = "N", help_heading = "Statistics")]
    pub shift: Option<usize>,
    /// Take the statistics from files of mtz stats, added up, instead of collecting them
    #[arg(long, value_name = "FILE", num_args = 1..,
        conflicts_with_all = ["max_error_increase", "min_agreement", "target_size", "min_sharing"],
        help_heading = "Statistics")]
    pub stats: Vec<PathBuf>,
    /// Mirror every second image when retraining: right if a mirror image means the same
    #[arg(long, help_heading = "Retraining")]
    pub flip: bool,
    /// Iterations of retraining per hidden layer; 0 for none [default: 200, or fewer so that all layers together have
    /// 600]
    #[arg(long, value_name = "N", help_heading = "Retraining")]
    pub retrain: Option<usize>,
    /// The same as --retrain 0
    #[arg(long, conflicts_with = "retrain", help_heading = "Retraining")]
    pub no_retrain: bool,
    /// What a task's answers are: agreement is measured and retraining done accordingly [default: found out, and said]
    #[arg(long, value_name = "[TASK=]KIND", help_heading = "Measuring")]
    pub kind: Vec<Named<Kind>>,
    /// The original network of a task that comes from a joint model: its agreement and error before count against this
    /// one
    #[arg(long, value_name = "TASK=MODEL", help_heading = "Measuring")]
    pub original: Vec<Named<PathBuf>>,
    /// Retrain on the labels; deep networks also towards the original networks' answers
    #[arg(long, conflicts_with = "distill", help_heading = "Retraining")]
    pub labels: bool,
    /// Retrain towards the original networks' answers, which needs no labels (the default)
    #[arg(long, help_heading = "Retraining")]
    pub distill: bool,
    /// The highest learning rate of retraining [default: 0.002; 0.004 for deep networks, 0.006 for sparse ones, less
    /// where a layer has more than 800 inputs]
    #[arg(long, value_name = "X", help_heading = "Retraining")]
    pub lr: Option<f32>,
    /// Samples of each task per iteration of retraining [default: 256; 64 for deep networks]
    #[arg(long, value_name = "N", help_heading = "Retraining")]
    pub batch_size: Option<NonZeroUsize>,
    /// Also write a report to look at
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Only say what would come out, and what it would take: parameters, memory, time. What a budget leads to is
    /// searched for, not predicted; how long that takes at most is
    #[arg(long)]
    pub dry_run: bool,
    /// Keep the state in this folder after every layer; the same command goes on from there if it was interrupted
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
    /// One input for all tasks; needs equal input shapes
    #[arg(long)]
    pub common_input: bool,
    /// Make scaling, mean and deviation a part of the file: it takes samples as they are then
    #[arg(long)]
    pub preprocessing: bool,
    /// How weights are stored [default: f16 if all models are, else f32]. Inputs and outputs keep their types
    #[arg(long, value_enum, value_name = "TYPE")]
    pub dtype: Option<Dtype>,
    /// Do not read the written file back and compare it with the model in memory
    #[arg(long)]
    pub no_check: bool,
    /// Memory to stay within, like 800M or 8G
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = memory)]
    pub memory: u64,
}

/// How weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// 32 bits
    F32,
    /// 16 bits
    F16,
}

/// How weights are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RecipeName {
    /// Optimal pairs, least squares towards the original answers of each layer, heads fitted again
    Best,
    /// Greedy pairs, the paper's weight update, private weights untouched
    Paper,
}

/// How pairs are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MatchName {
    /// The cheapest pair, then the cheapest of the rest
    Greedy,
    /// The smallest sum over all pairs
    Optimal,
    /// Any pairs: what the paper compares with
    Random,
}

/// Which inputs of a layer count as the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AlignName {
    /// Units that are shared
    Shared,
    /// All units, paired as well as they go
    All,
}

/// How residual networks are paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StreamsName {
    /// Every layer freely; later layers go by the last one that was added
    Last,
    /// Every layer freely; later layers go by the first
    First,
    /// All layers like the first
    One,
}

/// Take one task out of a joint model, as an ordinary ONNX file
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  mtz demo\n  mtz extract mtz-demo/joint.onnx --task a -o a.onnx")]
pub struct Extract {
    /// A joint model
    #[arg(value_name = "JOINT")]
    pub model: PathBuf,
    /// Which task to take out; mtz inspect lists them
    #[arg(long, value_name = "TASK")]
    pub task: String,
    /// Where it goes
    #[arg(long, short, value_name = "OUT.onnx")]
    pub output: PathBuf,
    /// Replace the output if it exists
    #[arg(long)]
    pub force: bool,
}

/// Make a network sparse: remove the weights that matter least, layer by layer
///
/// What removing a weight costs follows from the layer's inputs on calibration samples; the weights that stay are
/// solved again. No label is needed. Zeros in the result mean "no connection", and mtz zip keeps them.
#[derive(Debug, Args)]
#[command(
    after_help = concat!(
        "Example:\n",
        "  mtz prune models/lenet-300-100-a.onnx --data data/mnist \\\n",
        "    --sparsity 0.9 -o sparse.onnx",
    )
)]
pub struct Prune {
    /// An ONNX file; NAME=PATH names its task, which is the file's stem otherwise
    #[arg(value_name = "MODEL")]
    pub model: Named<PathBuf>,
    #[command(flatten)]
    pub data: Data,
    /// The share of the weights to remove from every layer, like 0.9; or layer by layer: fc1=0.95,fc2=0.8
    #[arg(long, value_name = "HOW")]
    pub sparsity: String,
    /// Remove the share from the whole network, more where it costs less
    #[arg(long)]
    pub global: bool,
    /// How weights are chosen
    #[arg(long, value_enum, value_name = "HOW", default_value = "obs")]
    pub method: MethodName,
    /// Where the sparse model goes
    #[arg(long, short, value_name = "OUT.onnx")]
    pub output: PathBuf,
    /// Replace the output if it exists
    #[arg(long)]
    pub force: bool,
    /// Samples for the statistics [default: 20000]
    #[arg(long, value_name = "N")]
    pub calibration: Option<NonZeroUsize>,
    /// Iterations of retraining with the zeros held
    #[arg(long, value_name = "N", default_value = "0")]
    pub retrain: usize,
    /// Retrain on the labels; deep networks also towards the original network's answers
    #[arg(long)]
    pub labels: bool,
    /// The highest learning rate of retraining [default: 0.002]
    #[arg(long, value_name = "X")]
    pub lr: Option<f32>,
    /// Samples per iteration of retraining [default: 256]
    #[arg(long, value_name = "N")]
    pub batch_size: Option<NonZeroUsize>,
    /// Memory the statistics of a layer may take, like 800M or 8G
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = memory)]
    pub memory: u64,
}

/// Collect what the layers of networks see, from all samples or a part of them, as a file for mtz zip --stats
///
/// Machines that each have a part of the samples collect in parallel; mtz zip adds the files up. They are statistics of
/// the original networks: mtz zip --data collects anew behind every merged layer, which loses less.
#[derive(Debug, Args)]
#[command(
    after_help = concat!(
        "Example:\n",
        "  mtz stats a=models/lenet-300-100-a.onnx b=models/lenet-300-100-b.onnx \\\n",
        "    --data data/mnist --part 1/2 -o first.stats",
    )
)]
pub struct Stats {
    /// ONNX files; NAME=PATH names the task, which is the file's stem otherwise
    #[arg(required = true, value_name = "MODEL")]
    pub models: Vec<Named<PathBuf>>,
    #[command(flatten)]
    pub data: Data,
    /// Only this part of the samples: 1/4 is the first of four
    #[arg(long, value_name = "I/N", default_value = "1/1", value_parser = part)]
    pub part: (usize, usize),
    /// Where the statistics go
    #[arg(long, short, value_name = "OUT")]
    pub output: PathBuf,
    /// Replace the output if it exists
    #[arg(long)]
    pub force: bool,
    /// Samples per task of all parts together, at most [default: 20000]
    #[arg(long, value_name = "N")]
    pub calibration: Option<NonZeroUsize>,
    /// Shift images by up to so many pixels [default: 2; 0 for networks with batch normalisation]
    #[arg(long, value_name = "N")]
    pub shift: Option<usize>,
    /// Memory to stay within, like 800M or 8G
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = memory)]
    pub memory: u64,
}

/// How weights that go are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MethodName {
    /// Layer-wise optimal brain surgeon: the cheapest go, the others make up for them
    Obs,
    /// The smallest go: for comparison
    Magnitude,
}

/// Zip two networks that come with the program
///
/// Two LeNet-300-100 trained on MNIST from different starts become one of half their size.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  mtz demo -o mtz-demo")]
pub struct Demo {
    /// The folder to write to
    #[arg(long, short, value_name = "DIR", default_value = "mtz-demo")]
    pub output: PathBuf,
    /// Replace what an earlier demo wrote there
    #[arg(long)]
    pub force: bool,
}

/// Render a run again: the JSON of mtz zip as a page to look at
#[derive(Debug, Args)]
#[command(
    after_help = concat!(
        "Example:\n",
        "  mtz zip a=models/lenet-300-100-a.onnx b=models/lenet-300-100-b.onnx \\\n",
        "    --data data/mnist -o joint.onnx --json > run.json\n",
        "  mtz report run.json -o report.html",
    )
)]
pub struct Report {
    /// What mtz zip --json printed
    #[arg(value_name = "RUN.json")]
    pub run: PathBuf,
    /// Where the page goes
    #[arg(long, short, value_name = "FILE.html")]
    pub output: PathBuf,
    /// Replace the output if it exists
    #[arg(long)]
    pub force: bool,
}

/// Print a script that completes commands and flags in a shell
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  mtz completions bash > ~/.local/share/bash-completion/completions/mtz")]
pub struct Completions {
    /// Which shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Print the manual page
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  mtz man > mtz.1\n  mtz man zip > mtz-zip.1")]
pub struct Man {
    /// The page of one command instead of the overview
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,
}

/// Repeat an experiment on this machine, the paper's figures beside ours
///
/// Networks are trained on the spot and kept in the output folder, so that a second run goes on where the first one
/// stopped. Writes EXPERIMENT.json and EXPERIMENT.svg there.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  mtz reproduce lenet -o experiments")]
pub struct Reproduce {
    /// What to repeat
    #[arg(value_enum, value_name = "EXPERIMENT")]
    pub experiment: Experiment,
    /// The folder for trained networks and results
    #[arg(long, short, value_name = "DIR", default_value = "mtz-reproduce")]
    pub output: PathBuf,
    /// Replace the results of an earlier run; its trained networks and what was measured with them are kept
    #[arg(long)]
    pub force: bool,
    /// Where data that does not come with the program is; each set in a folder or .npz of its name, like fashion-mnist
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub data_dir: PathBuf,
    /// With lenet: the sparse rows of the table
    #[arg(long)]
    pub sparse: bool,
    /// With split and lenet: this architecture only
    #[arg(long, value_name = "ARCH")]
    pub only: Option<String>,
    /// Fewer or more pairs of networks than usual
    #[arg(long, value_name = "N")]
    pub pairs: Option<NonZeroUsize>,
}

/// Experiments of the paper, and some more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Experiment {
    /// Table 1: pairs of LeNet-300-100 and LeNet-5 for MNIST, all hidden units shared
    Lenet,
    /// Figure 3: error against the number of shared neurons in the first layer, then in the second; random sharing
    /// beside
    Sharing,
    /// MNIST and Fashion-MNIST: error against parameters saved (needs fashion-mnist in --data-dir)
    Tasks,
    /// Three and five LeNet-300-100 in one, and a fifth that joins four
    Many,
    /// Optimal brain surgeon against magnitude pruning, 90 % of a LeNet-300-100
    Pruning,
    /// Tables 2 and 3: two VGG-16 for objects and for attributes of faces, all shared and adaptively (needs cifar-10
    /// and utkface in --data-dir)
    Vgg,
    /// Table 4: five residual networks for five tasks (needs cifar-10, gtsrb, omniglot, svhn and utkface in --data-dir)
    Resnet,
    /// CIFAR-10 in two halves: residual, plain, depthwise and dense networks, from half of the units shared to all
    /// (needs cifar-10 in --data-dir)
    Split,
}

impl Data {
    /// What to type to see the samples of a task in the same way again, `mtz eval` for example. `preprocessed`: the
    /// model scales by itself.
    pub fn flags_for(&self, task: &str, preprocessed: bool) -> Result<String> {
        let mut words = Vec::new();
        let mut add = |flag: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("--{flag} {}", quoted(&value))));
        };
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        add("data", value_for("data", task, &self.data)?.map(path));
        add("test", value_for("test", task, &self.test)?.map(path));
        add("label", value_for("label", task, &self.label)?.cloned());
        add("classes", value_for("classes", task, &self.classes)?.map(ToString::to_string));
        let scaled = !preprocessed;
        add("mean", value_for("mean", task, &self.mean)?.filter(|_| scaled).map(ToString::to_string));
        add("std", value_for("std", task, &self.std)?.filter(|_| scaled).map(ToString::to_string));
        let Normalisation { scale, raw, .. } = normalisation(self, task)?;
        add("scale", scale.filter(|_| scaled).map(|x| x.to_string()));
        let resize = self.resize.and_then(|resize| resize.to_possible_value());
        add("resize", resize.map(|value| value.get_name().to_owned()));
        words.extend((raw || preprocessed).then(|| "--raw".to_owned()));
        words.extend(self.skip_bad.then(|| "--skip-bad".to_owned()));
        Ok(words.join(" "))
    }
}

impl Train {
    /// `--image-size` as channels, height and width.
    pub fn image_shape(&self) -> Result<Option<[usize; 3]>> {
        let Some(text) = &self.image_size else { return Ok(None) };
        let numbers: Option<Vec<usize>> = text.split('x').map(|n| n.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[c, h, w]) => Ok(Some([c, h, w])),
            _ => Err(mtz::error::Error::usage(format!("--image-size {text:?} is not like 3x32x32"))),
        }
    }
}

/// Where samples come from and how they are prepared. With several tasks, TASK=VALUE belongs to one of them.
#[derive(Debug, Args)]
pub struct Data {
    /// An .npz or .npy file, a folder with MNIST's IDX files, a CIFAR binary file or folder, or a folder of images:
    /// flat, or with one sub-folder per class. A folder with a train and a test part is evaluated on the second. With
    /// several tasks, age=faces.npz is the data of the task age; a bare path serves all others. The same holds for the
    /// other flags with [TASK=]
    #[arg(long, value_name = "[TASK=]PATH", required = true, help_heading = "Data")]
    pub data: Vec<Named<PathBuf>>,
    /// Test data of its own, in the same formats
    #[arg(long, value_name = "[TASK=]PATH", help_heading = "Data")]
    pub test: Vec<Named<PathBuf>>,
    /// The label array of an .npz that has several; a+b+c takes several as yes-or-no attributes, one for each class.
    /// none goes on without labels, whatever the data has
    #[arg(long, value_name = "[TASK=]NAME", help_heading = "Data")]
    pub label: Vec<Named<String>>,
    /// Take some classes only, like 5-9; they are counted from 0 then
    #[arg(long, value_name = "[TASK=]FIRST-LAST", help_heading = "Data")]
    pub classes: Vec<Named<mtz::data::Classes>>,
    /// Subtract from the scaled samples: one number, or one per channel
    #[arg(long, value_name = "[TASK=]M,M,M", allow_hyphen_values = true, help_heading = "Data")]
    pub mean: Vec<Named<Numbers>>,
    /// Divide by, after that: one number, or one per channel
    #[arg(long, value_name = "[TASK=]S,S,S", help_heading = "Data")]
    pub std: Vec<Named<Numbers>>,
    /// Multiply samples by this [default: 1/255 for uint8, 1 for everything else]
    #[arg(long, value_name = "[TASK=]X", allow_hyphen_values = true, help_heading = "Data")]
    pub scale: Vec<Named<f32>>,
    /// Samples are right as they are: uint8 stays 0 to 255, and floats up to 255 are no mistake. --raw=age says so of
    /// the task age alone: its network has the preprocessing inside, say
    #[arg(long, value_name = "TASK", num_args = 0..=1, require_equals = true, default_missing_value = "",
        value_parser = switch, help_heading = "Data")]
    pub raw: Vec<Named<()>>,
    /// What to do with images of another size than the model's: cut out the middle, or distort
    #[arg(long, value_enum, help_heading = "Data")]
    pub resize: Option<Resize>,
    /// Check all images of a folder first, and leave out those that cannot be read
    #[arg(long, help_heading = "Data")]
    pub skip_bad: bool,
    /// What all data of the run has in common
    #[arg(skip)]
    pub opened: crate::samples::Opened,
}

/// How images are brought to the model's size.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Resize {
    /// Scale until the size is covered, then cut out the middle
    Crop,
    /// Scale height and width separately
    Stretch,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    /// Defaults are the library's; the help repeats them.
    #[test]
    fn the_help_tells_the_defaults() {
        use clap::CommandFactory;
        let options = mtz::zip::ZipOptions::new(mtz::merge::Recipe::Best);
        let mut command = Cli::command();
        let help = command.find_subcommand_mut("zip").unwrap().render_help().to_string();
        let values = [
            options.fitting.calibration,
            options.fitting.shift,
            options.retraining.iterations,
            options.retraining.batch_size,
        ]
        .map(|n| n.to_string());
        for value in values.into_iter().chain([options.retraining.rate.to_string()]) {
            assert!(help.contains(&format!("[default: {value}")), "{value}");
        }
    }
}
