//! Child processes for tests that need system limits or a memory measurement of their own.

use std::process::Command;

/// Runs an ignored test of this binary in a child process. `line` is a shell command that runs before it.
pub(crate) fn run_after(line: &str, test: &str) {
    let output = Command::new("sh")
        .args(["-c", &format!("{line} && exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}
