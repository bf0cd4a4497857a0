//! The header of the interface for C, written from the sources of `pleach-capi` by cbindgen.

use std::path::Path;

use cbindgen::{Builder, Config};

const CRATE: &str = "crates/pleach-capi";
const HEADER: &str = "crates/pleach-capi/include/pleach.h";

/// The sources in the order in which the header has them.
const SOURCES: [&str; 9] =
    ["error", "options", "db", "manage", "partition", "value", "snapshot", "batch", "cursor"];

/// Writes the header.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    let text = generate(root)?;
    std::fs::write(root.join(HEADER), text).map_err(|error| format!("cannot write {HEADER}: {error}"))
}

/// An error if the header is not that of the sources.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let written = std::fs::read_to_string(root.join(HEADER)).unwrap_or_default();
    let text = generate(root)?;
    if written == text {
        return Ok(());
    }
    let line = 1 + text.lines().zip(written.lines()).take_while(|(new, old)| new == old).count();
    Err(format!("{HEADER}:{line} is not that of the sources; `cargo xtask header` writes it"))
}

fn generate(root: &Path) -> Result<String, String> {
    let folder = root.join(CRATE);
    let config = Config::from_file(folder.join("cbindgen.toml"))?;
    let builder = SOURCES.iter().fold(Builder::new().with_config(config), |builder, name| {
        builder.with_src(folder.join("src").join(format!("{name}.rs")))
    });
    let bindings = builder.generate().map_err(|error| format!("cbindgen: {error}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text).map_err(|_| "the header is not UTF-8")?;
    check_complete(&folder, &text)?;
    Ok(text)
}

/// An error if a function of the sources, also of one that is not in the list, is missing.
fn check_complete(folder: &Path, header: &str) -> Result<(), String> {
    let entries = std::fs::read_dir(folder.join("src")).map_err(|error| error.to_string())?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        let exported = text.split("extern \"C\" fn ").skip(1);
        let missing = exported
            .filter_map(|rest| rest.split('(').next())
            .find(|name| !header.contains(&format!("{name}(")));
        if let Some(name) = missing {
            return Err(format!("{}: `{name}` is not in the header", path.display()));
        }
    }
    Ok(())
}
