//! Names the shared library as programs will look for it: by the part of its version that says what fits.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libascot.so.0");
}
