//! Where results are written: checked before any work begins, and replaced in one step.

use mtz::error::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Ends of files that this program writes. Only these are ever replaced inside a folder of data.
const WRITTEN: [&str; 5] = ["onnx", "html", "json", "stats", "svg"];

/// Fails before any work begins if the output could not be written, or would replace one of `inputs`: files that are
/// read, or folders of data. Neither an input nor something that is no ordinary file is replaced, whatever `force`
/// says.
pub fn check(path: &Path, force: bool, inputs: &[&Path]) -> Result<()> {
    if path.is_dir() {
        return Err(Error::usage(format!("{} is a folder", path.display())).hint("give the name of a file"));
    }
    if path.exists() {
        if !path.is_file() {
            return Err(Error::usage(format!("{} is no ordinary file", path.display()))
                .hint("give the name of a file that may be written"));
        }
        if inputs.iter().any(|input| would_replace(path, input)) {
            return Err(Error::usage(format!("{} is an input", path.display()))
                .hint("write the result under another name; --force replaces no inputs"));
        }
        if !force {
            return Err(Error::usage(format!("{} exists", path.display())).hint("--force replaces it"));
        }
    }
    let probe = folder_of(path).join(format!(".mtz-{}", std::process::id()));
    std::fs::File::create_new(&probe)
        .map_err(|e| Error::io(path, &e).hint("is there such a folder, and may you write there?"))?;
    std::fs::remove_file(&probe).map_err(|e| Error::io(&probe, &e))
}

/// Whether writing to an existing `path` would replace an input: that file, weights in a file of their own beside it,
/// or a file in a folder of data.
fn would_replace(path: &Path, input: &Path) -> bool {
    let (Ok(output), Ok(own)) = (path.canonicalize(), input.canonicalize()) else { return false };
    if own.is_dir() {
        let written = output.extension().and_then(|e| e.to_str()).is_some_and(|e| WRITTEN.contains(&e));
        return output.starts_with(&own) && !written;
    }
    files(&own).iter().any(|file| *file == output || same_file(&output, file))
}

/// The files a model stands in, weights beside it included. What is no model is one file.
fn files(model: &Path) -> BTreeSet<PathBuf> {
    mtz::onnx::files(model).unwrap_or_else(|_| [model.to_owned()].into())
}

/// What a model takes on disk, weights beside it included.
pub fn model_bytes(model: &Path) -> u64 {
    files(model).iter().filter_map(|file| std::fs::metadata(file).ok()).map(|m| m.len()).sum()
}

/// Whether two names are those of one file.
#[cfg(unix)]
fn same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    id(one).is_some_and(|own| Some(own) == id(other))
}

#[cfg(not(unix))]
fn same_file(_: &Path, _: &Path) -> bool {
    false
}

/// Fails before any work begins if one output would replace the other.
pub fn check_different(one: &Path, other: &Path) -> Result<()> {
    let place = |path: &Path| -> (PathBuf, _) {
        let folder = folder_of(path);
        (folder.canonicalize().unwrap_or_else(|_| folder.to_owned()), path.file_name().map(ToOwned::to_owned))
    };
    if place(one) == place(other) {
        let name = one.display();
        return Err(Error::usage(format!("{name} cannot be both outputs")).hint("give the two files different names"));
    }
    Ok(())
}

/// Writes a text file so that a reader never sees half of it.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|e| {
        let _ = std::fs::remove_file(&temporary);
        Error::io(path, &e)
    })
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exporters call the file of the weights what they like: its name stands in the model.
    #[test]
    fn weights_beside_a_model_belong_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../mtz/tests/golden/external.npz");
        let mut archive = mtz::data::Archive::open(Path::new(golden)).unwrap();
        let mut bytes = |name: &str| -> Vec<u8> {
            archive.array(name).unwrap().numbers().unwrap().iter().map(|x| *x as u8).collect()
        };
        let (model, weights) = (folder.path().join("model.onnx"), folder.path().join("weights/external.bin"));
        std::fs::create_dir(folder.path().join("weights")).unwrap();
        let sizes = [("model", &model), ("weights", &weights)].map(|(name, path)| {
            std::fs::write(path, bytes(name)).unwrap();
            bytes(name).len() as u64
        });
        assert_eq!(model_bytes(&model), sizes[0] + sizes[1]);
        for input in [&model, &weights] {
            let error = check(input, true, &[&model]).unwrap_err();
            assert!(error.to_string().contains("is an input"), "{error}");
        }
    }

    #[test]
    fn inputs_are_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, "x").unwrap();
            path
        };
        let (model, image, old) = (file("a.onnx"), file("face.png"), file("joint.onnx"));
        assert!(check(&model, true, &[&model]).is_err());
        assert!(check(&image, true, &[folder.path()]).is_err());
        assert!(check(&old, true, &[&model, folder.path()]).is_ok());
        assert!(check(&old, false, &[]).is_err());
        assert!(check(&folder.path().join("new.onnx"), false, &[&model, folder.path()]).is_ok());
        #[cfg(unix)]
        {
            std::fs::hard_link(&model, folder.path().join("b.onnx")).unwrap();
            std::os::unix::fs::symlink(&model, folder.path().join("c.onnx")).unwrap();
            assert!(check(&folder.path().join("b.onnx"), true, &[&model]).is_err());
            assert!(check(&folder.path().join("c.onnx"), true, &[&model]).is_err());
            assert!(check(Path::new("/dev/null"), true, &[]).is_err());
        }
        assert!(check_different(&folder.path().join("x"), &folder.path().join("./x")).is_err());
    }
}
