//! The extension module `ascot._native`: it takes requests of the Python package, calls the libraries, and returns
//! plain results. It contains no algorithm, and no text for people beyond that of the libraries.
//!
//! ```text
//!   request            a dictionary of the package, as a request for a library
//!   jobs, tools        sort, merge, split, explain; generate and check records
//!   plans              plans without files, simulations, measurements of volumes
//!   cluster            chunks, batches and partitions of a sort on a cluster
//!   cluster_connections  batches between its nodes
//!   views, indexes     open views and indexed directories; `view_batches` and `index_batches` give them as Arrow
//!   index_writer       writers of indexed directories; `index_columns` has their keys and values
//!   arrow              Python objects as Arrow batches, and batches as Python objects
//!   lab, traces        studies, and the I/O of programs, whose results are tables
//!   running            a job on a thread of its own: the interpreter is released, signals and progress are polled
//!   errors             errors of the libraries as exceptions of the package
//! ```
//!
//! The package (`python/ascot`) has the interface for users; the functions here may change with it.

mod arrow;
mod cluster;
mod cluster_connections;
mod cluster_plans;
mod cluster_pull;
mod errors;
mod index_batches;
mod index_columns;
mod index_writer;
mod indexes;
mod jobs;
mod lab;
mod plans;
mod request;
mod running;
mod tables;
mod tools;
mod traces;
mod view_batches;
mod views;

use pyo3::pymodule;

/// The functions that the package calls. All classes are `frozen`, and so `Sync`, which needs no lock of the
/// interpreter.
#[pymodule(gil_used = false)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::arrow::{
        Batch, BatchStream, Flow, StreamEnd, StreamJob, begin_flow, check_batches, pass_batches,
        run_on_batches, sort_to_batches,
    };
    #[pymodule_export]
    use super::cluster::{
        ChunkMapper, PartitionFiles, RowSearch, choose_bounds, cluster_inputs, count_partitions, make_batch,
        mapper_bytes, read_chunk, remove_leftovers, sample_chunk, sort_partition, sum_records,
        uniform_bounds,
    };
    #[pymodule_export]
    use super::cluster_connections::{BatchSender, BatchServer, FetchServer, Fetcher};
    #[pymodule_export]
    use super::cluster_plans::{cheapest_cluster, plan_cluster};
    #[pymodule_export]
    use super::cluster_pull::{SpilledChunks, join_chunks, seal_chunk, spill_chunk};
    #[pymodule_export]
    use super::index_batches::{index_get, index_range};
    #[pymodule_export]
    use super::index_writer::{IndexWriter, open_writer};
    #[pymodule_export]
    use super::indexes::{Batches, Index, open_index};
    #[pymodule_export]
    use super::jobs::{explain, make_view, resume, sort, split};
    #[pymodule_export]
    use super::lab::{lab_disk, lab_net, lab_sorts, lab_streams, read_lab_sorts, read_lab_streams};
    #[pymodule_export]
    use super::plans::{plan, probe, simulate};
    #[pymodule_export]
    use super::request::spill_directories;
    #[pymodule_export]
    use super::running::stop_all;
    #[pymodule_export]
    use super::tables::Table;
    #[pymodule_export]
    use super::tools::{
        bytes_text, check, check_part, count_text, generate, memory_bytes, seconds_text, size_bytes,
    };
    #[pymodule_export]
    use super::traces::{Trace, compare_traces, open_trace, page_style};
    #[pymodule_export]
    use super::view_batches::view_batches;
    #[pymodule_export]
    use super::views::{OpenedView, ViewReader, open_view};

    /// Jobs without a waiting caller end before the interpreter does.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let stop_all = module.getattr("stop_all")?;
        module.py().import("atexit")?.call_method1("register", (stop_all,)).map(drop)
    }

    /// The version of the package.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python gives a version")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// Maximum number of batches of a chunk for one destination.
    #[pymodule_export]
    const BATCHES_MAX: u32 = ascot_sort::shuffle::batch::BATCHES_MAX;
}
