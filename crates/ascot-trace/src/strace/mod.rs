//! The log of strace: lines become calls, calls become events.
//!
//! ```text
//!   resolve       threads, processes, and the calls of each
//!   calls         the calls on files
//!   files         names, lengths and ends of files
//!   descriptors   numbers that refer to open files
//!   order         events in the order of their times
//!   line          a line as slices
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

pub use calls::{Inherited, Start, may_be_a_file};
pub use resolve::{Resolved, convert};

/// The signals whose lines a log must have, with the processes that they kill: not those that kill none.
pub const SIGNALS: &str = "!SIGCHLD,SIGURG,SIGWINCH,SIGCONT,SIGSTOP,SIGTSTP,SIGTTIN,SIGTTOU";

/// The system calls that a log must have. A question mark stands before those that some machines lack.
pub const CALLS: &str = "?open,openat,?openat2,?creat,close,?close_range,dup,?dup2,dup3,fcntl,read,write,pread64,\
pwrite64,readv,writev,preadv,pwritev,?preadv2,?pwritev2,sendfile,?copy_file_range,splice,lseek,ftruncate,truncate,\
fallocate,?rename,?renameat,?renameat2,?unlink,unlinkat,?link,linkat,chdir,fchdir,clone,?clone3,?fork,?vfork,execve,\
?execveat,ioctl,?io_uring_setup,?io_setup";
