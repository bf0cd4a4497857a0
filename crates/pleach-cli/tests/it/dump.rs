//! Dumps, and loads of what was dumped.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::command::{Store, read};

/// Keys and values of all kinds of bytes, among them every separator of every format.
fn odd_entries() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut random = fastrand::Rng::with_seed(7);
    let alphabet = b"ab\\\t\n\r\",;:\0\x7f\xff\xc3\xa9 {}'";
    let mut text = |min: usize| -> Vec<u8> {
        let len = random.usize(min..8);
        (0..len).map(|_| alphabet[random.usize(..alphabet.len())]).collect()
    };
    (0..300).map(|_| (text(1), text(0))).collect()
}

fn odd_store() -> Store {
    let store = Store::new();
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let lines: String =
        odd_entries().iter().map(|(key, value)| format!("{}\t{}\n", hex(key), hex(value))).collect();
    store.ok_with_input(["load", "--format", "tsv", "--hex"], lines);
    store
}

#[test]
fn every_format_that_holds_keys_is_read_back_to_the_same_bytes() {
    let store = odd_store();
    let all = store.ok(["scan", "--hex"]);
    assert!(all.lines().count() > 200);
    for format in ["jsonl", "tsv", "csv"] {
        for hex in [false, true] {
            if hex && format == "jsonl" {
                continue;
            }
            let file = store.path(&format!("dump-{hex}.{format}"));
            let file = file.to_str().unwrap();
            let flag = if hex { vec!["--hex"] } else { vec![] };
            store.ok(["dump", "--output", file, "--format", format].iter().chain(&flag));
            let name = format!("{format}-{hex}");
            store.ok(["load", file, "--partition", &name].iter().chain(&flag));
            assert_eq!(store.ok(["scan", "--hex", "--partition", &name]), all, "{name}");
        }
    }
    store.ok(["dump", "--hex", "--output", store.path("hex.jsonl").to_str().unwrap()]);
    store.ok(["load", store.path("hex.jsonl").to_str().unwrap(), "--partition", "hex-jsonl"]);
    assert_eq!(store.ok(["scan", "--hex", "--partition", "hex-jsonl"]), all);
}

#[test]
fn formats_look_as_documented() {
    let store = Store::new();
    store.ok(["put", "a,b", "say \"x\""]);
    store.ok(["put", "--hex", "62", "ff0a"]);
    assert_eq!(
        store.ok(["dump"]),
        "{\"key\":\"a,b\",\"value\":\"say \\\"x\\\"\"}\n{\"key\":\"b\",\"value_base64\":\"/wo=\"}\n"
    );
    assert_eq!(store.ok(["dump", "--format", "tsv"]), "a,b\tsay \"x\"\nb\t\\xff\\n\n");
    assert_eq!(store.ok(["dump", "--format", "csv", "--hex"]), "key,value\n612c62,73617920227822\n62,ff0a\n");
    let file = store.path("dump.csv");
    let ran = store.run(["dump", "--format", "csv", "-o", file.to_str().unwrap()]);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""));
    assert!(ran.err.contains("wrote 2 entries"), "{ran:?}");
    assert_eq!(read(&file), b"key,value\n\"a,b\",\"say \"\"x\"\"\"\nb,\"\xff\n\"\n");
    let values = store.command(["dump", "--format", "values"]).output().unwrap().stdout;
    assert_eq!(values, b"say \"x\"\n\xff\n\n");
    store.run(["dump", "--format", "values", "--hex"]).failed(3, &["--hex"]);
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    let store = Store::new();
    let value = "x".repeat(1000);
    let text: String = (0..5000).map(|i| format!("{i}\t{value}\n")).collect();
    store.ok_with_input(["load", "--format", "tsv"], text);
    for args in [vec!["dump"], vec!["scan"], vec!["dump", "--format", "csv"]] {
        let mut child = store.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::with_capacity(10, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
}

#[test]
fn a_dump_that_fails_leaves_the_earlier_file() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let store = Store::with_entries(100);
    let (file, part) = (store.path("dump"), store.path("dump.part"));
    let dump = ["dump", "--format", "lines", "-o", file.to_str().unwrap()];
    store.ok(dump);
    let earlier = read(&file);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    store.ok(["put", "--hex", "ff0a", "00"]);
    std::fs::write(&part, "of a dump that was killed").unwrap();
    store.run(dump).failed(3, &["has a newline", "dump was not written"]);
    assert_eq!((read(&file), part.exists()), (earlier, false));
    // A whole dump takes its place and its permissions, also behind a link.
    store.ok(["delete", "--hex", "ff0a"]);
    store.ok(["put", "l", ""]);
    let link = store.path("link");
    symlink("dump", &link).unwrap();
    store.ok(["dump", "--format", "lines", "-o", link.to_str().unwrap()]);
    assert!(read(&file).ends_with(b"\nl\n") && link.is_symlink() && !part.exists());
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let missing = store.path("no/dump");
    store.run(["dump", "-o", missing.to_str().unwrap()]).failed(4, &["cannot create the output", "no/dump"]);
}
