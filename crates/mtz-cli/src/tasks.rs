//! Values that belong to a task: `age=faces.npz` to the task `age`, a bare `faces.npz` to every task.

use mtz::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A value, and the task it is for if it names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<T> {
    pub task: Option<String>,
    pub value: T,
}

impl<T: FromStr> FromStr for Named<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> std::result::Result<Self, T::Err> {
        // A file whose own name contains "=" is still a file, and a path in front of "=" is no name.
        let named = text.split_once('=').filter(|(task, _)| {
            !task.is_empty() && !task.contains(std::path::is_separator) && !Path::new(text).exists()
        });
        match named {
            Some((task, value)) => Ok(Self { task: Some(task.to_owned()), value: value.parse()? }),
            None => Ok(Self { task: None, value: text.parse()? }),
        }
    }
}

/// A switch for every task, or for the one that is named: `--raw`, `--raw=age`.
pub fn switch(task: &str) -> std::result::Result<Named<()>, String> {
    Ok(Named { task: Some(task.to_owned()).filter(|task| !task.is_empty()), value: () })
}

impl Named<PathBuf> {
    /// The task's name: given, or the file's stem.
    pub fn name(&self) -> String {
        let stem = || self.value.file_stem().map_or_else(|| "model".into(), |s| s.to_string_lossy().into_owned());
        self.task.clone().unwrap_or_else(stem)
    }
}

/// Refuses values for tasks that are not there.
pub fn check_names<T>(flag: &str, tasks: &[String], values: &[Named<T>]) -> Result<()> {
    match values.iter().filter_map(|v| v.task.as_deref()).find(|t| !tasks.iter().any(|task| task == t)) {
        Some(stranger) => {
            let names: Vec<String> = tasks.iter().map(|t| format!("{t:?}")).collect();
            let hint = format!("tasks here: {}; MODEL may be written NAME=PATH to call it otherwise", names.join(", "));
            Err(Error::usage(format!("--{flag} {stranger}=… names a task that is not there")).hint(hint))
        }
        None => Ok(()),
    }
}

/// Whether the value that [`value_for`] gives a task names it.
pub fn is_named<T>(task: &str, values: &[Named<T>]) -> bool {
    values.iter().any(|value| value.task.as_deref() == Some(task))
}

/// The value of `--flag` for a task: one that names it, or a bare one.
pub fn value_for<'a, T>(flag: &str, task: &str, values: &'a [Named<T>]) -> Result<Option<&'a T>> {
    let own: Vec<&T> = values.iter().filter(|v| v.task.as_deref() == Some(task)).map(|v| &v.value).collect();
    let bare: Vec<&T> = values.iter().filter(|v| v.task.is_none()).map(|v| &v.value).collect();
    match (own.as_slice(), bare.as_slice()) {
        ([one], _) | ([], [one]) => Ok(Some(one)),
        ([], []) => Ok(None),
        _ => Err(Error::usage(format!("--{flag} is given several times for task {task:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_off() {
        let named: Named<PathBuf> = "age=models/age.onnx".parse().unwrap();
        assert_eq!((named.name().as_str(), named.value), ("age", PathBuf::from("models/age.onnx")));
        let bare: Named<PathBuf> = "models/a=b.onnx".parse().unwrap();
        assert_eq!(bare.name(), "a=b");
    }

    #[test]
    fn a_named_value_wins_over_a_bare_one() {
        let values: Vec<Named<String>> = ["x", "age=y"].iter().map(|t| t.parse().unwrap()).collect();
        assert_eq!(value_for("data", "age", &values).unwrap(), Some(&"y".to_owned()));
        assert_eq!(value_for("data", "gender", &values).unwrap(), Some(&"x".to_owned()));
        assert!(check_names("data", &["age".to_owned()], &values).is_ok());
        assert!(check_names("data", &["gender".to_owned()], &values).is_err());
        assert!(value_for::<String>("data", "age", &[]).unwrap().is_none());
    }
}
