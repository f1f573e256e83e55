//! A zip that can be killed: after every layer the joint model so far and what is known about its layers are on disk.
//!
//! `state.json` is replaced last and in one step, and names the model it belongs to: whatever moment a run dies at, the
//! folder holds one complete state. The key says which run it is; a folder of another run is refused.

use super::layer_report::LayerReport;
use super::options::{TaskData, ZipOptions};
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::graph::Graph;
use crate::joint_file;
use crate::onnx;
use crate::sharing::Joint;
use crate::statistics_file::SavedStatistics;
use crate::tensor::Element;
use serde_json::{Value as Json, json};
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Of the state.
const VERSION: u64 = 5;

/// The file that marks the folder of a run.
const LOCK: &str = "lock";

/// A folder that no other run may use at the same time: two would overwrite each other's state. The system releases it
/// when the run ends, however it ends.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Makes the folder if there is none; refused if another run is at work there, or if it holds something that no run
    /// left.
    pub fn new(folder: &Path) -> Result<Self> {
        let io = |e| Error::io(folder, &e);
        std::fs::create_dir_all(folder).map_err(io)?;
        let path = folder.join(LOCK);
        // A run locks its folder before it writes anything there.
        if !path.is_file() && std::fs::read_dir(folder).map_err(io)?.next().is_some() {
            let text = format!("{} has files in it that are no checkpoint", folder.display());
            return Err(
                Error::usage(text).hint("give `checkpoint` a new or an empty folder, or that of an earlier run")
            );
        }
        let file = File::options().create(true).append(true).open(&path).map_err(|e| Error::io(&path, &e))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                Err(Error::usage(format!("another run is at work in {}", folder.display()))
                    .hint("wait until it has ended, or give this one another `checkpoint`"))
            }
            // Where files cannot be locked, nobody can tell.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Self { _file: file }),
        }
    }
}

/// A folder with the state of one run.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    key: String,
    _lock: FolderLock,
}

impl Checkpoint {
    /// The folder of the run with this key; it is made if there is none.
    pub fn open(folder: &Path, key: String) -> Result<Self> {
        Ok(Self { folder: folder.to_owned(), key, _lock: FolderLock::new(folder)? })
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state.json")
    }

    /// What was saved last: the joint model and the reports of its layers.
    pub(super) fn load(&self) -> Result<Option<(Joint, Vec<LayerReport>)>> {
        let path = self.state();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io(&path, &e)),
        };
        let broken = || Error::data(format!("{} is damaged", path.display())).hint("remove the folder to begin anew");
        let state: Json = serde_json::from_slice(&bytes).map_err(|_| broken())?;
        if state["version"] != VERSION || state["key"] != self.key {
            return Err(Error::usage(format!("{} belongs to another run", self.folder.display()))
                .hint("go on with the same models, data, flags and version, or give another `checkpoint`"));
        }
        // A name, never a path that leads elsewhere.
        let model = state["model"].as_str().filter(|name| !name.contains(['/', '\\'])).ok_or_else(broken)?;
        // The state speaks of this file and of no other.
        if state["model_hash"].as_str() != Some(hash(&self.folder.join(model))?.as_str()) {
            return Err(broken());
        }
        let joint = joint_file::from_graph(&onnx::read(&self.folder.join(model))?)?.ok_or_else(broken)?;
        let layers = serde_json::from_value(state["layers"].clone()).map_err(|_| broken())?;
        Ok(Some((joint, layers)))
    }

    /// Saves the state after `step` steps.
    pub(super) fn save(&self, step: usize, joint: &Joint, layers: &[LayerReport]) -> Result<()> {
        let name = |step: usize| format!("joint-{step}.onnx");
        // In full precision whatever the result will be stored as: a run that goes on must not differ from one that was
        // never stopped.
        let graph = joint_file::to_graph(joint, false)?.with_element(Element::F32);
        onnx::write(&graph, &self.folder.join(name(step)))?;
        let hash = hash(&self.folder.join(name(step)))?;
        let state = json!({
            "version": VERSION, "key": self.key, "model": name(step), "model_hash": hash, "layers": layers,
        });
        let path = self.state();
        let io = |e| Error::io(&path, &e);
        let mut file = tempfile::NamedTempFile::new_in(&self.folder).map_err(io)?;
        file.write_all(state.to_string().as_bytes()).map_err(io)?;
        file.as_file().sync_all().map_err(io)?;
        file.persist(&path).map_err(|e| Error::io(&path, &e.error))?;
        if let Some(before) = step.checked_sub(1) {
            // Nobody needs it any more; if it cannot be removed, it only takes space.
            let _ = std::fs::remove_file(self.folder.join(name(before)));
        }
        Ok(())
    }
}

/// The hash of a file's bytes.
fn hash(path: &Path) -> Result<String> {
    let io = |e: std::io::Error| Error::io(path, &e);
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path).map_err(io)?).map_err(io)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// What makes a run this one and no other: if any of it changes, so may the result.
pub(super) fn fingerprint(
    originals: &[Graph],
    tasks: &[TaskData],
    samples: &[Vec<usize>],
    options: &ZipOptions,
    statistics: Option<&SavedStatistics>,
) -> Result<String> {
    let mut print = Fingerprint::default();
    statistics.iter().for_each(|statistics| statistics.mark(&mut print));
    print.text(env!("CARGO_PKG_VERSION"));
    print.text(&format!("{:?}", options.clone().with(|o| o.resources.checkpoint = None)));
    originals.iter().for_each(|graph| print.network(graph));
    for (task, samples) in tasks.iter().zip(samples) {
        print.text(&task.name);
        print.number(task.weight.to_bits());
        print.number(u64::from(task.mirrored));
        print.text(&format!("{:?}", task.kind));
        task.original.iter().for_each(|graph| print.network(graph));
        let learn = task.samples.iter().flatten();
        let test = task.test.iter().flat_map(|(_, samples)| samples);
        [task.train.len()].iter().chain(samples).chain(learn).chain(test).for_each(|s| print.number(*s as u64));
        // What is in the files, and how it is prepared, shows in a few samples and the labels.
        let some = |all: &[usize]| -> Vec<usize> { all.iter().copied().step_by((all.len() / 16).max(1)).collect() };
        let feeds = [Some((task.train, some(samples))), task.test.as_ref().map(|(feed, all)| (*feed, some(all)))];
        for (feed, some) in feeds.into_iter().flatten() {
            feed.batch(&some)?.data().iter().for_each(|x| print.number(u64::from(x.to_bits())));
            print.labels(feed.labels());
        }
    }
    Ok(print.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cat.jpg"), "x").unwrap();
        let error = Checkpoint::open(folder.path(), "a".into()).unwrap_err();
        assert!(error.to_string().contains("no checkpoint"), "{error}");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("`checkpoint`")));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn two_runs_cannot_share_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = Checkpoint::open(folder.path(), "a".into()).unwrap();
        let error = Checkpoint::open(folder.path(), "a".into()).unwrap_err();
        assert!(error.to_string().contains("another run is at work"), "{error}");
        drop(first);
        Checkpoint::open(folder.path(), "a".into()).unwrap();
    }
}
