//! The function on the other side of an exchange, a program or one in this process, and the channels to it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ascot_io::is_passing;

use crate::api::{Result, SortError};
use crate::flow::function::{FunctionInput, FunctionOutput, FunctionPeer};
use crate::flow::program::Program;

/// The function of a flow.
pub(super) enum Peer {
    /// A process.
    Program(Program),
    /// A thread of this process.
    Function(FunctionPeer),
}

impl Peer {
    /// A descriptor that becomes readable when it ends, or when a function has done something.
    pub(super) fn event(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Peer::Program(program) => program.end().map(AsFd::as_fd),
            Peer::Function(function) => Some(function.event().as_fd()),
        }
    }

    /// Takes note of that event.
    pub(super) fn note_event(&self) {
        if let Peer::Function(function) = self {
            function.look();
        }
    }

    /// The input for which it waits, if that is known.
    pub(super) fn wanted(&self) -> Option<usize> {
        match self {
            Peer::Program(_) => None,
            Peer::Function(function) => function.wanted(),
        }
    }

    /// Whether it has ended; an error if it has failed. A function that fails cancels the job.
    pub(super) fn has_ended(&mut self) -> Result<bool> {
        match self {
            Peer::Program(program) => program.has_ended(),
            Peer::Function(function) => Ok(function.has_ended()),
        }
    }

    /// The flow has succeeded.
    pub(super) fn release(&mut self) {
        if let Peer::Program(program) = self {
            program.release();
        }
    }

    /// The error that names it; `what` it did.
    pub(super) fn failure(&self, what: String) -> SortError {
        match self {
            Peer::Program(program) => program.failure(what),
            Peer::Function(_) => SortError::Program { program: "the function".into(), what },
        }
    }
}

/// Where the bytes of an input go.
pub(super) enum ToPeer {
    /// The end of a pipe, which never blocks.
    Pipe(OwnedFd),
    /// A queue in memory.
    Queue(FunctionInput),
}

impl ToPeer {
    /// Gives bytes to the function: the number taken, 0 if there is no room, none if the function has closed it.
    pub(super) fn give(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let pipe = match self {
            ToPeer::Pipe(pipe) => pipe,
            ToPeer::Queue(queue) => return Ok(queue.give(bytes)),
        };
        match rustix::io::write(pipe, bytes).map_err(io::Error::from) {
            Ok(count) => Ok(Some(count)),
            Err(error) if is_passing(&error) => Ok(Some(0)),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ends the input.
    pub(super) fn end(self) {
        if let ToPeer::Queue(queue) = self {
            queue.end();
        }
    }

    /// Whether the function has taken everything that was given.
    pub(super) fn is_dry(&self) -> bool {
        match self {
            ToPeer::Pipe(pipe) => rustix::io::ioctl_fionread(pipe).is_ok_and(|left| left == 0),
            ToPeer::Queue(queue) => queue.is_dry(),
        }
    }

    /// A descriptor that is writable when bytes can be given; for a queue it is the event of the function.
    pub(super) fn descriptor(&self) -> Option<&OwnedFd> {
        match self {
            ToPeer::Pipe(pipe) => Some(pipe),
            ToPeer::Queue(_) => None,
        }
    }
}

/// Where the bytes of an output come from.
pub(super) enum FromPeer {
    /// The end of a pipe, which never blocks.
    Pipe(OwnedFd),
    /// A queue in memory.
    Queue(FunctionOutput),
}

impl FromPeer {
    /// Reads what has come: 0 at the end; an error that [passes](is_passing) if there is nothing now.
    pub(super) fn take(&self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            FromPeer::Pipe(pipe) => rustix::io::read(pipe, out).map_err(io::Error::from),
            FromPeer::Queue(queue) => queue.take(out).ok_or_else(|| io::ErrorKind::WouldBlock.into()),
        }
    }

    /// A descriptor that is readable when bytes have come; for a queue it is the event of the function.
    pub(super) fn descriptor(&self) -> Option<&OwnedFd> {
        match self {
            FromPeer::Pipe(pipe) => Some(pipe),
            FromPeer::Queue(_) => None,
        }
    }
}
