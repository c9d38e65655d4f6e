//! Rights that a program has by its file, and does not get while strace traces it.
//!
//! The filter by which strace stops only some calls needs `PR_SET_NO_NEW_PRIVS`: after that no exec gives rights, not
//! even to a program that root traces.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The rights of a file of a program.
#[derive(Clone, Copy, Debug)]
struct OfFile {
    mode: u32,
    owner: u32,
    group: u32,
    capabilities: bool,
}

/// The user and the groups that run it.
#[derive(Clone, Debug)]
struct Caller {
    user: u32,
    groups: Vec<u32>,
}

/// The remark on a program with rights of its own that this process does not have.
pub fn privileges_lost(program: &Path) -> Option<String> {
    let metadata = fs::metadata(program).ok().filter(|metadata| metadata.is_file())?;
    let file = OfFile {
        mode: metadata.mode(),
        owner: metadata.uid(),
        group: metadata.gid(),
        capabilities: rustix::fs::getxattr(program, "security.capability", &mut [0u8; 64][..]).is_ok(),
    };
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups = groups.into_iter().chain([rustix::process::getegid()]).map(|group| group.as_raw());
    let caller = Caller { user: rustix::process::geteuid().as_raw(), groups: groups.collect() };
    lost(file, &caller).map(|what| {
        format!("{}: a traced program does not get {what} ascot trace record ...", program.display())
    })
}

/// The rights that are lost, and the command that has them. Groups and capabilities give root nothing.
fn lost(file: OfFile, caller: &Caller) -> Option<String> {
    let has = |bit| file.mode & bit == bit;
    if has(libc::S_ISUID) && file.owner != caller.user {
        return Some(match file.owner {
            0 => "the rights of its owner (setuid); run it as root: sudo".to_owned(),
            owner => format!("the rights of its owner (setuid); run it as that user: sudo -u '#{owner}'"),
        });
    }
    if caller.user == 0 {
        return None;
    }
    if file.capabilities {
        return Some("its capabilities (setcap); run it as root: sudo".to_owned());
    }
    // Without the right to execute, the bit means something else.
    let sets_group = has(libc::S_ISGID | libc::S_IXGRP) && !caller.groups.contains(&file.group);
    sets_group.then(|| "the rights of its group (setgid); run it as root: sudo".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_that_the_caller_has_are_not_lost() {
        let user = Caller { user: 1000, groups: vec![1000, 5] };
        let root = Caller { user: 0, groups: vec![0] };
        let plain = OfFile { mode: 0o755, owner: 0, group: 0, capabilities: false };
        for (file, of_user, of_root) in [
            (plain, None, None),
            (OfFile { mode: 0o4755, ..plain }, Some("owner (setuid); run it as root: sudo"), None),
            (
                OfFile { mode: 0o4755, owner: 1000, ..plain },
                None,
                Some("run it as that user: sudo -u '#1000'"),
            ),
            (OfFile { mode: 0o2755, ..plain }, Some("group (setgid); run it as root: sudo"), None),
            (OfFile { mode: 0o2755, group: 5, ..plain }, None, None),
            (OfFile { mode: 0o2745, ..plain }, None, None),
            (
                OfFile { capabilities: true, ..plain },
                Some("capabilities (setcap); run it as root: sudo"),
                None,
            ),
        ] {
            for (caller, wanted) in [(&user, of_user), (&root, of_root)] {
                let found = lost(file, caller);
                let same = match (&found, wanted) {
                    (Some(found), Some(wanted)) => found.ends_with(wanted),
                    (None, None) => true,
                    _ => false,
                };
                assert!(same, "{file:?} {caller:?}: {found:?}");
            }
        }
    }
}
