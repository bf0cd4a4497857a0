//! The build script: finds WiredTiger and compiles the shim.
//!
//! If the library is missing, the crate is empty, with a warning that names the package.

#![expect(clippy::disallowed_methods, reason = "a build script has no other file system than the real one")]

use std::env;
use std::fs;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/shim.c");
    println!("cargo::rustc-check-cfg=cfg(wiredtiger)");
    let found = has_header("wiredtiger.h");
    println!("cargo::metadata=found={found}");
    if found {
        cc::Build::new().file("src/shim.c").warnings(true).compile("wiredtiger_shim");
        println!("cargo::rustc-link-lib=wiredtiger");
        println!("cargo::rustc-cfg=wiredtiger");
    } else {
        println!(
            "cargo::warning=WiredTiger is left out: Debian's package libwiredtiger-dev, or the like, is not installed"
        );
    }
}

/// Whether the C compiler finds a header. The package holds header and library together.
fn has_header(name: &str) -> bool {
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let probe = folder.join("probe.c");
    fs::write(&probe, format!("#include <{name}>\n")).expect("cargo's folder takes files");
    cc::Build::new().file(probe).cargo_warnings(false).cargo_metadata(false).try_expand().is_ok()
}
