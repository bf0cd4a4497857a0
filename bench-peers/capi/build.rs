//! The build script: the library stays loaded until its process ends.
//!
//! `LuaJIT` unloads a library with the last Lua state that uses it. The thread of that state still runs what the engines have
//! left to its end, as LMDB does for its readers, and engines may have threads of their own.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
