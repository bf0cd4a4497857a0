//! The build script: finds LevelDB's C library, and whether `pleach-wiredtiger` has found WiredTiger's.
//!
//! If a library is missing, its engine is left out, with a warning that names the package. The conditions `leveldb` and
//! `wiredtiger` show the sources which libraries were found.

use std::env;
use std::fs;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(leveldb, wiredtiger)");
    tell_version_of("fjall");
    if has_header("leveldb/c.h") {
        println!("cargo::rustc-link-lib=leveldb");
        println!("cargo::rustc-cfg=leveldb");
    } else {
        leave_out("LevelDB", "libleveldb-dev");
    }
    // That crate's warning names the package.
    if env::var("DEP_PLEACH_WIREDTIGER_FOUND").is_ok_and(|found| found == "true") {
        println!("cargo::rustc-cfg=wiredtiger");
    }
}

/// Whether the C compiler finds a header. The packages hold header and library together.
fn has_header(name: &str) -> bool {
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let probe = folder.join("probe.c");
    fs::write(&probe, format!("#include <{name}>\n")).expect("cargo's folder takes files");
    cc::Build::new().file(probe).cargo_warnings(false).cargo_metadata(false).try_expand().is_ok()
}

fn leave_out(engine: &str, package: &str) {
    println!(
        "cargo::warning={engine} is left out: Debian's package {package}, or the like, is not installed"
    );
}

/// Sets `<NAME>_VERSION` to the version in the lock file.
fn tell_version_of(library: &str) {
    println!("cargo::rerun-if-changed=Cargo.lock");
    let lock = fs::read_to_string("Cargo.lock").unwrap_or_default();
    let entry = lock.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{library}\"\n")));
    let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
    println!("cargo::rustc-env={}_VERSION={}", library.to_uppercase(), version.unwrap_or("?"));
}
