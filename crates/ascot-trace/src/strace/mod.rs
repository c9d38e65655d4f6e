//! The log of strace: lines become calls, calls become events.
//!
//! ```text
//!   resolve       threads, processes, and the calls of each
//!   calls         the calls on files
//!   files         names, lengths and ends of files
//!   descriptors   numbers that refer to open files
//!   order         events in the order of their times
//!   line          a line as slices
//!   unseen        what a log does not show
//!   version       the strace that is installed
//! ```
//!
//! Memory grows with the files, the processes and their open descriptors, not with the length of the log.

mod calls;
mod descriptors;
mod files;
mod line;
mod order;
mod resolve;
#[cfg(test)]
mod tests;
mod unseen;
pub mod version;

pub use calls::{Inherited, Start};
pub use line::may_be_a_file;
pub use resolve::{Resolved, convert};
pub use unseen::Unseen;

/// The signals whose lines a log must have, with the processes that they kill: not those that kill none.
pub const SIGNALS: &str = "!SIGCHLD,SIGURG,SIGWINCH,SIGCONT,SIGSTOP,SIGTSTP,SIGTTIN,SIGTTOU";

/// The system calls that a log must have. A question mark stands before those that some machines lack; programs of
/// 32 bits have forms of their own (`_llseek`, `fcntl64`).
pub const CALLS: &str = "?open,openat,?openat2,?creat,close,?close_range,dup,?dup2,dup3,fcntl,?fcntl64,read,write,\
pread64,pwrite64,readv,writev,preadv,pwritev,?preadv2,?pwritev2,sendfile,?sendfile64,?copy_file_range,splice,lseek,\
?_llseek,ftruncate,?ftruncate64,truncate,?truncate64,fallocate,?rename,?renameat,?renameat2,?unlink,unlinkat,?link,\
linkat,chdir,fchdir,clone,?clone3,?fork,?vfork,execve,?execveat,ioctl,?io_uring_setup,?io_setup,?mmap,?mmap2,chroot,\
pivot_root";
