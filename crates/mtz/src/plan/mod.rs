//! What can be shared, and where: derived from the graphs before any number is computed.

mod correspondence;
mod joint;
mod layers;
mod units;

pub use joint::{Column, Joint, Member};
pub(crate) use layers::unique;
pub use layers::{FreeNorm, Layer, Norm, Refit, Source, Sum};
pub use units::{Unit, Units, permute_hidden, reorder};
