//! Sorted runs: how they are formed, written, described and stored.
//!
//! ```text
//!   chunks ─▶ form ─▶ run buffers ─▶ spill, in the directories of store ─▶ run_file, for the merge
//!                       ╰─▶ natural_runs ─▶ input_chunks (records stay in the inputs)
//! ```

pub mod background_unlink;
pub mod compression;
pub mod fence_keys;
pub mod form;
pub mod input_chunks;
pub mod natural_runs;
pub mod run_file;
pub mod spill;
pub mod spill_dirs;
pub mod store;
pub mod view_index;

pub(crate) use background_unlink::BackgroundUnlink;
pub(crate) use compression::SpillCompression;
pub(crate) use fence_keys::{FenceKey, KeysWriter, Rest, RunKeys};
pub(crate) use form::{Gather, RunBuffer, SortMemory, sort_run_buffers};
pub(crate) use input_chunks::{Bench, ChunkInput};
pub(crate) use natural_runs::{NaturalRuns, find_natural_runs};
pub(crate) use run_file::{
    Assembly, IndexPlace, KeptIndex, KeysOfRun, Run, RunBlock, RunInput, RunStart, encode_index, write_whole,
};
pub(crate) use spill::{RunSink, Spill};
pub(crate) use spill_dirs::SpillDirs;
pub(crate) use store::{
    Finished, HeldInput, JobDir, Keeping, LOCK, MANIFEST, Manifest, MergingGroup, OpenPart, OpenSpill,
    OutputState, PREFIX, SplitNode, SplitState, StoredMethod, StoredView, UNSEEN, VIEW_MANIFEST, check_line,
    hold_dead, is_empty, load, remove_ours,
};
#[cfg(test)]
pub(crate) use view_index::read_keys;
pub(crate) use view_index::{VIEW_INDEX, ViewIndex};
