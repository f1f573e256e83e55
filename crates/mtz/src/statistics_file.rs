//! Statistics as files: what the layers of the original networks see. Machines that each have a part of the samples
//! write one file each, and the files add up.
//!
//! A file is
//!
//! ```text
//! 8 bytes   "mtzstat1"
//! 8 bytes   length of the header, little-endian
//! header    JSON: the tasks, their networks' fingerprints, and name, inputs and samples of every layer
//! numbers   f64, little-endian: for every layer the Gram matrix on and above its diagonal, row by row;
//!           the constant 1 of the bias is the last input
//! ```
//!
//! They are statistics of the originals: what a layer sees once earlier layers are merged is not in them. The paper's
//! formulas for d and f need no more; refitting to the merged network's own inputs does.
#![deny(clippy::indexing_slicing, clippy::as_conversions)]

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::graph::Graph;
use crate::progress::{Observer, Progress, Stage, unless_cancelled};
use crate::sharing::{Joint, Member};
use crate::statistics::{ActivationCaches, Calibration, LayerStatistics, Moments, StatisticsSource};
use serde::{Deserialize, Serialize};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

const MAGIC: [u8; 8] = *b"mtzstat1";
/// Bytes of a header: names of some thousand layers take a part of that.
const LARGEST_HEADER: u64 = 1 << 26;

/// What the layers of some networks see.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedStatistics {
    /// Task by task.
    pub tasks: Vec<SavedTask>,
}

/// What the layers of one network see.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedTask {
    /// The task's name.
    pub name: String,
    /// Of the network: statistics are those of its weights and no others.
    pub network: String,
    /// Layer by layer.
    pub layers: Vec<SavedLayer>,
}

/// What one layer sees.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedLayer {
    /// Its name.
    pub name: String,
    /// The Gram matrix of its inputs.
    pub moments: Moments,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    tasks: Vec<TaskHeader>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskHeader {
    name: String,
    network: String,
    layers: Vec<LayerHeader>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerHeader {
    name: String,
    inputs: usize,
    samples: u64,
}

fn fingerprint(graph: &Graph) -> String {
    let mut mark = Fingerprint::default();
    mark.network(graph);
    mark.finish()
}

impl SavedStatistics {
    /// Runs each network of a joint model that shares nothing yet once over its samples.
    pub fn collect(joint: &Joint, from: &[Calibration], engine: &dyn Engine, progress: &mut Observer) -> Result<Self> {
        let mut tasks = Vec::new();
        for (member, from) in joint.members.iter().zip(from) {
            let (mut caches, mut layers) = (ActivationCaches::default(), Vec::new());
            for (l, layer) in member.layers.iter().enumerate() {
                unless_cancelled(progress(Progress::new(l, member.layers.len(), Stage::Statistics)))?;
                // Only sums add up.
                let from = Calibration { keep: false, kept_values: 0, ..from.clone() };
                let statistics = engine.layer_statistics(&member.graph, None, layer, &from, &mut caches)?;
                layers.push(SavedLayer { name: layer.name.clone(), moments: statistics.moments });
            }
            tasks.push(SavedTask { name: member.name.clone(), network: fingerprint(&member.graph), layers });
        }
        Ok(Self { tasks })
    }

    /// Adds the statistics of other samples of the same networks.
    pub fn add(&mut self, other: &Self) -> Result<()> {
        let key = |s: &Self| -> Vec<_> {
            let layers =
                |t: &SavedTask| t.layers.iter().map(|l| (l.name.clone(), l.moments.size())).collect::<Vec<_>>();
            s.tasks.iter().map(|t| (t.name.clone(), t.network.clone(), layers(t))).collect()
        };
        if key(self) != key(other) {
            return Err(Error::data("these are statistics of other networks")
                .hint("add up statistics of the same models, given in the same order and with the same names"));
        }
        let own = self.tasks.iter_mut().flat_map(|t| &mut t.layers);
        own.zip(other.tasks.iter().flat_map(|t| &t.layers))
            .try_for_each(|(own, other)| own.moments.merge(&other.moments))
    }

    /// Writes the file; a file of that name is replaced in one step.
    pub fn write(&self, path: &Path) -> Result<()> {
        let header = Header {
            tasks: self
                .tasks
                .iter()
                .map(|t| TaskHeader {
                    name: t.name.clone(),
                    network: t.network.clone(),
                    layers: t
                        .layers
                        .iter()
                        .map(|l| LayerHeader {
                            name: l.name.clone(),
                            inputs: l.moments.size().saturating_sub(1),
                            samples: l.moments.samples(),
                        })
                        .collect(),
                })
                .collect(),
        };
        let io = |e: std::io::Error| Error::io(path, &e);
        let header = serde_json::to_vec(&header).map_err(|e| Error::data(e.to_string()))?;
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut out = BufWriter::new(tempfile::NamedTempFile::new_in(folder).map_err(io)?);
        out.write_all(&MAGIC).map_err(io)?;
        out.write_all(&u64::try_from(header.len()).unwrap_or(u64::MAX).to_le_bytes()).map_err(io)?;
        out.write_all(&header).map_err(io)?;
        for layer in self.tasks.iter().flat_map(|t| &t.layers) {
            for number in layer.moments.upper() {
                out.write_all(&number.to_le_bytes()).map_err(io)?;
            }
        }
        let file = out.into_inner().map_err(|e| io(e.into_error()))?;
        file.as_file().sync_all().map_err(io)?;
        file.persist(path).map_err(|e| io(e.error))?;
        Ok(())
    }

    /// Reads a file, in at most `memory` bytes.
    pub fn read(path: &Path, memory: u64) -> Result<Self> {
        let io = |e: std::io::Error| Error::io(path, &e);
        let bad = |text: &str| {
            let hint = "mtz stats makes such files; if this is one, make it again";
            Error::data(format!("{}: {text}", path.display())).hint(hint)
        };
        let file = std::fs::File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let mut file = BufReader::new(file);
        let (mut magic, mut word) = ([0; 8], [0; 8]);
        if file.read_exact(&mut magic).is_err() || magic != MAGIC || file.read_exact(&mut word).is_err() {
            return Err(bad("this is no file of statistics"));
        }
        let header_bytes = u64::from_le_bytes(word);
        let numbers = length.checked_sub(16).and_then(|rest| rest.checked_sub(header_bytes));
        let Some(numbers) = numbers.filter(|_| header_bytes <= LARGEST_HEADER) else {
            return Err(bad("the file is cut off or damaged"));
        };
        let mut header = Vec::new();
        file.by_ref().take(header_bytes).read_to_end(&mut header).map_err(io)?;
        let header: Header = serde_json::from_slice(&header).map_err(|_| bad("the header is damaged"))?;
        // Before anything is allocated: do the sizes fit the file, and the matrices the memory?
        let (mut upper, mut whole) = (0u64, 0u64);
        for layer in header.tasks.iter().flat_map(|t| &t.layers) {
            let size = u64::try_from(layer.inputs).ok().and_then(|n| n.checked_add(1));
            let square = size.and_then(|n| n.checked_mul(n)).and_then(|n| n.checked_mul(8));
            let half = size.zip(square).and_then(|(n, square)| (square / 2).checked_add(4 * n));
            let sums = half.and_then(|n| upper.checked_add(n)).zip(square.and_then(|n| whole.checked_add(n)));
            (upper, whole) = sums.ok_or_else(|| bad("a layer is impossibly large"))?;
        }
        if upper != numbers {
            return Err(bad("the file is cut off or damaged"));
        }
        if whole.saturating_add(upper) > memory {
            let text = format!("{}: these statistics take {} MiB", path.display(), whole.div_ceil(1 << 20));
            return Err(Error::limit(text).hint("allow more memory"));
        }
        let mut tasks = Vec::new();
        for task in header.tasks {
            let mut layers = Vec::new();
            for LayerHeader { name, inputs, samples } in task.layers {
                let size = inputs + 1;
                let mut bytes = vec![0; 4 * size * (size + 1)];
                file.read_exact(&mut bytes).map_err(io)?;
                let upper: Vec<f64> = bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
                let moments = Moments::from_upper(inputs, samples, &upper);
                layers.push(SavedLayer { moments: moments.ok_or_else(|| bad("a Gram matrix is damaged"))?, name });
            }
            tasks.push(SavedTask { name: task.name, network: task.network, layers });
        }
        Ok(Self { tasks })
    }

    /// Refuses statistics of other networks than these.
    pub fn check(&self, joint: &Joint) -> Result<()> {
        joint.members.iter().try_for_each(|member| {
            let task = self.task(member)?;
            if task.network == fingerprint(&member.graph) {
                return Ok(());
            }
            Err(Error::data(format!("the statistics of {} are those of another network", member.name))
                .hint("make them again with mtz stats from the files that are zipped"))
        })
    }

    /// Marks these statistics.
    pub(crate) fn mark(&self, mark: &mut Fingerprint) {
        for layer in self.tasks.iter().flat_map(|t| &t.layers) {
            mark.text(&layer.name);
            layer.moments.upper().for_each(|x| mark.number(x.to_bits()));
        }
    }

    fn task(&self, member: &Member) -> Result<&SavedTask> {
        let missing = || {
            Error::data(format!("there are no statistics for task {:?}", member.name))
                .hint("mtz stats and mtz zip must get the same models under the same names")
        };
        self.tasks.iter().find(|t| t.name == member.name).ok_or_else(missing)
    }
}

impl StatisticsSource for SavedStatistics {
    fn layer(&mut self, joint: &Joint, layer: usize) -> Result<Vec<LayerStatistics>> {
        let of = |member: &Member| {
            let at = member.layers.get(layer).ok_or_else(|| Error::usage("there is no such layer"))?;
            let saved = self.task(member)?.layers.iter().find(|l| l.name == at.name);
            let saved = saved.filter(|l| l.moments.size() == at.columns() + 1).ok_or_else(|| {
                Error::data(format!("the statistics of {} lack this layer", member.name)).at_node(&at.name)
            })?;
            Ok(LayerStatistics { moments: saved.moments.clone(), samples: None })
        };
        joint.members.iter().map(of).collect()
    }
}
