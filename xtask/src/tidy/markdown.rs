//! Markdown as lines of prose: code, in fences and in backticks, is blanked.

/// The prose of each line with its number; fenced lines are left out.
pub(super) fn prose(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut fence: Option<String> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let marks: String = line.trim_start().chars().take_while(|c| matches!(c, '`' | '~')).collect();
        match &fence {
            Some(open) => {
                if marks.starts_with(open.as_str()) {
                    fence = None;
                }
            }
            None if marks.len() >= 3 => fence = Some(marks),
            None => lines.push((number, without_code(line))),
        }
    }
    lines
}

/// The line without what stands between backticks.
fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let closed = parts.len() % 2 == 1;
    let is_prose = |at: usize| at.is_multiple_of(2) || (!closed && at + 1 == parts.len());
    let kept: Vec<&str> = (0..parts.len()).filter(|at| is_prose(*at)).map(|at| parts[at]).collect();
    kept.join("``")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_not_prose() {
        let text = "a `b` c\n```text\nd\n```\ne\n~~~~\n```\n~~~\n~~~~\nf `g\n";
        let expected = [(1, "a `` c".to_owned()), (5, "e".to_owned()), (10, "f ``g".to_owned())];
        assert_eq!(prose(text), expected);
    }
}
