//! Links the unwinder into the command, where the C compiler has it as an archive.
//!
//! Loading it as a shared library (`libgcc_s`) takes longer than sorting a small file. Taken whole,
//! and ahead of the standard library's request for the shared one, the archive leaves that library
//! nothing to provide, and the linker leaves it out.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const ARCHIVE: &str = "libgcc_eh.a";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CC");
    if let Some(dir) = archive_dir() {
        println!("cargo:rustc-link-search=native={}", dir.display());
        println!("cargo:rustc-link-lib=static:+whole-archive=gcc_eh");
    }
}

/// Where the archive is; none where another unwinder is used, where it is linked in anyway, or for
/// another machine than this.
fn archive_dir() -> Option<PathBuf> {
    let of_target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let gnu = of_target("OS") == "linux" && of_target("ENV") == "gnu";
    let all_static = of_target("FEATURE").split(',').any(|feature| feature == "crt-static");
    if !gnu || all_static || env::var("HOST") != env::var("TARGET") {
        return None;
    }
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let asked = Command::new(compiler).arg(format!("-print-file-name={ARCHIVE}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim());
    // What is not found is echoed without a directory.
    let dir = path.parent().filter(|_| path.is_absolute() && path.is_file())?;
    Some(dir.to_path_buf())
}
