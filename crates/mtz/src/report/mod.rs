//! The result of a zip for people and programs: [`RunReport`] is its data, [`page`] shows it.
//!
//! There is one report. Programs read it as JSON ([`RunReport::to_json`], [`RunReport::from_json`]); tables and the
//! page are made from it. So none of them can say what the others do not.
//!
//! ```no_run
//! use mtz::report::{RunFacts, RunReport, page};
//! use mtz::zip::{TaskData, Zipped};
//!
//! fn json_and_page(zipped: &Zipped, tasks: &[TaskData]) -> mtz::Result<(String, String)> {
//!     let report = RunReport::new(zipped, tasks, RunFacts::default());
//!     Ok((report.to_json()?, page(&report)))
//! }
//! ```

mod budget;
mod build;
mod by_name;
mod date;
mod page;
mod run_report;
mod text;
mod warnings;

pub use budget::{BudgetPointRecord, BudgetRecord, TargetSize};
pub use build::RunFacts;
pub use by_name::ByName;
pub use page::page;
pub use run_report::{
    BeforeAfter, LayerRecord, LossRecord, MAX_BYTES, Machine, MeasuredOn, OwnerRecord, ParameterRecord, PrivateRecord,
    RunReport, TaskRecord,
};
pub use text::{in_bytes, in_threes, in_time};
pub use warnings::near_chance;
