//! put, get, delete and scan.

use crate::command::Store;

#[test]
fn a_value_is_read_back_as_it_is() {
    let store = Store::new();
    assert_eq!(store.ok(["put", "hello", "world"]), "");
    assert_eq!(store.ok(["get", "hello"]), "world");
    store.ok(["put", "hello", ""]);
    assert_eq!(store.ok(["get", "hello"]), "");
    store.ok(["put", "--", "-key", "-value"]);
    assert_eq!(store.ok(["get", "--", "-key"]), "-value");
}

#[test]
fn values_come_from_files_and_standard_input() {
    let store = Store::new();
    let bytes = [0u8, 255, b'\n', b'\\', 10, 13, 0];
    let file = store.file("value", bytes);
    store.ok(["put", "f", "--file", file.to_str().unwrap()]);
    store.ok_with_input(["put", "s", "-"], bytes);
    for key in ["f", "s"] {
        assert_eq!(store.command(["get", key]).output().unwrap().stdout, bytes);
        let hex: String = key.bytes().map(|b| format!("{b:02x}")).collect();
        assert_eq!(store.ok(["get", &hex, "--hex"]), "00ff0a5c0a0d00\n");
    }
}

#[test]
fn several_keys_are_lines_and_absent_ones_are_told() {
    let store = Store::with_entries(3);
    assert_eq!(store.ok(["get", "k3", "k1"]), "k3\tv3\nk1\tv1\n");
    let ran = store.run(["get", "k1", "no", "k2"]);
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (1, "k1\tv1\nk2\tv2\n", "error: \"no\" is not there\n")
    );
    store.run(["get", "no"]).failed(1, &["error: \"no\" is not there"]);
    assert_eq!(store.ok(["get", "k1", "--json"]), "{\"key\":\"k1\",\"value\":\"v1\"}\n");
}

#[test]
fn hexadecimal_goes_in_and_out() {
    let store = Store::new();
    store.ok(["put", "--hex", "00FF", "c3a9"]);
    assert_eq!(store.ok(["scan"]), "\\x00\\xff\t\u{e9}\n");
    assert_eq!(store.ok(["scan", "--hex"]), "00ff\tc3a9\n");
    assert_eq!(store.ok(["scan", "--json"]), "{\"key_base64\":\"AP8=\",\"value\":\"\u{e9}\"}\n");
    assert_eq!(store.ok(["scan", "--hex", "--prefix", "00"]), "00ff\tc3a9\n");
    assert_eq!(store.ok(["get", "--hex", "00ff"]), "c3a9\n");
    store.run(["get", "--hex", "0"]).failed(3, &["hexadecimal"]);
    store.run(["put", "--hex", "00", "xy"]).failed(3, &["\"xy\"", "hexadecimal"]);
    store.ok(["delete", "--hex", "00ff"]);
    assert_eq!(store.ok(["scan", "--count"]), "0\n");
}

#[test]
fn deleted_keys_are_gone() {
    let store = Store::with_entries(3);
    assert_eq!(store.ok(["delete", "k1", "k3"]), "");
    assert_eq!(store.ok(["scan"]), "k2\tv2\n");
    let ran = store.run(["delete", "k1", "k2"]).failed(1, &["\"k1\" is not there"]);
    assert!(!ran.err.contains("k2"));
    assert_eq!(store.ok(["scan", "--count"]), "0\n");
    store.ok(["delete", "--force", "k1"]);
    assert_eq!(store.json(["delete", "--force", "k1", "--json"])["absent"], 1);
}

#[test]
fn scans_have_bounds_order_and_limits() {
    let store = Store::with_entries(12);
    let keys = |args: &[&str]| {
        let args = ["scan", "--keys-only"].iter().chain(args);
        store.ok(args).lines().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys(&["--prefix", "k1"]), "k1 k10 k11 k12");
    assert_eq!(keys(&["--from", "k12", "--to", "k4"]), "k12 k2 k3");
    assert_eq!(keys(&["--from", "k8"]), "k8 k9");
    assert_eq!(keys(&["--to", "k10"]), "k1");
    assert_eq!(keys(&["--reverse", "--limit", "2"]), "k9 k8");
    assert_eq!(keys(&["--limit", "0"]), "");
    assert_eq!(keys(&["--from", "k5", "--to", "k5"]), "");
    assert_eq!(store.ok(["scan", "--count", "--prefix", "k1"]), "4\n");
    assert_eq!(store.json(["scan", "--count", "--json"])["count"], 12);
    assert_eq!(store.ok(["scan", "--limit", "1"]), "k1\tv1\n");
    store.run(["scan", "--prefix", "k", "--from", "k"]).failed(3, &["--from"]);
}
