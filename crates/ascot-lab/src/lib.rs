//! The lab: studies that measure streams, merge sorts, disks and networks, and hold the results against the models.
//!
//! ```text
//!   streams/        element streams: back-ends x N x k x B, reading and writing (Heinrich et al., section 3)
//!   sorts/          the merge sort of those streams over N, M and d (Heinrich et al., section 4)
//!   disk/           DiskBench: the reads and writes of a sort, without the sort (Conley et al., section 3)
//!   net/            NetBench: all to all, without disks (Conley et al., section 3)
//!   whole           streams and merge sorts as one study
//!   page/           a study as one HTML page
//!   table           results as they are kept: one row for each finished measurement
//!   text_table      tables of text, for the page and for summaries
//!   place           where a study measures
//!   times           the times of loops, summed up
//!   page_cache      taking files out of the page cache
//!   work_dir        the private directory of the files that are measured
//!   corrections     forecasts corrected by the measurements so far
//!   parameter_file  files of parameters
//!   observe         progress, and the way to stop
//!   error           errors of all studies
//! ```
//!
//! Sources: M. E. Heinrich, J. Kambayatughar and T. Thanasi, "Algorithms in Secondary Memory" (2018); M. Conley, A.
//! Vahdat and G. Porter, "Sorting 100 TB on Google Compute Engine" (2015).
//!
//! Every study predicts its time before it starts, and shows the counts beside the figures of a formula. Those of
//! streams and merge sorts keep each finished measurement, and continue after the last one when they are started again.
//! Nothing here takes part in a job.

mod corrections;
pub mod disk;
pub mod error;
pub mod files;
pub mod net;
pub mod observe;
pub mod page;
mod page_cache;
mod parameter_file;
pub mod place;
pub mod sorts;
pub mod streams;
pub mod table;
pub mod text_table;
pub mod times;
pub mod whole;
pub mod work_dir;

pub use error::LabError;
pub use observe::{Finished, Observer, Planned, Progress, Stop};
