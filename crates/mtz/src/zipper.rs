//! The front door: networks, samples and options go in, a joint model comes out.
//!
//! Everything is owned, so that a binding to another language, or a thread, can hold it.

use crate::data::{Dataset, Feed, Labels, Normalisation, OpenOptions, Part, SampleSource, holdout_split, locate};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::joint_file;
use crate::merge::Recipe;
use crate::onnx;
use crate::progress::Progress;
use crate::report::{RunFacts, RunReport};
use crate::run::Runner;
use crate::sharing::Joint;
use crate::simplify;
use crate::tensor::Tensor;
use crate::zip::{Session, TaskData, ZipOptions};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A network read from an ONNX file.
///
/// ```no_run
/// let network = mtz::Network::open("age.onnx")?;
/// println!("{} parameters", network.graph().parameters());
/// # Ok::<(), mtz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Network {
    graph: Graph,
}

impl Network {
    /// Reads a file, with external weights if it has any.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self { graph: onnx::read(path.as_ref())? })
    }

    /// Reads a file in memory.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Ok(Self { graph: onnx::parse(bytes)? })
    }

    /// The network itself.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Writes it to a file.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        onnx::write(&self.graph, path.as_ref())
    }
}

impl From<Graph> for Network {
    fn from(graph: Graph) -> Self {
        Self { graph }
    }
}

/// The samples of a task: a path in any format that is known, or a source of the caller's own.
///
/// Labels are optional: without them agreement with the original network is measured, and retraining imitates it.
///
/// ```no_run
/// use mtz::Samples;
/// let faces = Samples::open("faces.npz")?.normalised(&[0.5], &[0.25]);
/// // Or from anywhere: a thousand samples of 1×28×28 numbers.
/// let noise = Samples::from_fn(1000, &[1, 28, 28], |index, sample| {
///     sample.fill(index as f32 / 1000.0);
///     Ok(())
/// });
/// # Ok::<(), mtz::Error>(())
/// ```
#[derive(Clone)]
pub struct Samples {
    origin: Origin,
    normalisation: Normalisation,
}

#[derive(Clone)]
enum Origin {
    Path(PathBuf, OpenOptions),
    Source(Arc<dyn SampleSource>, Option<Labels>),
}

impl std::fmt::Debug for Samples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.origin {
            Origin::Path(path, _) => write!(f, "Samples of {}", path.display()),
            Origin::Source(source, _) => write!(f, "{} samples", source.len()),
        }
    }
}

impl Samples {
    /// Samples on disk: `.npz`, `.npy`, IDX, CIFAR's binary files, a folder of images.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, OpenOptions::default())
    }

    /// The same, with a choice of labels, classes, or how images are fitted.
    pub fn open_with(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        locate(path.as_ref())?;
        Ok(Self { origin: Origin::Path(path.as_ref().to_owned(), options), normalisation: Normalisation::default() })
    }

    /// Samples from a source of the caller's own.
    pub fn from_source(source: impl SampleSource + 'static, labels: Option<Labels>) -> Self {
        Self { origin: Origin::Source(Arc::new(source), labels), normalisation: Normalisation::default() }
    }

    /// Samples that a closure writes: `count` of them, each of this shape. It is called from several threads, and again
    /// for the same sample.
    pub fn from_fn(
        count: usize,
        shape: &[usize],
        read: impl Fn(usize, &mut [f32]) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::from_source(Closure { count, shape: shape.to_vec(), read }, None)
    }

    /// Subtracts a mean from each channel and divides by a deviation, as the network was trained.
    #[must_use]
    pub fn normalised(mut self, mean: &[f32], std: &[f32]) -> Self {
        (self.normalisation.mean, self.normalisation.std) = (mean.to_vec(), std.to_vec());
        self
    }

    /// Leaves samples as they are: bytes stay 0 to 255.
    #[must_use]
    pub fn raw(mut self) -> Self {
        self.normalisation.raw = true;
        self
    }

    /// The samples to learn from and, if there are any of their own, those to measure on.
    fn feeds(&self, graph: &Graph) -> Result<(Feed, Option<Feed>)> {
        let feed = |dataset| Feed::new(dataset, graph, self.normalisation.clone());
        match &self.origin {
            Origin::Source(source, labels) => Ok((feed(Dataset::new(Box::new(source.clone()), labels.clone()))?, None)),
            Origin::Path(path, options) => {
                let parts = locate(path)?;
                let open = |part| feed(parts.part(part).open(options)?);
                let test = parts.is_split().then(|| open(Part::Test)).transpose()?;
                Ok((open(Part::Train)?, test))
            }
        }
    }
}

struct Closure<F> {
    count: usize,
    shape: Vec<usize>,
    read: F,
}

impl<F: Fn(usize, &mut [f32]) -> Result<()> + Send + Sync> SampleSource for Closure<F> {
    fn len(&self) -> usize {
        self.count
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn is_bytes(&self) -> bool {
        false
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<()> {
        (self.read)(index, out)
    }
}

/// A change to the options.
type Adjust = Box<dyn FnOnce(&mut ZipOptions) + Send>;

/// Zips networks.
///
/// ```no_run
/// use mtz::{Network, Samples, Zipper};
/// use std::ops::ControlFlow;
///
/// let result = Zipper::new()
///     .task("age", Network::open("age.onnx")?, Samples::open("faces.npz")?)
///     .task("gender", Network::open("gender.onnx")?, Samples::open("faces.npz")?)
///     .run(|_progress| ControlFlow::Continue(()))?;
/// result.joint.save("both.onnx")?;
/// # Ok::<(), mtz::Error>(())
/// ```
#[derive(Default)]
pub struct Zipper {
    tasks: Vec<(String, Network, Samples)>,
    adjust: Option<Adjust>,
}

impl Zipper {
    /// Without any networks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a task: a name, its network, and samples of what it sees.
    #[must_use]
    pub fn task(mut self, name: &str, network: Network, samples: Samples) -> Self {
        self.tasks.push((name.to_owned(), network, samples));
        self
    }

    /// Changes options, which are what suits the networks otherwise.
    ///
    /// ```
    /// use mtz::{Share, Zipper};
    /// let zipper = Zipper::new().options(|options| options.sharing.share = Share::Fraction(0.75));
    /// ```
    #[must_use]
    pub fn options(mut self, adjust: impl FnOnce(&mut ZipOptions) + Send + 'static) -> Self {
        self.adjust = Some(Box::new(adjust));
        self
    }

    /// Zips. `progress` hears how far it is and may stop it.
    pub fn run(self, mut progress: impl FnMut(Progress) -> ControlFlow<()>) -> Result<ZipResult> {
        let parts = self.tasks.iter().map(|(name, network, _)| Joint::single(name.clone(), network.graph.clone()));
        let start = Joint::from_networks(parts.collect::<Result<_>>()?)?;
        let mut options = ZipOptions::suited(Recipe::Best, &start);
        if let Some(adjust) = self.adjust {
            adjust(&mut options);
        }
        let feeds = start.members.iter().zip(&self.tasks).map(|(m, (_, _, samples))| samples.feeds(&m.graph));
        let feeds: Vec<(Feed, Option<Feed>)> = feeds.collect::<Result<_>>()?;
        let mut tasks = Vec::with_capacity(feeds.len());
        for (given, (train, test)) in self.tasks.iter().zip(&feeds) {
            let name = given.0.as_str();
            tasks.push(match test {
                Some(test) => TaskData::whole(name, train, test),
                None => {
                    // Nothing to measure on but what is not learned from.
                    let (learn, held_out) = holdout_split(&train.all());
                    TaskData { samples: Some(learn), test: Some((train, held_out)), ..TaskData::new(name, train) }
                }
            });
        }
        let zipped = Session::new(start, &tasks, &options)?.run(&mut progress)?;
        let report = RunReport::new(&zipped, &tasks, RunFacts::default());
        Ok(ZipResult { joint: JointModel { joint: zipped.joint }, report })
    }
}

/// What came out of a zip.
///
/// ```no_run
/// # fn show(result: mtz::ZipResult) -> mtz::Result<()> {
/// for (name, task) in result.report.tasks.iter() {
///     println!("{name}: {:?} % of the answers are the original's", task.agreement_after);
/// }
/// std::fs::write("report.html", mtz::report::page(&result.report)).ok();
/// result.joint.save("both.onnx")
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ZipResult {
    /// The joint model.
    pub joint: JointModel,
    /// What was saved and what it cost; [`page`](crate::report::page) shows it.
    pub report: RunReport,
}

/// Several networks in one.
///
/// ```no_run
/// use mtz::JointModel;
/// use mtz::tensor::Tensor;
///
/// let both = JointModel::open("both.onnx")?;
/// let image = Tensor::new(vec![1, 3, 32, 32], vec![0.5; 3 * 32 * 32])?;
/// let answers = both.run("age", &[image])?;
/// both.extract("age")?.save("age-alone.onnx")?;
/// # Ok::<(), mtz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct JointModel {
    joint: Joint,
}

impl JointModel {
    /// Reads a joint model that this library wrote.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        match joint_file::from_graph(&onnx::read(path)?)? {
            Some(joint) => Ok(Self { joint }),
            None => {
                Err(Error::model("this is no joint model").in_file(path).hint("Network::open reads single networks"))
            }
        }
    }

    /// The names of its tasks.
    pub fn tasks(&self) -> impl Iterator<Item = &str> {
        self.joint.members.iter().map(|m| m.name.as_str())
    }

    /// Runs one task.
    pub fn run(&self, task: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let graph = simplify::for_inference(self.graph(task)?)?;
        Runner::new(&graph).run(inputs)
    }

    /// One task as a network of its own.
    pub fn extract(&self, task: &str) -> Result<Network> {
        Ok(Network { graph: self.graph(task)?.clone() })
    }

    /// Writes the file: an ordinary ONNX file with the inputs and outputs of all tasks.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        onnx::write(&joint_file::to_graph(&self.joint, false)?, path.as_ref())
    }

    /// Parameters that are stored, and those of them that several tasks use.
    pub fn parameters(&self) -> (usize, usize) {
        self.joint.parameters()
    }

    /// Who shares what.
    pub fn joint(&self) -> &Joint {
        &self.joint
    }

    fn graph(&self, task: &str) -> Result<&Graph> {
        let member = self.joint.members.iter().find(|m| m.name == task);
        member.map(|m| &m.graph).ok_or_else(|| {
            let names: Vec<&str> = self.tasks().collect();
            Error::usage(format!("there is no task {task:?}")).hint(format!("the tasks are {}", names.join(", ")))
        })
    }
}
