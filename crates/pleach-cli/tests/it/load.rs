//! Loads: formats, malformed input, interruption.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::command::{Ran, Store};

#[test]
fn the_extension_tells_the_format() {
    let store = Store::new();
    let inputs = [
        ("a.txt", "x\ny\n", "x\t\ny\t\n"),
        ("a.tsv", "x\t1\ny\t2\n", "x\t1\ny\t2\n"),
        ("a.csv", "name,n\n\"x,x\",1\ny,2\n", "x,x\t1\ny\t2\n"),
        ("a.jsonl", "{\"key\":\"x\",\"value\":\"1\"}\n", "x\t1\n"),
    ];
    for (name, text, scanned) in inputs {
        let file = store.file(name, text);
        store.ok(["load", file.to_str().unwrap(), "--partition", name]);
        assert_eq!(store.ok(["scan", "--partition", name]), scanned, "{name}");
    }
    let file = store.file("a.bin", "x");
    store.run(["load", file.to_str().unwrap()]).failed(3, &["format", "--format"]);
}

#[test]
fn no_column_is_lost_unless_one_is_chosen() {
    let store = Store::new();
    let csv = "id,name,mail\n1,ann,\"a@x\"\n2,\"b \"\"b\"\"\",b@x\n";
    store.ok_with_input(["load", "--format", "csv", "--key-column", "id"], csv);
    assert_eq!(
        store.ok(["dump", "--format", "values"]),
        "{\"id\":\"1\",\"name\":\"ann\",\"mail\":\"a@x\"}\n\
         {\"id\":\"2\",\"name\":\"b \\\"b\\\"\",\"mail\":\"b@x\"}\n"
    );
    let load = |name: &str, args: &[&str], input: &str| {
        store.ok_with_input(["load", "--partition", name].iter().chain(args), input);
        store.ok(["scan", "--partition", name])
    };
    assert_eq!(load("tsv", &["--format", "tsv"], "a\t1\t2\n"), "a\t[\"a\",\"1\",\"2\"]\n");
    assert_eq!(load("bare", &["--format", "csv", "--no-header"], "a,1,2\n"), "a\t[\"a\",\"1\",\"2\"]\n");
    assert_eq!(load("two", &["--format", "csv", "--key-column", "2"], "v,k\n1,a\n"), "a\t1\n");
    let two = load("row", &["--format", "csv", "--whole-row"], "k,v\na,1\n");
    assert_eq!(two, "a\t{\"k\":\"a\",\"v\":\"1\"}\n");
    let uneven =
        |rows: &str| store.run_with_input(["load", "--format", "csv", "--partition", "uneven"], rows);
    uneven("a,b\n1,2,3\n").failed(3, &["line 2: the row has 3 columns, others have 2"]);
    uneven("a,b,c\n1,2\n").failed(3, &["line 2: there is no column 3"]);
    uneven("a,b,a\n1,2,3\n").failed(3, &["two columns called \"a\""]);
}

#[test]
fn a_malformed_first_row_decides_nothing() {
    let store = Store::new();
    let input = "# comment\na\t1\tx\nb\t2\ty\n";
    store.ok_with_input(["load", "--format", "tsv", "--skip-malformed"], input);
    assert_eq!(store.ok(["scan"]), "a\t[\"a\",\"1\",\"x\"]\nb\t[\"b\",\"2\",\"y\"]\n");
}

#[test]
fn a_key_that_begins_with_a_byte_order_mark_comes_back() {
    let (store, other) = (Store::new(), Store::new());
    store.ok(["put", "\u{feff}k", "v"]);
    let dumped = store.ok(["dump", "--format", "tsv"]);
    other.ok_with_input(["load", "--format", "tsv"], &dumped);
    assert_eq!(other.ok(["get", "\u{feff}k"]), "v");
    assert_eq!(other.ok(["dump", "--format", "tsv"]), dumped);
}

/// Messages go to a full disk.
#[test]
#[cfg(target_os = "linux")]
fn messages_that_cannot_be_written_change_no_exit_code() {
    let store = Store::new();
    store.ok(["put", "k", "v"]);
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for (args, code) in [(&["get", "missing"][..], 1), (&["get", "k"], 0), (&["scan", "--prefix", "k"], 0)] {
        let status = store.command(args).stdout(Stdio::null()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn an_open_quote_is_malformed_and_says_where_it_opened() {
    let store = Store::new();
    let text = "id,name\n1,ann\n2,\"bob\n3,\"carl\"\n4,dora\n";
    let ran = store.run_with_input(["load", "--format", "csv"], text);
    ran.failed(
        3,
        &[
            "standard input, line 3: the quote that opens here closes in line 4",
            "1 entry before that is in the store",
        ],
    );
    let text = "id,name\n1,ann\n2,\"bob\n3,carl\n";
    let ran = store.run_with_input(["load", "--format", "csv"], text);
    ran.failed(3, &["line 3: the quote that opens here is never closed", "2 line breaks", "double it"]);
    let ran = store.run_with_input(["load", "--format", "csv", "--skip-malformed"], text);
    assert!(ran.code == 0 && ran.err.contains("loaded 1 entry") && ran.err.contains("line 3"), "{ran:?}");
    store.run_with_input(["load", "--format", "csv"], "\"id,name\n1,ann\n").failed(3, &["line 1: the quote"]);
}

#[test]
fn lines_come_back_as_they_were() {
    let store = Store::new();
    let text = "\u{feff}a\n\0b\nc\r\n\\d\n\u{e9}\n";
    let ran = store.run_with_input(["load", "--format", "lines"], text);
    assert!(
        ran.code == 0 && ran.err.contains("kept the carriage return") && ran.err.contains("--crlf"),
        "{ran:?}"
    );
    let mut sorted: Vec<_> = text.split_inclusive('\n').collect();
    sorted.sort_unstable();
    assert_eq!(store.ok(["dump", "--format", "lines"]), sorted.concat());
    store.ok_with_input(["load", "--format", "lines", "--crlf", "--partition", "w"], "a\r\nb\r\n");
    assert_eq!(store.ok(["dump", "--format", "lines", "--partition", "w"]), "a\nb\n");
    store.ok(["put", "x\ny", "", "--partition", "w"]);
    store
        .run(["dump", "--format", "lines", "-o", "/dev/null", "--partition", "w"])
        .failed(3, &["newline", "--hex"]);
    assert_eq!(store.ok(["dump", "--format", "lines", "--hex", "--partition", "w"]), "61\n62\n780a79\n");
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_name() {
    let store = Store::new();
    let ran = store.run_with_input(["load", "--format", "csv", "--key-column", "id"], "\u{feff}id,v\n1,2\n");
    assert!(ran.code == 0 && ran.err.contains("skipped the byte order mark"), "{ran:?}");
    assert_eq!(store.ok(["scan"]), "1\t2\n");
}

#[test]
fn input_that_is_refused_at_once_creates_no_store() {
    let store = Store::new();
    for (args, input) in [
        (vec!["load", "--format", "jsonl"], "nonsense\n"),
        (vec!["load", "--format", "csv"], "id,id,id\n1,2,3\n"),
        (vec!["load", "--format", "lines", "--partition", ""], "a\n"),
        (vec!["put", "k", "v", "--partition", ""], ""),
    ] {
        store.run_with_input(&args, input).failed(3, &["error"]);
        assert!(!store.db().exists(), "{args:?}");
    }
}

#[test]
fn columns_are_chosen_by_name_or_number() {
    let store = Store::new();
    let csv = store.file("c.csv", "id,name,mail\n1,ann,a@x\n2,bob,b@x\n");
    let csv = csv.to_str().unwrap();
    store.ok(["load", csv, "--key-column", "name", "--value-column", "mail", "--partition", "names"]);
    assert_eq!(store.ok(["scan", "--partition", "names"]), "ann\ta@x\nbob\tb@x\n");
    store.ok([
        "load",
        csv,
        "--key-column",
        "3",
        "--value-column",
        "1",
        "--no-header",
        "--partition",
        "numbers",
    ]);
    assert_eq!(store.ok(["scan", "--partition", "numbers"]), "a@x\t1\nb@x\t2\nmail\tid\n");
    store.run(["load", csv, "--key-column", "nmae"]).failed(3, &["nmae", "id, name, mail"]);
    store.run(["load", csv, "--key-column", "0"]).failed(3, &["counted from 1"]);
    store.run(["load", csv, "--number"]).failed(3, &["--number does not apply to the format csv"]);
}

#[test]
fn lines_and_fields_have_their_options() {
    let store = Store::new();
    store.ok_with_input(["load", "--format", "lines", "--number"], "b\na\n");
    assert_eq!(store.ok(["scan"]), "a\t2\nb\t1\n");
    let objects = "{\"id\":\"u1\",\"n\":1}\n{\"id\":\"u2\",\"n\":2}\n";
    store.ok_with_input(["load", "--format", "jsonl", "--key-field", "id", "--partition", "j"], objects);
    assert_eq!(store.ok(["dump", "--format", "values", "--partition", "j"]), objects);
    let args = ["load", "--format", "jsonl", "--key-field", "id", "--value-field", "n", "--partition", "n"];
    store.ok_with_input(args, objects);
    assert_eq!(store.ok(["scan", "--partition", "n"]), "u1\t1\nu2\t2\n");
    store.ok_with_input(["load", "--format", "tsv", "--no-escapes", "--partition", "t"], "C:\\new\t\\q\n");
    assert_eq!(store.ok(["get", "C:\\new", "--partition", "t"]), "\\q");
}

#[test]
fn malformed_input_names_its_line_or_is_skipped() {
    let store = Store::new();
    let text = "a\t1\nb\t2\nno tab\nc\t3\n\tempty key\nd\t\\q\ne\t5\n";
    let ran = store.run_with_input(["load", "--format", "tsv"], text);
    let ran = ran.failed(3, &["standard input, line 3", "no column 2", "--skip-malformed"]);
    assert!(ran.err.contains("2 entries before that are in the store"), "{ran:?}");
    assert_eq!(store.ok(["scan", "--count"]), "2\n");
    let ran = store.run_with_input(["load", "--format", "tsv", "--skip-malformed"], text);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("loaded 5 entries") && ran.err.contains("lines 3, 6"), "{ran:?}");
    assert_eq!(store.ok(["scan", "--keys-only"]), "\na\nb\nc\ne\n");
    for (format, text) in [("jsonl", "{\"key\":1}\n"), ("stanzas", "Version: 1\n"), ("csv", "h1,h2\nonly\n")]
    {
        store.run_with_input(["load", "--format", format], text).failed(3, &["line "]);
    }
}

#[test]
fn the_summary_counts_entries_and_keys_that_came_again() {
    let store = Store::new();
    let text: String = (0..2500).map(|i| format!("k{}\tv{i}\n", i % 2000)).collect();
    let file = store.file("r.tsv", text);
    let file = file.to_str().unwrap();
    let summary = store.json(["load", file, "--json", "--batch", "7"]);
    assert_eq!((&summary["entries"], &summary["repeated_keys"]), (&2500.into(), &500.into()), "{summary}");
    assert_eq!((&summary["complete"], &summary["malformed"]), (&true.into(), &0.into()));
    assert_eq!(store.ok(["get", "k499"]), "v2499");
    assert_eq!(store.ok(["scan", "--count"]), "2000\n");
    let ran = store.run(["load", file, "--sync"]);
    assert!(ran.err.contains("500 keys came again") && ran.err.contains("2,000 distinct"), "{ran:?}");
}

#[test]
fn ctrl_c_ends_a_load_that_waits_for_input() {
    let store = Store::new();
    let mut command = store.command(["load", "--format", "lines", "--batch", "10"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for i in 0..95 {
        writeln!(input, "{i:03}").unwrap();
    }
    input.flush().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let ran = Ran::of(child.wait_with_output().unwrap()).failed(130, &["interrupted", "loaded 95 entries"]);
    drop((input, ran));
    assert_eq!(store.ok(["scan", "--count"]), "95\n");
}

#[test]
fn a_csv_header_of_one_column_and_a_directory_are_refused() {
    let store = Store::new();
    let file = store.file("semicolons.csv", "id;name\n1;a\n");
    store.run(["load", file.to_str().unwrap()]).failed(3, &["only one column, \"id;name\"", "commas"]);
    store.run(["load", store.path("").to_str().unwrap()]).failed(3, &["is a directory, not an input file"]);
    assert!(!store.db().exists());
}

#[test]
fn single_lines_and_keys_are_told_in_the_singular() {
    let store = Store::new();
    let ran = store.run_with_input(["load", "--format", "tsv", "--skip-malformed"], "a\tb\na\tc\nx\n");
    assert!(ran.err.contains("1 key came again, the later value won: 1 distinct key\n"), "{ran:?}");
    assert!(
        ran.err.contains("skipped 1 entry of standard input that could not be read: line 3\n"),
        "{ran:?}"
    );
}
