//! Sorted runs: forming them, writing them, what is known of them, where they are kept.
//!
//! ```text
//!   pieces ─▶ form ─▶ loads ─▶ spill ─▶ run_file in spill_dirs, named by store
//!                       ╰─▶ natural_runs ─▶ input_chunks (records stay in the inputs)
//! ```

pub mod background_unlink;
pub mod fence_keys;
pub mod form;
pub mod input_chunks;
pub mod natural_runs;
pub mod run_file;
pub mod spill;
pub mod store;
