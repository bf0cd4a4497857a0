//! Rust sources as a flat list of tokens: what is code, what is comment or string, and what only tests compile.
//!
//! Tokenising is `proc_macro2`'s; ordinary comments are gone afterwards and doc comments have become string literals
//! of `doc` attributes. Delimiters know their partner's index, so that a check can skip a group at once.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::Finding;
use super::tree::Tree;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// Identifier or keyword, without `r#`.
    Word(String),
    Punct(char),
    /// Number, string or character, as written.
    Literal(String),
    /// Opening delimiter, with the index of the closing one.
    Open(Delimiter, usize),
    Close(Delimiter),
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    /// Counted from one.
    pub(super) line: usize,
    /// Within an item that only tests compile, the attribute included.
    pub(super) in_test: bool,
}

impl Token {
    pub(super) fn word(&self) -> Option<&str> {
        match &self.kind {
            TokenKind::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn is_word(&self, expected: &str) -> bool {
        self.word() == Some(expected)
    }

    pub(super) fn is_punct(&self, expected: char) -> bool {
        self.kind == TokenKind::Punct(expected)
    }
}

/// Reports sources that are not made of Rust tokens: no other check has looked at them.
pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let files = tree.files();
    files
        .filter_map(|file| {
            let message = file.tokens.as_ref().err()?;
            Some(Finding::new(&file.path, 1, format!("not Rust: {message}")))
        })
        .collect()
}

pub(super) fn tokenize(text: &str) -> Result<Vec<Token>, String> {
    let stream: TokenStream = text.parse().map_err(|error| format!("{error}"))?;
    let mut tokens = Vec::new();
    flatten(stream, false, &mut tokens);
    Ok(tokens)
}

fn flatten(stream: TokenStream, in_test: bool, tokens: &mut Vec<Token>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    // An inner `#![cfg(test)]` covers the whole group, an outer one the item that follows it.
    let mut whole_test = in_test;
    let mut item_test = false;
    for (index, tree) in trees.iter().enumerate() {
        let attribute = attribute_at(&trees, index);
        whole_test |= attribute == Some(Attribute::InnerTest);
        item_test |= attribute == Some(Attribute::OuterTest);
        let test = whole_test || item_test;
        let line = tree.span().start().line;
        match tree {
            TokenTree::Ident(ident) => {
                let name = ident.to_string();
                let kind = TokenKind::Word(name.strip_prefix("r#").unwrap_or(&name).to_owned());
                tokens.push(Token { kind, line, in_test: test });
            }
            TokenTree::Punct(punct) => {
                tokens.push(Token { kind: TokenKind::Punct(punct.as_char()), line, in_test: test });
                item_test &= punct.as_char() != ';';
            }
            TokenTree::Literal(literal) => {
                tokens.push(Token { kind: TokenKind::Literal(literal.to_string()), line, in_test: test });
            }
            TokenTree::Group(group) => {
                push_group(group, test, tokens);
                item_test &= group.delimiter() != Delimiter::Brace;
            }
        }
    }
}

fn push_group(group: &Group, in_test: bool, tokens: &mut Vec<Token>) {
    let delimiter = group.delimiter();
    let open = tokens.len();
    let line = group.span_open().start().line;
    tokens.push(Token { kind: TokenKind::Open(delimiter, 0), line, in_test });
    flatten(group.stream(), in_test, tokens);
    tokens[open].kind = TokenKind::Open(delimiter, tokens.len());
    let line = group.span_close().start().line;
    tokens.push(Token { kind: TokenKind::Close(delimiter), line, in_test });
}

#[derive(PartialEq, Eq)]
enum Attribute {
    InnerTest,
    OuterTest,
}

/// The attribute that starts at `index`, when it is one that restricts to tests.
fn attribute_at(trees: &[TokenTree], index: usize) -> Option<Attribute> {
    let is_punct = |at: usize, expected: char| matches!(trees.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == expected);
    if !is_punct(index, '#') {
        return None;
    }
    let inner = is_punct(index + 1, '!');
    let Some(TokenTree::Group(group)) = trees.get(index + 1 + usize::from(inner)) else { return None };
    let content: String = group.stream().to_string().split_whitespace().collect();
    if !matches!(content.as_str(), "test" | "cfg(test)") && !content.starts_with("cfg(all(test,") {
        return None;
    }
    Some(if inner { Attribute::InnerTest } else { Attribute::OuterTest })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_words(text: &str) -> Vec<String> {
        let tokens = tokenize(text).unwrap();
        tokens.iter().filter(|t| t.in_test).filter_map(|t| t.word().map(str::to_owned)).collect()
    }

    #[test]
    fn comments_vanish_and_lines_stay() {
        let tokens = tokenize("// a\n/* b\n */ let x = \"c\n\";\ny").unwrap();
        let words: Vec<(&str, usize)> = tokens.iter().filter_map(|t| Some((t.word()?, t.line))).collect();
        assert_eq!(words, [("let", 3), ("x", 3), ("y", 5)]);
    }

    #[test]
    fn test_items_end_with_their_body() {
        assert_eq!(
            test_words("#[cfg(test)] mod tests { fn a() {} } fn b() {}")[2..],
            ["mod", "tests", "fn", "a"]
        );
        assert_eq!(test_words("#[cfg(test)] use a; use b;")[2..], ["use", "a"]);
        assert_eq!(test_words("#[cfg(test)] #[inline] fn a<T, U>() {} fn b() {}").len(), 7);
        assert!(test_words("#[cfg(not(test))] mod a {}").is_empty());
    }

    #[test]
    fn inner_attribute_covers_the_rest() {
        assert_eq!(test_words("#![cfg(test)] fn a() {} fn b() {}").last().unwrap(), "b");
    }

    #[test]
    fn delimiters_know_their_partner() {
        let tokens = tokenize("f(a[0])").unwrap();
        let TokenKind::Open(_, close) = tokens[1].kind else { panic!("expected a delimiter") };
        assert_eq!(close, tokens.len() - 1);
    }

    #[test]
    fn unbalanced_source_is_an_error() {
        let tree = Tree::of(&[("a.rs", "fn a( {")]);
        assert_eq!(find(&tree).len(), 1);
    }
}
