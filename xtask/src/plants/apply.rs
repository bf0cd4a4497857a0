//! Changes of plants applied to texts.

use std::collections::BTreeMap;
use std::ops::Range;

use super::plant::{Change, Plant};

/// The one place in `text` where `old` stands, white space aside; an error says how often it stands there.
fn locate(text: &str, old: &str) -> Result<Range<usize>, String> {
    let is_ink = |byte: &(usize, u8)| !byte.1.is_ascii_whitespace();
    let ink: Vec<(usize, u8)> = text.bytes().enumerate().filter(is_ink).collect();
    let wanted: Vec<u8> = old.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let is_here = |window: &&[(usize, u8)]| window.iter().map(|(_, byte)| byte).eq(&wanted);
    let mut places = ink.windows(wanted.len()).filter(is_here);
    match (places.next(), places.count()) {
        (Some(&[(first, _), .., (last, _)]), 0) => Ok(first..last + 1),
        (Some(&[(only, _)]), 0) => Ok(only..only + 1),
        (found, others) => {
            let count = usize::from(found.is_some()) + others;
            Err(format!(
                "the old text stands {count} times in the file: {}",
                old.lines().next().unwrap_or("")
            ))
        }
    }
}

/// The new text of `change` with the switch of plant `name` in place of `PLANTED`.
fn with_switch(name: &str, change: &Change) -> String {
    let switch = format!(
        "({{ static PLANTED: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| \
         std::env::var_os(\"PLEACH_PLANT\").is_some_and(|plant| plant == \"{name}\")); *PLANTED }})"
    );
    change.new.replace("PLANTED", &switch)
}

/// What is wrong with one of several plants: its number among them, and a message.
pub(crate) type Misfit = (usize, String);

/// A place that a plant changes, with the plant's number.
struct Place<'a> {
    range: Range<usize>,
    number: usize,
    change: &'a Change,
}

/// The files that `plants` change, as they are with all changes. `text_of` gives a file's text.
pub(super) fn apply<'a>(
    plants: &'a [Plant],
    text_of: impl Fn(&str) -> Option<&'a str>,
) -> (BTreeMap<&'a str, String>, Vec<Misfit>) {
    let mut places: BTreeMap<&str, Vec<Place<'_>>> = BTreeMap::new();
    let mut misfits = Vec::new();
    for (number, plant) in plants.iter().enumerate() {
        for change in &plant.changes {
            let found = text_of(&change.path).ok_or("there is no such file".to_owned());
            match found.and_then(|text| locate(text, &change.old)) {
                Ok(range) => places.entry(&change.path).or_default().push(Place { range, number, change }),
                Err(error) => misfits.push((number, format!("{}: {error}", change.path))),
            }
        }
    }
    let mut changed = BTreeMap::new();
    for (path, mut places) in places {
        places.sort_by_key(|place| place.range.start);
        let text = text_of(path).expect("it was found above");
        let (mut new_text, mut end, mut last) = (String::new(), 0, 0);
        for Place { range, number, change } in places {
            if range.start < end {
                let other = &plants[last].name;
                misfits.push((number, format!("{path}: it changes the same text as the plant `{other}`")));
                continue;
            }
            new_text += &text[end..range.start];
            new_text += &with_switch(&plants[number].name, change);
            (end, last) = (range.end, number);
        }
        new_text += &text[end..];
        changed.insert(path, new_text);
    }
    (changed, misfits)
}

/// The reasons why `plants` cannot be applied together.
pub(crate) fn misfits<'a>(plants: &'a [Plant], text_of: impl Fn(&str) -> Option<&'a str>) -> Vec<Misfit> {
    apply(plants, text_of).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plant(name: &str, old: &str, new: &str) -> Plant {
        let text = format!("bug: b\ntest: cargo test -p a --lib t\n--- x.rs\n{old}\n+++\n{new}\n");
        Plant::parse(&format!("plants/{name}.txt"), &text).unwrap()
    }

    fn apply_to(text: &str, plants: &[Plant]) -> (Option<String>, Vec<Misfit>) {
        let (mut changed, misfits) = apply(plants, |path| (path == "x.rs").then_some(text));
        (changed.remove("x.rs"), misfits)
    }

    #[test]
    fn white_space_does_not_count_in_the_old_text() {
        let plants = [plant("one", "b( c );", "z;"), plant("two", "a();", "")];
        assert_eq!(apply_to("a();\n    b(\n    c);\nd", &plants), (Some("\n    z;\nd".into()), Vec::new()));
    }

    #[test]
    fn the_old_text_stands_there_once_and_is_changed_once() {
        let plants = [plant("one", "a b", "x"), plant("two", "b c", "y"), plant("three", "d", "z")];
        let (text, misfits) = apply_to("a b c d d", &plants);
        assert_eq!(text.as_deref(), Some("x c d d"));
        assert!(misfits[0].0 == 2 && misfits[0].1.contains("2 times"), "{misfits:?}");
        assert!(misfits[1].0 == 1 && misfits[1].1.contains("`one`"), "{misfits:?}");
        let misfits = super::misfits(&plants, |_| None);
        assert!(misfits[0].1.contains("no such file"));
    }

    #[test]
    fn the_switch_knows_its_plant() {
        let (text, _) = apply_to("a", &[plant("one", "a", "if PLANTED { b }")]);
        assert!(text.unwrap().contains("plant == \"one\""));
    }
}
