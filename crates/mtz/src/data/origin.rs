//! Whose samples they are and where they come from: errors and notes name the task and the file.

use crate::error::Error;
use std::path::{PathBuf, is_separator};

/// The task samples belong to, and the file or folder they are in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The task, where there are several.
    pub task: Option<String>,
    /// The file or folder.
    pub path: Option<PathBuf>,
}

impl Origin {
    /// `task age: faces.npz: text`, without what is not known and without a path that the text begins with already.
    pub fn named(&self, text: &str) -> String {
        let task = self.task.as_ref().map_or_else(String::new, |task| format!("task {task}: "));
        let begins_with = |path: &String| {
            text.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with(|c| c == ':' || is_separator(c)))
        };
        let path = self.path.as_ref().map(|path| path.display().to_string()).filter(|path| !begins_with(path));
        format!("{task}{}{text}", path.map_or_else(String::new, |path| format!("{path}: ")))
    }

    /// The error with task and file in front.
    pub fn error(&self, error: Error) -> Error {
        let named = Error::new(error.kind(), self.named(&error.to_string()));
        match error.hint_text() {
            Some(hint) => named.hint(hint),
            None => named,
        }
    }

    /// The error, with a hint how to do without labels behind its own.
    pub(super) fn label_error(&self, error: Error) -> Error {
        let task = self.task.as_ref().map_or_else(String::new, |task| format!("{task}="));
        let own = error.hint_text().map_or_else(String::new, |hint| format!("{hint}; "));
        error.hint(format!("{own}`label` {task}none goes on without labels"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_named_once() {
        let origin = Origin { task: Some("age".into()), path: Some("faces.npz".into()) };
        assert_eq!(origin.named("no samples"), "task age: faces.npz: no samples");
        assert_eq!(origin.named("faces.npz: no samples"), "task age: faces.npz: no samples");
        assert_eq!(origin.named("faces.npzs"), "task age: faces.npz: faces.npzs");
        let folder = Origin { task: None, path: Some("cats".into()) };
        assert_eq!(folder.named("cats/1.png: no image"), "cats/1.png: no image");
        assert_eq!(Origin::default().named("no samples"), "no samples");
        let error = origin.label_error(Error::data("7 is no class").hint("classes are counted 0, 1, 2, …"));
        assert!(error.hint_text().is_some_and(|h| h.starts_with("classes") && h.contains("`label` age=none")));
    }
}
