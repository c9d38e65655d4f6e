//! Starts threads without a second stack for signals.
//!
//! The standard library maps such a stack for each thread, on which it reports an overflow of the thread's own stack.
//! If the system refuses that memory, the new thread panics before anything can catch it, and the process aborts and
//! leaves its spill files. The library omits the stack if SIGSEGV and SIGBUS have no default action when the process
//! starts; so they have none until `main` begins.
//!
//! Invariant: an overflow ends the process by SIGSEGV, as it does in a C program.

const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The loader calls it before the standard library reads the signal actions.
// SAFETY: the section holds pointers to functions of this type, which are called once, on the only thread.
#[expect(unsafe_code, reason = "the C library runs what stands in this section before main")]
#[unsafe(link_section = ".init_array")]
#[used]
static BEFORE_MAIN: extern "C" fn() = set_aside;

extern "C" fn set_aside() {
    // The kernel ends a process that causes a fault even if it ignores the signal.
    set(libc::SIG_IGN);
}

/// Restores the default actions of the signals.
pub fn restore() {
    set(libc::SIG_DFL);
}

#[expect(unsafe_code, reason = "handlers of signals are set by raw calls")]
fn set(action: libc::sighandler_t) {
    for signal in SIGNALS {
        // SAFETY: a signal that may be ignored, and an action that is not a function.
        unsafe { libc::signal(signal, action) };
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;
    use std::thread;

    #[test]
    #[expect(unsafe_code, reason = "handlers of signals are set by raw calls")]
    fn a_thread_has_no_stack_for_signals() {
        let asked = || {
            let mut stack = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: 0, ss_size: 0 };
            // SAFETY: nothing is set, and the answer has valid memory.
            let failed = unsafe { libc::sigaltstack(ptr::null(), &raw mut stack) };
            (failed, stack.ss_flags & libc::SS_DISABLE)
        };
        assert_eq!(thread::spawn(asked).join().unwrap(), (0, libc::SS_DISABLE));
    }
}
