//! Stores and maps that do not belong together, and damaged ones: a clear error, or a rebuilt map, and never a wrong
//! answer.

use std::path::Path;
use std::sync::Arc;

use pleach::ErrorKind;
use pleach::env::{Env, OpenOptions, SimEnv};
use pleach_reshape::paper::{Flush, PaperScheme};
use pleach_reshape::store::model::ModelStore;
use pleach_reshape::store::{Change, Durability, Place, RowStore, Table};
use pleach_reshape::{MapPlace, Options, Reshaped};

use crate::rig::{Contents, DIR, assert_contents};

fn options(env: &Arc<SimEnv>) -> Options {
    let map = pleach::Options::new().memory(1 << 20).memtable_bytes(32 << 10);
    Options::new().env(Arc::<SimEnv>::clone(env)).background(false).map_options(map)
}

fn open(rows: &ModelStore, options: &Options) -> pleach::Result<Reshaped> {
    options.clone().open(Box::new(rows.clone()), DIR)
}

/// A closed store of some pairs.
fn filled(env: &Arc<SimEnv>, name: &str) -> (ModelStore, Contents) {
    let rows = ModelStore::new(false);
    let store = open(&rows, &options(env)).unwrap();
    let mut contents = Contents::new();
    for number in 0..50 {
        let (key, value) = (format!("{name}{number}").into_bytes(), format!("value {number}").into_bytes());
        store.put(&key, &value).unwrap();
        contents.insert(key, value);
        if number == 30 {
            store.checkpoint().unwrap();
        }
    }
    store.close().unwrap();
    (rows, contents)
}

fn rebuilt(store: &Reshaped) -> &str {
    store.open_report().rebuilt.as_deref().expect("the map was rebuilt")
}

#[test]
fn a_plain_store_is_refused() {
    let (env, rows) = (SimEnv::new(1), ModelStore::new(false));
    rows.create_table(Table(0)).unwrap();
    let place = Place { table: Table(0), id: 7 };
    rows.commit(&[Change::Put { place, row: b"plain" }], Durability::Sync).unwrap();
    let error = open(&rows, &options(&env)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("without key reshaping"), "{error}");
}

#[test]
fn the_map_of_another_store_is_rebuilt() {
    let (env, other) = (SimEnv::new(1), SimEnv::new(2));
    let (rows, contents) = filled(&env, "a");
    filled(&other, "b");
    let store = open(&rows, &options(&other)).unwrap();
    assert!(rebuilt(&store).contains("another store"));
    assert_contents(&store, &contents, "another store's map");
}

#[test]
fn a_map_ahead_of_its_store_is_rebuilt() {
    let env = SimEnv::new(1);
    let (rows, _) = filled(&env, "a");
    let mut contents = Contents::new();
    let before = rows.crash(rows.commits());
    let store = open(&rows, &options(&env)).unwrap();
    for number in 0..30 {
        store.delete(format!("a{number}")).unwrap();
        store.put(format!("later {number}"), "").unwrap();
    }
    store.checkpoint().unwrap();
    drop(store);
    for number in 0..50 {
        contents.insert(format!("a{number}").into_bytes(), format!("value {number}").into_bytes());
    }
    let store = open(&before, &options(&env)).unwrap();
    assert!(rebuilt(&store).contains("ahead"));
    assert_contents(&store, &contents, "an older store");
}

#[test]
fn a_lost_map_is_rebuilt() {
    let env = SimEnv::new(1);
    let (rows, contents) = filled(&env, "a");
    let store = open(&rows, &options(&SimEnv::new(2))).unwrap();
    assert!(rebuilt(&store).contains("no checkpoint"));
    assert_eq!(store.open_report().rows_read, 50);
    assert_contents(&store, &contents, "a lost map");
}

#[test]
fn a_damaged_row_is_an_error_that_names_it() {
    let env = SimEnv::new(1);
    let (rows, contents) = filled(&env, "a");
    for place in rows.places() {
        let rows = rows.crash(rows.commits());
        rows.damage(place, |bytes| bytes[7] ^= 1);
        let store = open(&rows, &options(&env)).unwrap();
        let failed: Vec<_> = contents.keys().filter_map(|key| store.get(key).err()).collect();
        assert_eq!(failed.len(), 1);
        let name = format!("row {} of table {}", place.id, place.table.0);
        assert!(failed[0].kind() == ErrorKind::Corruption && failed[0].to_string().contains(&name));
        assert!(store.all().unwrap().any(|pair| pair.is_err()));
        assert_eq!(store.verify().unwrap_err().kind(), ErrorKind::Corruption);
        drop(store);
        // Without a map the open reads the row.
        assert_eq!(open(&rows, &options(&SimEnv::new(3))).unwrap_err().kind(), ErrorKind::Corruption);
    }
}

#[test]
fn a_row_of_another_key_is_not_an_answer() {
    let env = SimEnv::new(1);
    let (rows, _) = filled(&env, "a");
    let places = rows.places();
    let mut other = Vec::new();
    rows.get(places[0], &mut |row| other = row.to_vec()).unwrap();
    rows.damage(places[1], |row| *row = other);
    let store = open(&rows, &options(&env)).unwrap();
    assert_eq!(store.get("a0").unwrap().as_deref(), Some(&b"value 0"[..]));
    assert_eq!(store.get("a1").unwrap(), None);
    assert_eq!(store.all().unwrap().count(), 49);
}

#[test]
fn every_damaged_byte_of_the_maps_files_is_an_error_or_harmless() {
    let env = SimEnv::new(1);
    let (rows, contents) = filled(&env, "a");
    let (mut errors, mut harmless) = (0, 0);
    for (name, metadata) in
        env.list_dir(Path::new(DIR)).unwrap().into_iter().filter(|(_, metadata)| metadata.is_file)
    {
        for at in (0..metadata.len.min(6000)).step_by(if metadata.len > 2000 { 37 } else { 3 }) {
            let disk = env.crash_image(pleach::env::CrashPolicy::Everything, 1);
            let file =
                disk.open_file(&Path::new(DIR).join(&name), OpenOptions { write: true, direct: false });
            let file = file.unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 0x41], at).unwrap();
            let rows = rows.crash(rows.commits());
            let place = if at % 2 == 0 { MapPlace::Disk } else { MapPlace::Memory };
            match read_all(&rows, &options(&disk).map(place)) {
                Ok(found) => {
                    assert!(found == contents, "{name} at {at}");
                    harmless += 1;
                }
                Err(error) => {
                    assert!(!matches!(error.kind(), ErrorKind::Io), "{name} at {at}: {error}");
                    errors += 1;
                }
            }
            // With the option, whatever cannot be opened is rebuilt.
            let again = options(&disk).map(MapPlace::Memory).rebuild_damaged_map(true);
            if let Ok(store) = open(&rows, &again) {
                let found: Contents = store.all().unwrap().map(Result::unwrap).collect();
                assert!(found == contents, "{name} at {at}");
            }
        }
    }
    println!("{errors} errors, {harmless} harmless");
    assert!(errors > 10 && harmless > 10);
}

fn read_all(rows: &ModelStore, options: &Options) -> pleach::Result<Contents> {
    let store = open(rows, options)?;
    store.all()?.collect()
}

#[test]
fn a_remap_file_cut_or_changed_anywhere_loses_nothing() {
    let path = Path::new("/paper/remap");
    let (env, rows) = (SimEnv::new(1), ModelStore::new(false));
    let open = |rows: &ModelStore, env: &Arc<SimEnv>| {
        let env: Arc<dyn Env> = Arc::<SimEnv>::clone(env);
        PaperScheme::open(Box::new(rows.clone()), &env, path, Flush::Sync)
    };
    let store = open(&rows, &env).unwrap();
    let mut contents = Contents::new();
    for number in 0..40u8 {
        let (key, value) = (vec![b'k', number % 16], vec![number]);
        let value = (number % 3 != 0).then_some(value);
        store.write(&[(&key[..], value.as_deref())], Durability::Buffered).unwrap();
        match value {
            Some(value) => contents.insert(key, value),
            None => contents.remove(&key),
        };
    }
    let len = store.remap_file_bytes();
    drop(store);
    for at in 0..=len {
        for is_cut in [false, true] {
            let disk = env.crash_image(pleach::env::CrashPolicy::Everything, 1);
            let file = disk.open_file(path, OpenOptions { write: true, direct: false }).unwrap();
            if is_cut {
                file.set_len(at).unwrap();
            } else if at < len {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            }
            // Twice: what the first open found is in the file again.
            for _ in 0..2 {
                let store = open(&rows, &disk).unwrap();
                let found: Contents = store.scan("", usize::MAX).unwrap().into_iter().collect();
                assert_eq!(found, contents, "{at} {is_cut}");
                for number in 0..16 {
                    let key = vec![b'k', number];
                    assert_eq!(store.get(&key).unwrap().as_ref(), contents.get(&key));
                }
            }
        }
    }
    let error = open(&filled(&env, "a").0, &env).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// A map that names rows of a generation whose tables were dropped, while the one after the next uses their names again.
#[test]
fn a_map_from_before_tables_were_dropped_is_rebuilt() {
    let (env, rows) = (SimEnv::new(1), ModelStore::new(false));
    let options = options(&env).sequence_bits(4);
    let store = open(&rows, &options).unwrap();
    let mut contents = Contents::new();
    for number in 0..5 {
        store.put(format!("k{number}"), "old").unwrap();
        contents.insert(format!("k{number}").into_bytes(), b"old".to_vec());
    }
    let renew = |generation: u64| {
        while store.stats().generation < generation {
            store.put("x", "").unwrap();
            store.delete("x").unwrap();
        }
    };
    renew(1);
    store.checkpoint().unwrap();
    let before = env.capture();
    store.delete("k0").unwrap();
    contents.remove(&b"k0"[..]);
    store.drain().unwrap();
    renew(2);
    for number in 0..9 {
        store.put(format!("n{number}"), "new").unwrap();
        contents.insert(format!("n{number}").into_bytes(), b"new".to_vec());
    }
    assert!(store.stats().is_draining);
    drop(store);
    let disk = before.crash_image(pleach::env::CrashPolicy::Everything, 1);
    let store = open(&rows, &options.env(Arc::<SimEnv>::clone(&disk))).unwrap();
    store.put("k0", "again").unwrap();
    contents.insert(b"k0".to_vec(), b"again".to_vec());
    assert_contents(&store, &contents, "an old map");
    assert!(rebuilt(&store).contains("older"));
}
