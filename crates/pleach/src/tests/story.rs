//! The runner of stories: plays files of commands, compares their answers, or writes them.

#![expect(clippy::disallowed_methods, reason = "stories are files of the repository, not of a store")]

use std::path::{Path, PathBuf};

/// Set to `rewrite`, answers are written into the stories instead of compared.
const MODE: &str = "PLEACH_STORIES";

/// Who answers the commands of a story. Every story has a new one.
pub(super) trait Player: Default {
    /// The answer to a command, of any number of lines. A command that makes no sense panics.
    fn answer(&mut self, command: &str) -> String;
}

/// Plays all stories of a folder of `testdata/`.
pub(super) fn play<P: Player>(folder: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(folder);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort_unstable();
    assert!(!paths.is_empty(), "a folder without stories");
    let mut differences = String::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{}: the first line of a story says what it shows", path.display());
        let played = replay(&text, &mut P::default());
        if played == text {
            continue;
        }
        if std::env::var_os(MODE).is_some_and(|mode| mode == "rewrite") {
            std::fs::write(&path, played).unwrap();
        } else {
            differences += &difference(&path, &text, &played);
        }
    }
    assert!(differences.is_empty(), "\n{differences}\n{MODE}=rewrite writes these answers into the stories.");
}

/// The story with the answers that `player` gives.
fn replay(text: &str, player: &mut impl Player) -> String {
    let mut played = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        played += line;
        played.push('\n');
        let Some(command) = line.strip_prefix("> ") else { continue };
        for line in player.answer(command).lines() {
            played += line;
            played.push('\n');
        }
        while lines.next_if(|line| !line.is_empty() && !line.starts_with(['#', '>'])).is_some() {}
    }
    played
}

/// The first place where the story and the answers differ, below its command.
fn difference(path: &Path, text: &str, played: &str) -> String {
    let same = text.lines().zip(played.lines()).take_while(|(told, found)| told == found).count();
    let command = text.lines().take(same).filter(|line| line.starts_with("> ")).last().unwrap_or_default();
    let line = |text: &str| text.lines().nth(same).unwrap_or_default().to_owned();
    let (told, found) = (line(text), line(played));
    format!("{}:{}\n{command}\n  told:  {told}\n  found: {found}\n", path.display(), same + 1)
}

/// The value of `name=value` among the words of a command.
pub(super) fn option<'w>(words: &[&'w str], name: &str) -> Option<&'w str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// The same as a number.
pub(super) fn number(words: &[&str], name: &str) -> Option<u64> {
    option(words, name).map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// Numbers with commas between them.
pub(super) fn numbers(list: &str) -> Vec<u64> {
    list.split(',').filter(|word| !word.is_empty()).map(|word| word.parse().unwrap()).collect()
}

#[test]
fn answers_are_replaced_and_nothing_else() {
    #[derive(Default)]
    struct Count(usize);
    impl Player for Count {
        fn answer(&mut self, command: &str) -> String {
            self.0 += 1;
            if command == "say nothing" { String::new() } else { format!("{command} {}\n", self.0) }
        }
    }
    let text = "# A story.\n\n> a\nold\nold\n> say nothing\n# Of this: a comment.\n> b\n\n> c\nc 4\n";
    let played = "# A story.\n\n> a\na 1\n> say nothing\n# Of this: a comment.\n> b\nb 3\n\n> c\nc 4\n";
    assert_eq!(replay(text, &mut Count::default()), played);
    assert_eq!(difference(Path::new("x"), text, played), "x:4\n> a\n  told:  old\n  found: a 1\n");
}
