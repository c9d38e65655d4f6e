//! Errors for C: a code, and a text per thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ascot_index::IndexError;
use ascot_index::rank_writer::RankError;
use ascot_index::routing::{RouteError, TransportError};
use ascot_io::IoError;

/// The codes of `enum ascot_code`, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Success.
    Ok = 0,
    /// An invalid argument.
    Invalid = 1,
    /// A file or volume failed.
    Io = 2,
    /// The volume is full.
    NoSpace = 3,
    /// Too little memory.
    Memory = 4,
    /// The target exists already.
    Exists = 5,
    /// Another process writes it.
    Locked = 6,
    /// Something is missing.
    Missing = 7,
    /// The stored bytes are damaged.
    Damaged = 8,
    /// A newer version wrote it.
    Newer = 9,
    /// Another rank failed.
    Peer = 10,
    /// The handle failed before.
    Failed = 11,
    /// The transport failed.
    Transport = 12,
    /// The callback asked to stop.
    Stopped = 13,
    /// An internal error of the library.
    Internal = 14,
}

/// Names of the codes, in order.
const NAMES: [&CStr; 15] = [
    c"ASCOT_OK",
    c"ASCOT_INVALID",
    c"ASCOT_IO",
    c"ASCOT_NO_SPACE",
    c"ASCOT_MEMORY",
    c"ASCOT_EXISTS",
    c"ASCOT_LOCKED",
    c"ASCOT_MISSING",
    c"ASCOT_DAMAGED",
    c"ASCOT_NEWER",
    c"ASCOT_PEER",
    c"ASCOT_FAILED",
    c"ASCOT_TRANSPORT",
    c"ASCOT_STOPPED",
    c"ASCOT_INTERNAL",
];

/// An error to be returned to C.
#[derive(Debug)]
pub struct Fault {
    /// Its code.
    pub code: Code,
    /// Its text.
    pub text: String,
}

impl Fault {
    /// An invalid argument.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self { code: Code::Invalid, text: text.into() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs `body`; its error or panic becomes the thread's last error, and its code is returned.
pub fn guard(body: impl FnOnce() -> Result<(), Fault>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let reason = panic.downcast_ref::<String>().map(String::as_str);
        let reason = reason.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no word why");
        Err(Fault {
            code: Code::Internal,
            text: format!("a fault of the library, please report it: {reason}"),
        })
    });
    let (code, text) = match result {
        // The usual case does no work if the last call succeeded too.
        Ok(()) if LAST.try_with(|last| last.borrow().is_empty()).unwrap_or(true) => return Code::Ok as c_int,
        Ok(()) => (Code::Ok, String::new()),
        Err(fault) => (fault.code, fault.text),
    };
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // The thread is ending, so the text is not needed.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    code as c_int
}

impl From<IoError> for Fault {
    fn from(error: IoError) -> Self {
        let code = match &error {
            IoError::Misuse { .. } => Code::Invalid,
            other => io_code(other),
        };
        Self { code, text: error.to_string() }
    }
}

impl From<IndexError> for Fault {
    fn from(error: IndexError) -> Self {
        Self { code: index_code(&error), text: error.to_string() }
    }
}

fn index_code(error: &IndexError) -> Code {
    match error {
        IndexError::Io(error) => io_code(error),
        IndexError::Memory(_) | IndexError::TooLittle { .. } => Code::Memory,
        IndexError::NotIndexed { .. } | IndexError::Missing { .. } | IndexError::CutShort { .. } => {
            Code::Missing
        }
        IndexError::Damaged { .. } => Code::Damaged,
        IndexError::Newer { .. } => Code::Newer,
        IndexError::Locked { .. } => Code::Locked,
        IndexError::Exists { .. } => Code::Exists,
        IndexError::Failed { .. } => Code::Failed,
        _ => Code::Invalid,
    }
}

fn io_code(error: &IoError) -> Code {
    match error {
        IoError::DiskFull { .. } | IoError::DeviceFull { .. } => Code::NoSpace,
        IoError::Os { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Code::Missing,
        _ => Code::Io,
    }
}

impl From<RankError> for Fault {
    fn from(error: RankError) -> Self {
        // A repeated failure keeps its code; the text says that it is repeated.
        let text = error.to_string();
        let code = match error.cause() {
            RankError::Index(error) => index_code(error),
            RankError::Route(error) => route_code(error),
            RankError::Peer { .. } => Code::Peer,
            RankError::NotShared { .. } => Code::Missing,
            RankError::Options { .. } => Code::Invalid,
            _ => Code::Damaged,
        };
        Self { code, text }
    }
}

fn route_code(error: &RouteError) -> Code {
    match error {
        RouteError::NoSuchRank { .. } | RouteError::TooLong { .. } | RouteError::Setting { .. } => {
            Code::Invalid
        }
        RouteError::Memory { .. } => Code::Memory,
        RouteError::Transport(TransportError::PeerGone { .. })
        | RouteError::Silent { .. }
        | RouteError::Stuck { .. }
        | RouteError::Abandoned { .. } => Code::Peer,
        _ => Code::Transport,
    }
}

/// `ascot_error_text`.
#[expect(unsafe_code, reason = "C finds it by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn ascot_error_text() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// `ascot_code_name`.
#[expect(unsafe_code, reason = "C finds it by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn ascot_code_name(code: c_int) -> *const c_char {
    let name = usize::try_from(code).ok().and_then(|code| NAMES.get(code));
    name.map_or(c"unknown code", |name| name).as_ptr()
}

/// `ascot_version`.
#[expect(unsafe_code, reason = "C finds it by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn ascot_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(unsafe_code, reason = "a test reads strings as C does")]
    fn text() -> String {
        // SAFETY: the text is this thread's and a C string.
        unsafe { CStr::from_ptr(ascot_error_text()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_becomes_a_code_and_a_text() {
        assert_eq!(guard(|| panic!("out of luck")), Code::Internal as c_int);
        assert!(text().contains("out of luck"), "{}", text());
        assert_eq!(guard(|| Err(Fault::invalid("no\0good"))), Code::Invalid as c_int);
        assert_eq!(text(), "no good");
        assert_eq!(guard(|| Ok(())), 0);
        assert_eq!(text(), "");
    }

    #[expect(unsafe_code, reason = "a test reads strings as C does")]
    #[test]
    fn codes_have_the_names_of_the_header() {
        let header = include_str!("../include/ascot.h");
        for (code, name) in NAMES.iter().enumerate() {
            let line = format!("{} = {code}", name.to_string_lossy());
            assert!(header.contains(&line), "{line}");
        }
        // SAFETY: names are C strings with static lifetime.
        let name = |code| unsafe { CStr::from_ptr(ascot_code_name(code)) }.to_string_lossy();
        assert_eq!((&*name(3), &*name(99), &*name(-1)), ("ASCOT_NO_SPACE", "unknown code", "unknown code"));
        // SAFETY: as above.
        let version = unsafe { CStr::from_ptr(ascot_version()) }.to_string_lossy();
        assert!(header.contains(&format!("#define ASCOT_VERSION \"{version}\"")));
    }
}
