//! What can go wrong, said so that the user can act on it: what, at which node, and what to do next.

use std::fmt;
use std::path::Path;

/// The library's result.
pub type Result<T> = std::result::Result<T, Error>;

/// The family an error belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file could not be read or written.
    Io,
    /// A model file is damaged or contradicts itself.
    Model,
    /// A model is fine but uses something this program does not know.
    Unsupported,
    /// A data file is damaged, or does not fit the model.
    Data,
    /// The request itself makes no sense.
    Usage,
    /// The work would need more memory than allowed.
    Limit,
    /// The caller stopped the work.
    Cancelled,
}

/// An error with the node it happened at and a hint for the user. Boxed, so that results stay small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Details>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Details {
    kind: ErrorKind,
    message: String,
    file: Option<String>,
    node: Option<String>,
    hint: Option<String>,
    items: Vec<String>,
}

impl Error {
    /// An error of the given kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Details { kind, message: message.into(), file: None, node: None, hint: None, items: Vec::new() }))
    }

    /// A file that cannot be read or written.
    pub fn io(path: &Path, cause: &std::io::Error) -> Self {
        if cause.kind() == std::io::ErrorKind::NotFound {
            let missing = Self::new(ErrorKind::Io, format!("{}: there is no such file or folder", path.display()));
            return missing.hint("check the spelling; paths start from the folder the program was called in");
        }
        Self::new(ErrorKind::Io, format!("{}: {cause}", path.display()))
    }

    /// A damaged or contradictory model.
    pub fn model(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Model, message)
    }

    /// Something this program does not know.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Damaged or unfitting data.
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Data, message)
    }

    /// A request that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// Work that would not fit into memory.
    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Limit, message)
    }

    /// Work that the caller stopped.
    pub fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, "stopped")
    }

    /// Names the node, unless a more precise place is known already.
    #[must_use]
    pub fn at_node(mut self, name: &str) -> Self {
        self.0.node.get_or_insert_with(|| name.to_owned());
        self
    }

    /// Says what the user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Puts the file in front of the message.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.0.file.get_or_insert_with(|| path.display().to_string());
        self
    }

    /// Adds the single offences behind the error, one line each.
    #[must_use]
    pub fn with_items(mut self, items: Vec<String>) -> Self {
        self.0.items = items;
        self
    }

    /// The family of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What went wrong, without file and node.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The node it happened at.
    pub fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }

    /// What the user can do about it.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The single offences, where there are several.
    pub fn items(&self) -> &[String] {
        &self.0.items
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.0.file {
            write!(f, "{file}: ")?;
        }
        if let Some(node) = &self.0.node {
            write!(f, "node {node:?}: ")?;
        }
        f.write_str(&self.0.message)?;
        for item in &self.0.items {
            write!(f, "\n  {item}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
