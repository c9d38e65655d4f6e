//! The lines of a log of `strace -f -ttt -y -s 0`, as slices of the line.
//!
//! ```text
//!   4711 1795501672.258206 read(3</data/in>, ""..., 4096) = 4096
//!   4711 1795501672.258206 read(3</data/in>,  <unfinished ...>
//!   4711 1795501672.258310 <... read resumed>""..., 4096) = 4096
//!   4711 1795501672.258473 +++ exited with 0 +++
//!   4711 1795501672.258580 clone(...) = 2 /* 4712 in strace's PID NS */
//!   4712 1795501672.258601 execve("/bin/cat", ... <pid changed to 4711 ...>
//! ```
//!
//! A thread has its number in the namespace of strace; as a result of a call it has that of its own namespace, and
//! after it the other one, if they differ. A thread that is not the first of its process takes the number of the first
//! one by an exec.
//!
//! Paths are escaped as in C. `<` and `>` inside the name of a descriptor are escaped too, so the first `>` ends it.

/// The most arguments of a call that is looked at.
const MAX_ARGUMENTS: usize = 8;

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The thread.
    pub thread: u32,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The rest.
    pub body: Body<'a>,
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A call and its result.
    Call(&'a [u8]),
    /// The beginning of a call that another thread interrupted in the log.
    Unfinished(&'a [u8]),
    /// The rest of such a call.
    Resumed(&'a [u8]),
    /// The thread ended.
    Ended,
    /// The thread ended because the given one ran another program; that thread goes on with the number of this one.
    Superseded(u32),
    /// strace stopped tracing the thread.
    Detached,
    /// A signal or a message.
    Other,
}

/// Reads a line without its end; none if it has another form.
pub fn parse(line: &[u8]) -> Option<Line<'_>> {
    let (thread, rest) = number(line)?;
    let (seconds, rest) = number(skip_spaces(rest))?;
    let (fraction, rest) = rest.strip_prefix(b".").and_then(|rest| rest.split_at_checked(6))?;
    let (micros, after) = number(fraction)?;
    if !after.is_empty() {
        return None;
    }
    let time_ns = seconds.checked_mul(1_000_000_000)?.checked_add(micros * 1000)?;
    let thread = u32::try_from(thread).ok()?;
    Some(Line { thread, time_ns, body: body(skip_spaces(rest)) })
}

fn body(text: &[u8]) -> Body<'_> {
    if let Some(rest) = text.strip_prefix(b"<... ") {
        return match memchr::memmem::find(rest, b" resumed>") {
            Some(at) => Body::Resumed(&rest[at + b" resumed>".len()..]),
            None => Body::Other,
        };
    }
    if let Some(rest) = text.strip_prefix(b"+++ ") {
        let superseded = rest.strip_prefix(b"superseded by execve in pid ").and_then(number);
        return match superseded.and_then(|(thread, _)| u32::try_from(thread).ok()) {
            Some(thread) => Body::Superseded(thread),
            None => Body::Ended,
        };
    }
    if text.ends_with(b"<detached ...>") {
        return Body::Detached;
    }
    if !text.first().is_some_and(|byte| byte.is_ascii_lowercase() || *byte == b'_') {
        return Body::Other;
    }
    let renumbered = || memchr::memmem::rfind(text, b"<pid changed to ").filter(|_| text.ends_with(b" ...>"));
    match text.strip_suffix(b"<unfinished ...>").or_else(|| renumbered().map(|at| &text[..at])) {
        Some(begun) => Body::Unfinished(begun),
        None => Body::Call(text),
    }
}

/// A call with its arguments and its result.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The name of the system call.
    pub name: &'a [u8],
    arguments: [&'a [u8]; MAX_ARGUMENTS],
    /// The result; none if the call failed or its result is unknown.
    pub result: Option<u64>,
    /// The name of the descriptor that is the result.
    pub result_name: Option<Named<'a>>,
    /// The number that a thread has for strace, if the result is another one.
    pub outer_thread: Option<u64>,
}

/// The name of a descriptor, escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// The path, or words such as `pipe:[17]`.
    pub text: &'a [u8],
    /// Whether the file has no name any more.
    pub deleted: bool,
}

impl<'a> Call<'a> {
    /// Reads `name(arguments) = result`; none if it has another form.
    pub fn parse(text: &'a [u8]) -> Option<Call<'a>> {
        let open = memchr::memchr(b'(', text)?;
        let (name, rest) = text.split_at(open);
        let (arguments, rest) = split_arguments(&rest[1..])?;
        let result = skip_spaces(rest).strip_prefix(b"= ")?;
        let (value, rest) = match number(result) {
            Some((value, rest)) => (Some(value), rest),
            None => (None, &result[..0]),
        };
        let outer_thread = outer_thread(rest);
        let result_name = named(rest).map(|(named, _)| named);
        Some(Call { name, arguments, result: value, result_name, outer_thread })
    }

    /// Begins with the beginning of a call: its name and the arguments so far.
    pub fn begun(text: &'a [u8]) -> Option<Call<'a>> {
        let open = memchr::memchr(b'(', text)?;
        let (name, rest) = text.split_at(open);
        let mut arguments = [&[][..]; MAX_ARGUMENTS];
        arguments[0] = &rest[1..];
        Some(Call { name, arguments, result: None, result_name: None, outer_thread: None })
    }

    /// An argument; empty if it is missing.
    pub fn argument(&self, index: usize) -> &'a [u8] {
        self.arguments.get(index).copied().unwrap_or_default()
    }

    /// A descriptor and its name.
    pub fn descriptor(&self, index: usize) -> Option<(u32, Named<'a>)> {
        let (descriptor, rest) = number(self.argument(index))?;
        let (named, _) = named(rest)?;
        Some((u32::try_from(descriptor).ok()?, named))
    }

    /// The name of the directory that an argument such as `AT_FDCWD</tmp>` or `5</tmp>` is.
    pub fn directory(&self, index: usize) -> Option<&'a [u8]> {
        let argument = self.argument(index);
        let at = memchr::memchr(b'<', argument)?;
        named(&argument[at..]).map(|(named, _)| named.text)
    }

    /// A number; the first one in brackets for `[3] => [43]`.
    pub fn number(&self, index: usize) -> Option<u64> {
        let argument = self.argument(index);
        number(argument.strip_prefix(b"[").unwrap_or(argument)).map(|(value, _)| value)
    }

    /// Whether an argument contains a word, such as a flag.
    pub fn has(&self, index: usize, word: &[u8]) -> bool {
        memchr::memmem::find(self.argument(index), word).is_some()
    }

    /// A path in quotes, as the bytes that it is.
    pub fn path(&self, index: usize) -> Option<Vec<u8>> {
        let inside = self.argument(index).strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        Some(unescaped(inside))
    }
}

/// Divides `a, b, c) rest`: the arguments and the rest. Commas in quotes, names and brackets do not divide.
fn split_arguments(text: &[u8]) -> Option<([&[u8]; MAX_ARGUMENTS], &[u8])> {
    let mut arguments = [&[][..]; MAX_ARGUMENTS];
    let mut count = 0;
    let mut start = 0;
    let mut depth = 0_u32;
    let mut at = 0;
    loop {
        match *text.get(at)? {
            b'"' => at = end_of_quotes(text, at + 1)?,
            b'<' => at += memchr::memchr(b'>', &text[at..])?,
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                keep(&mut arguments, count, &text[start..at]);
                return Some((arguments, &text[at + 1..]));
            }
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                keep(&mut arguments, count, &text[start..at]);
                count += 1;
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
}

fn keep<'a>(arguments: &mut [&'a [u8]; MAX_ARGUMENTS], index: usize, text: &'a [u8]) {
    if let Some(argument) = arguments.get_mut(index) {
        *argument = text.trim_ascii();
    }
}

/// The position of the quote that ends a text.
fn end_of_quotes(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *text.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at),
            _ => at += 1,
        }
    }
}

/// Reads `<name>` or `<name>(deleted)`.
fn named(text: &[u8]) -> Option<(Named<'_>, &[u8])> {
    let inside = text.strip_prefix(b"<")?;
    let end = memchr::memchr(b'>', inside)?;
    let rest = &inside[end + 1..];
    let deleted = rest.starts_with(b"(deleted)");
    Some((Named { text: &inside[..end], deleted }, rest))
}

/// Reads ` /* 4712 in strace's PID NS */`.
fn outer_thread(text: &[u8]) -> Option<u64> {
    let (thread, rest) = number(skip_spaces(text).strip_prefix(b"/* ")?)?;
    rest.starts_with(b" in strace's PID NS").then_some(thread)
}

/// A decimal number at the front.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let add = |value: u64, byte: &u8| value.checked_mul(10)?.checked_add(u64::from(byte - b'0'));
    Some((text[..digits].iter().try_fold(0, add)?, &text[digits..]))
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    text.trim_ascii_start()
}

/// Whether the name of a descriptor may be that of a file: not a pipe, a socket, a terminal or a file of the kernel.
pub fn may_be_a_file(name: &[u8]) -> bool {
    const OTHERS: [&[u8]; 4] = [b"/proc/", b"/sys/", b"/memfd:", b"/SYSV"];
    let device = name.starts_with(b"/dev/") && !name.starts_with(b"/dev/shm/");
    let block = device
        && [&b"/dev/sd"[..], b"/dev/nvme", b"/dev/vd", b"/dev/dm-", b"/dev/loop", b"/dev/md"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
    name.first() == Some(&b'/') && (!device || block) && !OTHERS.iter().any(|prefix| name.starts_with(prefix))
}

/// The bytes of a text that is escaped as in C.
pub fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.iter().take(3).take_while(|digit| (b'0'..=b'7').contains(digit)).count();
        if digits > 0 {
            let value = rest[..digits].iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
            bytes.push(value as u8);
            rest = &rest[digits..];
        } else if let Some((&letter, after)) = rest.split_first() {
            bytes.push(match letter {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'v' => 0x0b,
                b'f' => 0x0c,
                other => other,
            });
            rest = after;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(text: &str) -> Call<'_> {
        Call::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn lines_of_a_log_are_read() {
        let line = parse(b"22896 1795501861.174929 close(3</a>) = 0").unwrap();
        assert_eq!((line.thread, line.time_ns), (22896, 1_795_501_861_174_929_000));
        assert_eq!(line.body, Body::Call(b"close(3</a>) = 0"));
        let body = |text: &'static str| parse(text.as_bytes()).unwrap().body;
        assert_eq!(body("7 1.000000 read(3</a>,  <unfinished ...>"), Body::Unfinished(b"read(3</a>,  "));
        assert_eq!(body("7 1.000000 <... read resumed>\"\"..., 8) = 8"), Body::Resumed(b"\"\"..., 8) = 8"));
        assert_eq!(body("7 1.000000 +++ exited with 0 +++"), Body::Ended);
        assert_eq!(body("7 1.000000 +++ killed by SIGKILL (core dumped) +++"), Body::Ended);
        assert_eq!(body("7 1.000000 +++ superseded by execve in pid 9 +++"), Body::Superseded(9));
        assert_eq!(body("7 1.000000 --- SIGCHLD {si_signo=SIGCHLD} ---"), Body::Other);
        assert_eq!(body("7 1.000000 read(3</a>,  <detached ...>"), Body::Detached);
        assert_eq!(body("7 1.000000  <detached ...>"), Body::Detached);
        let exec = body("7 1.000000 execve(\"/bin/cat\", [...], 0x7f /* 3 vars */ <pid changed to 6 ...>");
        assert_eq!(exec, Body::Unfinished(b"execve(\"/bin/cat\", [...], 0x7f /* 3 vars */ "));
        for text in ["", "7", "7 1.0 x", "x 1.000000 close(3)", "strace: Process 7 attached"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    /// Lines that strace 6.1 printed.
    #[test]
    fn calls_and_their_arguments_are_read() {
        let open =
            call(r#"openat(AT_FDCWD</tmp>, "q>r <s, \")", O_RDWR|O_CREAT, 0600) = 3</tmp/q\76r \74s, \")>"#);
        assert_eq!(open.name, b"openat");
        assert_eq!(open.directory(0), Some(&b"/tmp"[..]));
        assert_eq!(open.path(1).as_deref(), Some(&b"q>r <s, \")"[..]));
        assert!(open.has(2, b"O_CREAT") && !open.has(2, b"O_APPEND"));
        assert_eq!(open.result, Some(3));
        assert_eq!(unescaped(open.result_name.unwrap().text), b"/tmp/q>r <s, \")");

        let sent = call("sendfile(4</tmp/o2>, 3</tmp/q>, [3] => [43], 40) = 40");
        assert_eq!((sent.number(2), sent.number(3), sent.result), (Some(3), Some(40), Some(40)));
        assert_eq!(sent.descriptor(1).unwrap().0, 3);

        let copied =
            call(r"copy_file_range(3</tmp/d\\e\303\251.bin>(deleted), [0], 6</tmp/o>, NULL, 10, 0) = 10");
        let (descriptor, name) = copied.descriptor(0).unwrap();
        assert_eq!((descriptor, name.deleted), (3, true));
        assert_eq!(unescaped(name.text), b"/tmp/d\\e\xc3\xa9.bin");
        assert_eq!((copied.number(1), copied.number(3)), (Some(0), None));

        let failed =
            call(r#"openat(AT_FDCWD</tmp>, "/none", O_RDONLY) = -1 ENOENT (No such file or directory)"#);
        assert_eq!(failed.result, None);
        assert_eq!(call("exit_group(0)   = ?").result, None);
        assert_eq!(call("preadv(3</tmp/q>, [...], 2, 5) = 300").number(3), Some(5));
        let clone =
            call("clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD, child_tidptr=0x7f) = 21299");
        assert_eq!(clone.result, Some(21299));
        let clone = call("vfork() = 2 /* 13888 in strace's PID NS */");
        assert_eq!((clone.result, clone.outer_thread), (Some(2), Some(13888)));
        let clone = call("clone3({flags=CLONE_VM|CLONE_FILES, exit_signal=0} => {parent_tid=[9]}, 88) = 9");
        assert!(clone.has(0, b"CLONE_FILES") && clone.result == Some(9));
    }

    proptest! {
        #[test]
        fn any_bytes_end(text in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&text);
            let _ = Call::parse(&text);
        }

        /// Bytes that lines consist of.
        #[test]
        fn any_marks_end(text in r#"[a(){}<>\[\]"\\,.= 0-9+-]{0,60}"#) {
            let _ = parse(format!("1 1.000000 {text}").as_bytes());
            let _ = Call::parse(text.as_bytes());
        }
    }
}
