//! A zip that can be killed: after every layer the joint model so far and what is known about its layers are on disk.
//!
//! `state.json` is replaced last and in one step, and names the model it belongs to: whatever moment a run dies at, the folder holds one
//! complete state. The key says which run it is; a folder of another run is refused.

use crate::assemble;
use crate::error::{Error, Result};
use crate::onnx;
use crate::plan::Joint;
use crate::tensor::Element;
use serde_json::{Value as Json, json};
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Of the state.
const VERSION: u64 = 3;

/// The file that marks the folder of a run.
const LOCK: &str = "lock";

/// A folder that no other run may use at the same time: two would overwrite each other's state. The system releases it when the run ends, however it ends.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Makes the folder if there is none; refused if another run is at work there, or if it holds something that no run left.
    pub fn new(folder: &Path) -> Result<Self> {
        let io = |e| Error::io(folder, &e);
        std::fs::create_dir_all(folder).map_err(io)?;
        let path = folder.join(LOCK);
        // A run locks its folder before it writes anything there.
        if !path.is_file() && std::fs::read_dir(folder).map_err(io)?.next().is_some() {
            let text = format!("{} has files in it that are no checkpoint", folder.display());
            return Err(
                Error::usage(text).hint("give --checkpoint a new or an empty folder, or that of an earlier run")
            );
        }
        let file = File::options().create(true).append(true).open(&path).map_err(|e| Error::io(&path, &e))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                Err(Error::usage(format!("another run is at work in {}", folder.display()))
                    .hint("wait until it has ended, or give this one another --checkpoint"))
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

    /// What was saved last: the joint model, and what was said about it.
    pub fn load(&self) -> Result<Option<(Joint, Json)>> {
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
                .hint("go on with the same models, data, flags and version, or give another --checkpoint"));
        }
        // A name, never a path that leads elsewhere.
        let model = state["model"].as_str().filter(|name| !name.contains(['/', '\\'])).ok_or_else(broken)?;
        let joint = assemble::from_graph(&onnx::read(&self.folder.join(model))?)?.ok_or_else(broken)?;
        Ok(Some((joint, state["about"].clone())))
    }

    /// Saves the state after `step` steps.
    pub fn save(&self, step: usize, joint: &Joint, about: &Json) -> Result<()> {
        let name = |step: usize| format!("joint-{step}.onnx");
        // In full precision whatever the result will be stored as: a run that goes on must not differ from one that was never stopped.
        let graph = assemble::to_graph(joint, false)?.with_element(Element::F32);
        onnx::write(&graph, &self.folder.join(name(step)))?;
        let state = json!({ "version": VERSION, "key": self.key, "model": name(step), "about": about });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cat.jpg"), "x").unwrap();
        let error = Checkpoint::open(folder.path(), "a".into()).unwrap_err();
        assert!(error.to_string().contains("no checkpoint"), "{error}");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("--checkpoint")));
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
