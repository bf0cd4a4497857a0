//! Programs in C: the example and `tests/c`, compiled against the header and the libraries that cargo has built.
//!
//! With `PLEACH_VALGRIND` in the environment they also run under valgrind, if there is one: `cargo xtask capi`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

const EXAMPLE_PRINTS: &str = "\
alice: 1
carol: none
bob, copied: 2
alice: 1
alice: none
forward: bob=2 carol=3
backward from c: bob=2
forward: alice=1 bob=2
backward from c: bob=2 alice=1
error 3: invalid argument: durability is 7; it must be below 2
forward: 4711=alice
backward from c: 4711=alice
3 partitions: default sessions users
closed
";

/// What Rust's standard library needs: `rustc --print native-static-libs`.
const SYSTEM: [&str; 5] = ["-lgcc_s", "-lutil", "-lpthread", "-lm", "-ldl"];

fn has(command: &str) -> bool {
    Command::new(command).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Whether there is a compiler; says so if not.
fn has_compiler() -> bool {
    let found = has("cc");
    if !found {
        eprintln!("skipped: there is no cc");
    }
    found
}

/// The folder of the libraries: beside this test.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn must(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Compiles a source of this crate to `program`.
fn compile(source: &str, program: &Path, standard: &str, more: &[&str]) {
    let mut command = Command::new("cc");
    command.args([standard, "-Wall", "-Wextra", "-Werror", "-g", "-I"]).arg(Path::new(CRATE).join("include"));
    command.arg("-o").arg(program).arg(Path::new(CRATE).join(source)).args(more);
    must(&command.output().unwrap());
}

/// Runs a program, and again under valgrind, each in a directory of its own.
fn run(program: &Path, before: &[&str], after: &[String]) -> String {
    let run = |mut command: Command| {
        let dir = tempfile::tempdir().unwrap();
        command.args(before).arg(dir.path().join("store")).args(after);
        must(&command.output().unwrap())
    };
    let printed = run(Command::new(program));
    if std::env::var_os("PLEACH_VALGRIND").is_some() {
        if has("valgrind") {
            let mut command = Command::new("valgrind");
            let suppressions = format!("--suppressions={CRATE}/tests/c/valgrind.supp");
            command.args(["--quiet", "--leak-check=full", "--error-exitcode=1"]);
            command.arg(suppressions).arg(program);
            assert_eq!(run(command), printed);
        } else {
            eprintln!("skipped: there is no valgrind");
        }
    }
    printed
}

#[test]
fn the_example_runs_with_the_static_library() {
    if !has_compiler() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("example");
    let archive = libraries().join("libpleach_capi.a");
    let more: Vec<_> = std::iter::once(archive.to_str().unwrap()).chain(SYSTEM).collect();
    compile("examples/example.c", &program, "-std=c99", &more);
    assert_eq!(run(&program, &[], &[]), EXAMPLE_PRINTS);
}

#[test]
fn the_example_runs_with_the_shared_library() {
    if !has_compiler() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("example");
    let folder = libraries();
    let folder = folder.to_str().unwrap();
    let (search, path) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    compile("examples/example.c", &program, "-std=c11", &[&search, "-lpleach_capi", &path]);
    assert_eq!(run(&program, &[], &[]), EXAMPLE_PRINTS);
}

/// The header alone, as strictly as a compiler reads it, and as C++.
#[test]
fn the_header_is_c_and_cpp() {
    if !has_compiler() {
        return;
    }
    let header = Path::new(CRATE).join("include/pleach.h");
    let check = |compiler: &str, arguments: &[&str]| {
        must(&Command::new(compiler).args(arguments).arg("-fsyntax-only").arg(&header).output().unwrap())
    };
    check("cc", &["-x", "c", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]);
    if has("c++") {
        check("c++", &["-x", "c++", "-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror"]);
    }
}

#[test]
fn nothing_happens_at_load_and_a_process_may_fork_before_it_opens() {
    if !has_compiler() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("load");
    compile("tests/c/load.c", &program, "-std=gnu11", &["-ldl"]);
    let library = libraries().join("libpleach_capi.so");
    let printed = run(&program, &[library.to_str().unwrap()], &declared());
    assert_eq!(printed, "nothing at load, and a fork before the open\n");
}

/// The functions of the header.
fn declared() -> Vec<String> {
    let header = std::fs::read_to_string(Path::new(CRATE).join("include/pleach.h")).unwrap();
    let code = header.lines().filter(|line| !line.starts_with("//") && !line.starts_with(' '));
    let names = code.filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next().map(str::to_owned));
    let mut names: Vec<_> = names.filter(|name| name.starts_with("pleach_")).collect();
    names.retain(|name| !name.ends_with(';'));
    assert!(names.len() > 60, "{names:?}");
    names
}
