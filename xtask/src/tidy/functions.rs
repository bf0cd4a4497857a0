//! Functions of a source: their names and lengths, found among its tokens.

use proc_macro2::Delimiter;

use super::tokens::{Token, TokenKind};

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// Name with the type or trait it belongs to: `Builder::finish`.
    pub(super) name: String,
    /// Line of the `fn` keyword.
    pub(super) line: usize,
    /// Lines from the `fn` keyword to the closing brace, both included.
    pub(super) length: usize,
    pub(super) in_test: bool,
}

/// Every function in `tokens`, nested ones included.
pub(super) fn functions(tokens: &[Token]) -> Vec<Function> {
    let mut found = Vec::new();
    collect(tokens, 0..tokens.len(), "", &mut found);
    found
}

fn collect(tokens: &[Token], range: std::ops::Range<usize>, owner: &str, found: &mut Vec<Function>) {
    let mut at = range.start;
    while at < range.end {
        let next = tokens.get(at + 1).filter(|_| at + 1 < range.end);
        let name = next.and_then(Token::word);
        match (tokens[at].word(), name) {
            (Some("fn"), Some(name)) => {
                let Some((open, close)) = body_after(tokens, at, range.end) else {
                    at += 2;
                    continue;
                };
                let name = if owner.is_empty() { name.to_owned() } else { format!("{owner}::{name}") };
                let length = tokens[close].line - tokens[at].line + 1;
                let (line, in_test) = (tokens[at].line, tokens[at].in_test);
                collect(tokens, open + 1..close, &name, found);
                found.push(Function { name, line, length, in_test });
                at = close + 1;
            }
            (Some("impl" | "trait"), _) => {
                let Some((open, close)) = body_after(tokens, at, range.end) else {
                    at += 1;
                    continue;
                };
                let label = type_name(&tokens[at + 1..open]);
                collect(tokens, open + 1..close, &label, found);
                at = close + 1;
            }
            _ => match tokens[at].kind {
                TokenKind::Open(_, close) => {
                    collect(tokens, at + 1..close, owner, found);
                    at = close + 1;
                }
                _ => at += 1,
            },
        }
    }
}

/// The first braces after `from` at its own depth, unless a semicolon comes before.
fn body_after(tokens: &[Token], from: usize, end: usize) -> Option<(usize, usize)> {
    let mut at = from;
    while at < end {
        match tokens[at].kind {
            TokenKind::Open(Delimiter::Brace, close) => return Some((at, close)),
            TokenKind::Open(_, close) => at = close + 1,
            TokenKind::Punct(';') => return None,
            _ => at += 1,
        }
    }
    None
}

/// The type's own name in the header of an `impl` or `trait`, without path, parameters and bounds.
fn type_name(header: &[Token]) -> String {
    let mut name = "";
    let mut angles = 0_usize;
    for (at, token) in header.iter().enumerate() {
        let arrow = at > 0 && header[at - 1].is_punct('-');
        match &token.kind {
            TokenKind::Punct('<') => angles += 1,
            TokenKind::Punct('>') if !arrow => angles = angles.saturating_sub(1),
            TokenKind::Punct(':') if angles == 0 && !name.is_empty() => {
                let path = header.get(at + 1).is_some_and(|t| t.is_punct(':'))
                    || at > 0 && header[at - 1].is_punct(':');
                if !path {
                    break;
                }
            }
            TokenKind::Word(word) if angles == 0 => match word.as_str() {
                "where" => break,
                "mut" | "dyn" | "const" | "for" => {}
                word => name = word,
            },
            _ => {}
        }
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tokens::tokenize;

    fn names(text: &str) -> Vec<String> {
        functions(&tokenize(text).unwrap()).into_iter().map(|function| function.name).collect()
    }

    #[test]
    fn length_runs_from_keyword_to_closing_brace() {
        let found =
            functions(&tokenize("/// Doc.\n#[inline]\nfn a(\n    x: u8,\n) {\n    b();\n}\n").unwrap());
        assert_eq!(found, [Function { name: "a".into(), line: 3, length: 5, in_test: false }]);
    }

    #[test]
    fn names_carry_their_type() {
        assert_eq!(
            names("impl<T: Fn() -> u8> fmt::Display for Error<T> where T: X { fn fmt() {} }"),
            ["Error::fmt"]
        );
        assert_eq!(names("trait Env: Send { fn now(); fn wait() {} }"), ["Env::wait"]);
        assert_eq!(names("impl a::B { fn c() { fn d() {} } }"), ["B::c::d", "B::c"]);
        assert_eq!(names("fn a() -> impl Fn() { || {} } mod m { fn b(f: fn(u8)) {} }"), ["a", "b"]);
    }
}
