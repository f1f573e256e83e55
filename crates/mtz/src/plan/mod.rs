//! What can be shared, and where: derived from the graphs before any number is computed.

mod units;

pub use units::{Unit, Units, permute_hidden, reorder};
