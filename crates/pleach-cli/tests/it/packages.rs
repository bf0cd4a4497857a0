//! docs/examples/debian-packages.md on a small generated input.

use std::collections::BTreeMap;

use crate::command::{Store, read};

/// Stanzas as a package list has them: folded fields, long and short ones, names that come again.
fn package_list() -> (String, BTreeMap<String, String>) {
    let mut random = fastrand::Rng::with_seed(11);
    let (mut text, mut last) = (String::new(), BTreeMap::new());
    for i in 0..3000 {
        let name = format!("lib{}-{}", ["a", "gtk", "z+", "perl.x"][random.usize(..4)], random.u32(..600));
        let mut stanza =
            format!("Package: {name}\nVersion: {i}.0-1\nArchitecture: all\nDescription: number {i}\n");
        for _ in 0..random.u32(..6) {
            stanza
                .push_str(&format!(" {}\n .\n", "some long text: with a colon ".repeat(random.usize(1..20))));
        }
        text.push_str(&stanza);
        text.push('\n');
        last.insert(name, stanza);
    }
    (text, last)
}

#[test]
fn a_package_list_comes_out_as_it_went_in() {
    let (text, last) = package_list();
    let store = Store::new();
    let summary = store.ok_with_input(["load", "--format", "stanzas", "--json", "-"], &text);
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!((&summary["entries"], &summary["repeated_keys"]), (&3000.into(), &(3000 - last.len()).into()));
    let (name, stanza) = last.first_key_value().unwrap();
    assert_eq!(&store.ok(["get", name]), stanza);
    let prefix: Vec<_> = last.keys().filter(|name| name.starts_with("libgtk-1")).cloned().collect();
    let scanned = store.ok(["scan", "--prefix", "libgtk-1", "--keys-only"]);
    assert!(scanned.lines().eq(&prefix));
    let dump = store.path("dump");
    store.ok(["dump", "--format", "stanzas", "--output", dump.to_str().unwrap()]);
    let expected: String = last.values().map(|stanza| format!("{stanza}\n")).collect();
    assert_eq!(read(&dump), expected.as_bytes());
    store.ok(["load", dump.to_str().unwrap(), "--format", "stanzas", "--partition", "again"]);
    let (first, second) = (store.ok(["dump"]), store.ok(["dump", "--partition", "again"]));
    assert_eq!(first, second);
}
