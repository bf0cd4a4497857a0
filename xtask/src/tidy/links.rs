//! Relative links in markdown lead to a file or folder of the project, and their fragment to a heading of it.

use super::Finding;
use super::markdown::prose;
use super::tree::{Tree, has_extension};

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension("md") {
        for (line, text) in prose(&file.text) {
            for target in targets(&text) {
                if let Some(message) = broken(tree, &file.path, target) {
                    findings.push(Finding::new(&file.path, line, message));
                }
            }
        }
    }
    findings
}

/// Targets of `[text](target)` and `[label]: target` in a line.
fn targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let reference = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    inline.chain(reference.and_then(|(_, target)| target.split_whitespace().next())).collect()
}

fn broken(tree: &Tree, from: &str, target: &str) -> Option<String> {
    // Addresses with a scheme are not ours to check; a path with `::` is rustdoc's.
    if target.contains("://") || target.starts_with("mailto:") || target.contains("::") {
        return None;
    }
    let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let Some(path) = (if path.is_empty() { Some(from.to_owned()) } else { resolve(folder, path) }) else {
        return Some(format!("link `{target}` leaves the project"));
    };
    if !tree.exists(&path) {
        return Some(format!("link `{target}`: there is no {path}"));
    }
    let document = tree.get(&path).filter(|file| has_extension(&file.path, "md") && !fragment.is_empty())?;
    let found = prose_headings(&document.text).any(|heading| heading == fragment);
    (!found).then(|| format!("link `{target}`: {path} has no such heading"))
}

/// `path` seen from `folder`, without dots; `None` above the root.
fn resolve(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The fragments by which the headings of a document are reached.
fn prose_headings(text: &str) -> impl Iterator<Item = String> {
    let lines: Vec<&str> = text.lines().collect();
    prose(text).into_iter().filter_map(move |(number, _)| {
        let heading = lines[number - 1].strip_prefix('#')?.trim_start_matches('#').trim();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(link: &str) -> usize {
        let document = format!("# A `title`, here\n\nSee [it]({link}).\n");
        let tree = Tree::of(&[
            ("docs/a.md", &document),
            ("docs/format/sst.md", "# SST\n"),
            ("STYLE.md", "# Style\n"),
        ]);
        find(&tree).len()
    }

    #[test]
    fn relative_links_resolve() {
        for link in
            ["format/sst.md", "./format/", "../STYLE.md#style", "#a-title-here", "https://x.y/z", "../"]
        {
            assert_eq!(found(link), 0, "{link}");
        }
        for link in ["sst.md", "../docs/none.md", "../../x", "../STYLE.md#none", "#none"] {
            assert_eq!(found(link), 1, "{link}");
        }
    }

    #[test]
    fn reference_links_and_code_are_told_apart() {
        assert_eq!(targets("[a]: b.md"), ["b.md"]);
        assert_eq!(targets("[a](b.md) and [c](d.md \"title\")"), ["b.md", "d.md"]);
        let tree = Tree::of(&[("a.md", "# A\n`[x](none.md)`\n```\n[x](none.md)\n```\n")]);
        assert!(find(&tree).is_empty());
    }
}
