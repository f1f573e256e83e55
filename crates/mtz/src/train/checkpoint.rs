//! A training run that can be killed: now and then weights, the optimizer's memory and the number of steps go to a
//! file, and the same run goes on from there to the same bytes. A file of another run, or a damaged one, is as good as
//! none.

use super::learn::{Goal, Imitation, Learner, Rule};
use super::optimizer::Optimizer;
use super::parameters::Parameters;
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a run writes; large networks take a second to be written.
const EVERY: Duration = Duration::from_secs(120);

/// Where a run keeps its state.
#[derive(Clone, Debug)]
pub struct TrainingCheckpoint {
    path: PathBuf,
    every: Duration,
}

impl TrainingCheckpoint {
    /// In this file.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), every: EVERY }
    }

    /// The same, written after every so much time.
    #[must_use]
    pub fn every(self, every: Duration) -> Self {
        Self { every, ..self }
    }

    /// What the run led to is safe elsewhere: nobody goes on from here.
    pub fn close(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    /// Opens it for a run: everything that decides about its result goes into the mark.
    pub(super) fn open(&self, learners: &[Learner], steps: usize, how: &Rule) -> OpenCheckpoint {
        let mut mark = Fingerprint::default();
        mark.text(&format!("{} {steps} {how:?}", env!("CARGO_PKG_VERSION")));
        for learner in learners {
            mark.network(learner.graph);
            if let Goal::Teacher { graph, answers, labels, features } = &learner.goal {
                mark.network(graph);
                for answer in *answers {
                    match answer {
                        Imitation::Values { precision } => {
                            precision.iter().for_each(|p| mark.number(u64::from(p.to_bits())))
                        }
                        other => mark.text(&format!("{other:?}")),
                    }
                }
                mark.text(&format!("{labels} {features}"));
            }
            mark.text(&format!("{} {} {}", learner.weight, learner.batch_factor, learner.mirrored));
            learner.samples.iter().for_each(|i| mark.number(*i as u64));
            // Other data shows in a few samples.
            let some: Vec<usize> =
                learner.samples.iter().copied().step_by((learner.samples.len() / 16).max(1)).collect();
            let batch = learner.feed.batch(&some);
            batch.iter().flat_map(|b| b.data()).for_each(|x| mark.number(u64::from(x.to_bits())));
            mark.labels(learner.feed.labels());
        }
        let head = format!("mtz training, state 1, {}\n", mark.finish());
        OpenCheckpoint {
            path: self.path.clone(),
            steps,
            every: self.every,
            head: head.into_bytes(),
            written: Instant::now(),
        }
    }
}

/// All numbers that a run changes.
fn state<'a>(parameters: &'a mut Parameters, optimizer: &'a mut Optimizer) -> impl Iterator<Item = &'a mut Vec<f32>> {
    parameters.iter_mut().map(|p| &mut p.data).chain(optimizer.memory_mut())
}

/// The checkpoint of one run.
pub(super) struct OpenCheckpoint {
    path: PathBuf,
    /// Of the whole run.
    steps: usize,
    every: Duration,
    /// What the file begins with.
    head: Vec<u8>,
    written: Instant,
}

impl OpenCheckpoint {
    /// Goes to where the run was; how many steps that is.
    pub fn load(&self, parameters: &mut Parameters, optimizer: &mut Optimizer) -> Result<usize> {
        self.read(parameters, optimizer).map_err(|e| Error::io(&self.path, &e))
    }

    fn read(&self, parameters: &mut Parameters, optimizer: &mut Optimizer) -> std::io::Result<usize> {
        let file = match std::fs::File::open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            Err(e) => return Err(e),
        };
        let count: usize = state(parameters, optimizer).map(|numbers| numbers.len()).sum();
        if file.metadata()?.len() != (self.head.len() + 8 + 4 * count) as u64 {
            return Ok(0);
        }
        let mut file = BufReader::new(file);
        let (mut head, mut steps) = (vec![0; self.head.len()], [0; 8]);
        file.read_exact(&mut head)?;
        file.read_exact(&mut steps)?;
        let steps = usize::try_from(u64::from_le_bytes(steps)).unwrap_or(usize::MAX);
        if head != self.head || steps > self.steps {
            return Ok(0);
        }
        let mut bytes = Vec::new();
        for numbers in state(parameters, optimizer) {
            bytes.resize(4 * numbers.len(), 0);
            file.read_exact(&mut bytes)?;
            for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *number = f32::from_le_bytes(*bytes);
            }
        }
        optimizer.set_steps(steps);
        Ok(steps)
    }

    /// Writes if it is time to.
    pub fn note(&mut self, steps: usize, parameters: &mut Parameters, optimizer: &mut Optimizer) -> Result<()> {
        if self.written.elapsed() < self.every {
            return Ok(());
        }
        self.write(steps, parameters, optimizer).map_err(|e| Error::io(&self.path, &e))?;
        self.written = Instant::now();
        Ok(())
    }

    /// In one step: who reads sees a whole state or none.
    fn write(&self, steps: usize, parameters: &mut Parameters, optimizer: &mut Optimizer) -> std::io::Result<()> {
        let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::NamedTempFile::new_in(folder)?;
        let mut out = BufWriter::new(file);
        out.write_all(&self.head)?;
        out.write_all(&(steps as u64).to_le_bytes())?;
        for numbers in state(parameters, optimizer) {
            for number in numbers.iter() {
                out.write_all(&number.to_le_bytes())?;
            }
        }
        let file = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|e| e.error)?;
        Ok(())
    }

    /// Writes the state after the last step.
    pub fn end(&self, parameters: &mut Parameters, optimizer: &mut Optimizer) -> Result<()> {
        self.write(self.steps, parameters, optimizer).map_err(|e| Error::io(&self.path, &e))
    }
}
