//! Commands of the stories about pickers.
//!
//! ```text
//! policy SHAPE [k=3] [memtable=100] [age=100] [writing]
//!     of all that follows: the shape (forest, bottom, leveled), runs a stage, bytes of a memtable, seconds that a tombstone
//!     may be old, and whether data is being written
//! pick WORDS.. [busy=RUN,RUN] [now=SECOND]
//!     the merge that is due; `busy` are runs at work by a job that the version does not know
//! pick-all WORDS..
//!     the merge that a user has asked for
//! pick-sparse WORDS..
//!     the merge that takes the sections out of shared flush files
//! is-sparse LIVE RAW
//!     whether a shared flush file of so many bytes, of which so many are live, is sparse
//! load COUNT
//!     loads so many memtables of new keys in random order, every file as large as a memtable; tells how often each byte was
//!     written to SSTs, and the runs of each stage in memtables
//! ```
//!
//! The words of a sub-tree: [`super::trees`].

use super::load::load;
use super::story::{Player, number, numbers, option, play};
use super::trees::{policy, told, tree};
use crate::picker::{Plan, Situation, is_sparse, pick, pick_all, pick_sparse};
use crate::shape::{Policy, Shape};
use crate::version::edit::RunId;

#[test]
fn stories_of_pickers() {
    play::<Pickers>("pickers");
}

struct Pickers {
    policy: Policy,
}

impl Default for Pickers {
    fn default() -> Self {
        Self { policy: policy(Shape::default()) }
    }
}

impl Player for Pickers {
    fn answer(&mut self, command: &str) -> String {
        let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        let tree = || tree(rest);
        match name {
            "policy" => {
                self.policy = policy_of(&words);
                String::new()
            }
            "load" => load(self.policy, words[0].parse().unwrap()),
            "pick" => {
                let busy = numbers(option(&words, "busy").unwrap_or_default());
                let busy: Vec<_> = busy.into_iter().map(RunId).collect();
                let now = number(&words, "now").unwrap_or(0);
                told(pick(&self.policy, Situation { tree: &tree(), busy: &busy, now }))
            }
            "pick-all" => {
                let situation = Situation { tree: &tree(), busy: &[], now: 0 };
                told(pick_all(&self.policy, situation).map(Plan::Whole))
            }
            "pick-sparse" => told(pick_sparse(&tree(), &[]).map(Plan::Whole)),
            "is-sparse" => {
                let bytes = |at: usize| words[at].parse().unwrap();
                (if is_sparse(bytes(0), bytes(1)) { "yes" } else { "no" }).to_owned()
            }
            _ => panic!("{command:?} is no command"),
        }
    }
}

fn policy_of(words: &[&str]) -> Policy {
    let shape = match words[0] {
        "forest" => Shape::Forest,
        "bottom" => Shape::ForestOverBottom,
        "leveled" => Shape::Leveled,
        other => panic!("{other} is no shape"),
    };
    let default = policy(shape);
    Policy {
        k: number(words, "k").map_or(default.k, |k| usize::try_from(k).unwrap()),
        memtable_bytes: number(words, "memtable").unwrap_or(default.memtable_bytes),
        tombstone_age_max: number(words, "age").unwrap_or(default.tombstone_age_max),
        is_quiet: !words.contains(&"writing"),
        ..default
    }
}
