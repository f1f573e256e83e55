//! Who shares what: derived from the graphs before any number is computed.

mod correspondence;
mod count;
mod joint;
mod layers;
mod owners;
mod units;

pub use count::Share;
pub use joint::{Column, Joint, Member};
pub(crate) use layers::unique;
pub use layers::{FreeNorm, Layer, Norm, Refit, Source, Sum};
pub use owners::{OwnerSet, by_owner_set};
pub use units::{Unit, Units, permute_hidden, reorder};
