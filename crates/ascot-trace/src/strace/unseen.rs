//! What programs do that a log does not show.

use super::line::{Call, may_be_a_file, unescaped};

/// What the programs of a log did beside its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Whether they made requests that are no calls: io_uring, or the kernel's asynchronous I/O.
    asynchronous: bool,
    /// The file and the bytes of the largest map by which they may write to a file.
    mapped: Option<(Vec<u8>, u64)>,
    /// Whether one changed its root directory.
    other_root: bool,
}

impl Unseen {
    /// Notes a call that succeeded.
    pub fn add(&mut self, call: &Call<'_>) {
        match call.name {
            b"io_uring_setup" | b"io_setup" => self.asynchronous = true,
            b"mmap" | b"mmap2" => self.add_map(call),
            b"chroot" => self.other_root |= call.path(0).is_some_and(|path| path != b"/"),
            b"pivot_root" => self.other_root = true,
            _ => {}
        }
    }

    /// Maps that are shared and may be written change their file.
    fn add_map(&mut self, call: &Call<'_>) {
        if !(call.has(3, b"MAP_SHARED") && call.has(2, b"PROT_WRITE")) {
            return;
        }
        let Some((_, name)) = call.descriptor(4) else { return };
        let bytes = call.number(1).unwrap_or(0);
        let is_larger = self.mapped.as_ref().is_none_or(|(_, largest)| bytes > *largest);
        if is_larger && may_be_a_file(name.text) && !name.text.starts_with(b"/dev/shm/") {
            self.mapped = Some((unescaped(name.text), bytes));
        }
    }

    /// Remarks for the user.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.asynchronous {
            let text = "the program uses io_uring or the kernel's asynchronous I/O, whose requests strace does not \
                        see; --block records them";
            remarks.push(text.to_owned());
        }
        if let Some((file, _)) = &self.mapped {
            remarks.push(format!(
                "the program maps files to write to them ({}), and strace does not see these requests; --block records \
                 them",
                String::from_utf8_lossy(file)
            ));
        }
        if self.other_root {
            let text = "a process changed its root directory (chroot, pivot_root): files that it renames, removes or \
                        truncates by name after that may keep their names and lengths in the trace";
            remarks.push(text.to_owned());
        }
        remarks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remarks(lines: &[&str]) -> Vec<String> {
        let mut unseen = Unseen::default();
        lines.iter().for_each(|line| unseen.add(&Call::parse(line.as_bytes()).unwrap()));
        unseen.remarks()
    }

    #[test]
    fn the_largest_map_that_changes_a_file_is_named() {
        let maps = [
            "mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 3</data/small>, 0) = 0x7f12",
            "mmap2(NULL, 8192, PROT_READ|PROT_WRITE, MAP_SHARED, 3</data/a\\nb>, 0) = 0xf712",
            "mmap(NULL, 1234, PROT_READ|PROT_WRITE, MAP_SHARED_VALIDATE|MAP_SYNC, 3</data/last>, 0) = 0x7f12",
        ];
        let told = remarks(&maps);
        assert!(
            matches!(&told[..], [one] if one.contains("(/data/a\nb)") && one.contains("--block")),
            "{told:?}"
        );
    }

    #[test]
    fn maps_that_change_no_file_are_not_told() {
        let maps = [
            "mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE, 3</data/a>, 0) = 0x7f12",
            "mmap(NULL, 4096, PROT_READ, MAP_SHARED, 3</data/a>, 0) = 0x7f12",
            "mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1, 0) = 0x7f12",
            "mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 3</memfd:x>(deleted), 0) = 0x7f12",
            "mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 3</dev/shm/x>, 0) = 0x7f12",
        ];
        assert_eq!(remarks(&maps), [""; 0]);
    }

    #[test]
    fn asynchronous_requests_and_other_roots_are_told() {
        assert!(
            remarks(&["io_uring_setup(8, {flags=0}) = 4<anon_inode:[io_uring]>"])[0].contains("io_uring")
        );
        assert!(remarks(&["io_setup(1, [0x7f12]) = 0"])[0].contains("asynchronous"));
        assert!(remarks(&["chroot(\"/srv\") = 0"])[0].contains("root directory"));
        assert!(remarks(&["pivot_root(\".\", \".\") = 0"])[0].contains("root directory"));
        assert_eq!(remarks(&["chroot(\"/\") = 0"]), [""; 0]);
    }
}
