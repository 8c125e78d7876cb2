//! Rewrites a source file so that each mutant in it is a branch, taken if `safepoint_planted::mutant(NUMBER)`
//! is true.
//!
//! A site is a range of the source with alternatives; sites nest. An operator, a guard and a struct
//! expression become `(if mutant(1) { ALTERNATIVE } else { ORIGINAL })`, a function gets an early return, a
//! match arm a guard that is false.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::Failure;
use crate::list::{Mutant, Place};

/// Piece of an alternative: other text, or a range of the source with its sites.
enum Piece {
    Text(String),
    Source(Range<usize>),
}

/// Content of one range of the source; an empty range is an insertion.
#[derive(Default)]
struct Site {
    inserted: String,
    alternatives: Vec<(usize, Vec<Piece>)>,
}

/// Sites by start, the longer first. Insertions are never at the start of another site.
type Sites = BTreeMap<(usize, std::cmp::Reverse<usize>), Site>;

/// Returns the text with every mutant as a branch, and the numbers of inexpressible mutants.
pub(crate) fn rewrite(source: &str, mutants: &[(usize, &Mutant)]) -> Result<(String, Vec<usize>), Failure> {
    let mut shapes = Shapes::default();
    shapes.visit_file(&syn::parse_file(source)?);
    let mut sites = Sites::new();
    let mut left_out = Vec::new();
    for (number, mutant) in mutants {
        if add(&mut sites, &shapes, source, *number, mutant).is_none() {
            left_out.push(*number);
        }
    }
    let mut text = String::new();
    render(source, &sites, 0..source.len(), None, &mut text);
    Ok((text, left_out))
}

/// Adds a mutant to the sites, or returns `None` if its place is unknown.
fn add(sites: &mut Sites, shapes: &Shapes, source: &str, number: usize, mutant: &Mutant) -> Option<()> {
    let span = offset(source, mutant.span.start)?..offset(source, mutant.span.end)?;
    let text = || Piece::Text(mutant.replacement.clone());
    let (range, pieces) = match mutant.genre.as_str() {
        "FnValue" => {
            let &at = shapes.bodies.get(&span.start)?;
            let branch = format!(" if {} {{ return {}; }}", switch(number), mutant.replacement);
            sites.entry(key(&(at..at))).or_default().inserted.push_str(&branch);
            return Some(());
        }
        "BinaryOperator" => {
            let whole = shapes.operators.get(&span.start)?.clone();
            let pieces =
                vec![Piece::Source(whole.start..span.start), text(), Piece::Source(span.end..whole.end)];
            (whole, pieces)
        }
        "UnaryOperator" => {
            let whole = shapes.operators.get(&span.start)?.clone();
            let operand = span.end..whole.end;
            (whole, vec![Piece::Source(operand)])
        }
        "MatchArmGuard" => (shapes.guards.get(&span.start)?.clone(), vec![text()]),
        "MatchArm" => match shapes.arms.get(&span.start)? {
            Arm::Guarded(guard) => (guard.clone(), vec![Piece::Text("false".into())]),
            &Arm::Plain(at) => {
                let guard = format!(" if !{}", switch(number));
                sites.entry(key(&(at..at))).or_default().inserted.push_str(&guard);
                return Some(());
            }
        },
        "StructField" => {
            let whole = shapes.fields.get(&span.start)?.clone();
            let pieces = vec![Piece::Source(whole.start..span.start), Piece::Source(span.end..whole.end)];
            (whole, pieces)
        }
        _ => return None,
    };
    sites.entry(key(&range)).or_default().alternatives.push((number, pieces));
    Some(())
}

fn key(range: &Range<usize>) -> (usize, std::cmp::Reverse<usize>) {
    (range.start, std::cmp::Reverse(range.end))
}

fn switch(number: usize) -> String {
    format!("::safepoint_planted::mutant({number})")
}

/// Returns the number of the last switch before an offset of a rewritten file: the mutant that a compiler
/// error is about.
pub(crate) fn switch_before(text: &str, offset: usize) -> Option<usize> {
    const NAME: &str = "::safepoint_planted::mutant(";
    let (before, after) = text.split_at_checked(offset)?;
    // An error about the whole branch starts before its switch.
    let ahead = after.trim_start_matches(['(', ' ']).trim_start_matches("if ");
    let digits = match ahead.strip_prefix(NAME) {
        Some(digits) => digits,
        None => &before[before.rfind(NAME)? + NAME.len()..],
    };
    digits.split(')').next()?.parse().ok()
}

/// Writes a range of the source with its sites, except `without`, the site being written.
fn render(
    source: &str,
    sites: &Sites,
    range: Range<usize>,
    without: Option<&Range<usize>>,
    out: &mut String,
) {
    let mut at = range.start;
    for (&(start, std::cmp::Reverse(end)), site) in
        sites.range((range.start, std::cmp::Reverse(usize::MAX))..)
    {
        if start >= range.end {
            break;
        }
        let whole = start..end;
        if start < at || end > range.end || without == Some(&whole) {
            continue;
        }
        out.push_str(&source[at..start]);
        out.push_str(&site.inserted);
        if !site.alternatives.is_empty() {
            out.push('(');
            for (number, pieces) in &site.alternatives {
                out.push_str(&format!("if {} {{ ", switch(*number)));
                for piece in pieces {
                    match piece {
                        Piece::Text(text) => out.push_str(text),
                        Piece::Source(part) => render(source, sites, part.clone(), Some(&whole), out),
                    }
                }
                out.push_str(" } else ");
            }
            out.push_str("{ ");
            render(source, sites, whole.clone(), Some(&whole), out);
            out.push_str(" })");
        }
        at = end;
    }
    out.push_str(&source[at..range.end]);
}

/// Returns the byte offset of a place; its column counts characters.
fn offset(source: &str, place: Place) -> Option<usize> {
    let line: usize = source.split_inclusive('\n').take(place.line - 1).map(str::len).sum();
    let within = source.get(line..)?.char_indices().nth(place.column - 1)?.0;
    Some(line + within)
}

enum Arm {
    /// Offset at which a guard can be inserted.
    Plain(usize),
    /// Range of the guard's condition.
    Guarded(Range<usize>),
}

/// Places of a file that mutants change, by the offset that cargo-mutants gives.
#[derive(Default)]
struct Shapes {
    /// Whole expressions, by the start of their operator.
    operators: HashMap<usize, Range<usize>>,
    /// Ends of opening braces, by the start of the first statement.
    bodies: HashMap<usize, usize>,
    guards: HashMap<usize, Range<usize>>,
    arms: HashMap<usize, Arm>,
    /// Whole struct expressions, by the start of each field.
    fields: HashMap<usize, Range<usize>>,
}

impl<'ast> Visit<'ast> for Shapes {
    fn visit_block(&mut self, block: &'ast syn::Block) {
        if let Some(first) = block.stmts.first() {
            self.bodies
                .insert(first.span().byte_range().start, block.brace_token.span.open().byte_range().end);
        }
        visit::visit_block(self, block);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if !holds_let(&binary.left) && !holds_let(&binary.right) {
            self.operators.insert(binary.op.span().byte_range().start, binary.span().byte_range());
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        self.operators.insert(unary.op.span().byte_range().start, unary.span().byte_range());
        visit::visit_expr_unary(self, unary);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let start = arm.span().byte_range().start;
        match &arm.guard {
            None => {
                self.arms.insert(start, Arm::Plain(arm.pat.span().byte_range().end));
            }
            Some((_, guard)) if !holds_let(guard) => {
                let range = guard.span().byte_range();
                self.guards.insert(range.start, range.clone());
                self.arms.insert(start, Arm::Guarded(range));
            }
            Some(_) => {}
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, expression: &'ast syn::ExprStruct) {
        for field in &expression.fields {
            self.fields.insert(field.span().byte_range().start, expression.span().byte_range());
        }
        visit::visit_expr_struct(self, expression);
    }
}

/// Returns true if a condition is a chain with `let`, which cannot stand in parentheses.
fn holds_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => holds_let(&binary.left) || holds_let(&binary.right),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::Span;

    /// Returns the mutant that replaces the first `from` of a one-line source.
    fn mutant(source: &str, genre: &str, from: &str, to: &str) -> Mutant {
        let column = source.find(from).unwrap() + 1;
        Mutant {
            name: String::new(),
            file: String::new(),
            genre: genre.into(),
            replacement: to.into(),
            span: Span {
                start: Place { line: 1, column },
                end: Place { line: 1, column: column + from.len() },
            },
        }
    }

    fn rewritten(source: &str, mutants: &[(&str, &str, &str)]) -> String {
        let mutants: Vec<_> =
            mutants.iter().map(|(genre, from, to)| mutant(source, genre, from, to)).collect();
        let (text, left_out) = rewrite(source, &mutants.iter().enumerate().collect::<Vec<_>>()).unwrap();
        assert!(left_out.is_empty(), "{left_out:?}");
        syn::parse_file(&text).unwrap();
        text.replace("::safepoint_planted::mutant", "m")
    }

    #[test]
    fn nested_mutants_are_branches_of_each_other() {
        let text = rewritten(
            "fn f(a: bool, b: u8) -> bool { !a && b == 1 }",
            &[
                ("FnValue", "!a && b == 1", "true"),
                ("BinaryOperator", "&&", "||"),
                ("UnaryOperator", "!", ""),
                ("BinaryOperator", "==", "!="),
            ],
        );
        let (left, right) = ("(if m(2) { a } else { !a })", "(if m(3) { b != 1 } else { b == 1 })");
        let body = format!("(if m(1) {{ {left} || {right} }} else {{ {left} && {right} }})");
        assert_eq!(text, format!("fn f(a: bool, b: u8) -> bool {{ if m(0) {{ return true; }} {body} }}"));
    }

    #[test]
    fn arms_guards_and_fields_are_branches() {
        let source = "fn f(n: u8) -> u8 { match n { 0 => 9, n if n > 1 => 2, n if true => n, _ => 3 } }";
        let text = rewritten(
            source,
            &[
                ("MatchArm", "0 => 9,", ""),
                ("MatchArmGuard", "n > 1", "true"),
                ("BinaryOperator", "> 1", "< 1"),
                ("MatchArm", "n if true => n,", ""),
            ],
        );
        assert!(text.contains("{ 0 if !m(0) => 9,"), "{text}");
        assert!(
            text.contains("n if (if m(1) { true } else if m(2) { n < 1 } else { n > 1 }) => 2"),
            "{text}"
        );
        assert!(text.contains("n if (if m(3) { false } else { true }) => n"), "{text}");
        let text = rewritten("fn f() -> A { A { x: 1, ..A::new() } }", &[("StructField", "x: 1,", "")]);
        assert!(text.contains("(if m(0) { A {  ..A::new() } } else { A { x: 1, ..A::new() } })"), "{text}");
    }

    #[test]
    fn a_chain_with_let_is_left_out() {
        let source = "fn f(a: Option<u8>) { if let Some(_) = a && true {} }";
        let chain = mutant(source, "BinaryOperator", "&&", "||");
        assert_eq!(rewrite(source, &[(7, &chain)]).unwrap().1, [7]);
    }

    #[test]
    fn an_error_is_about_the_switch_before_it() {
        let text = "a (if ::safepoint_planted::mutant(12) { x } else { y })";
        assert_eq!(switch_before(text, 40), Some(12));
        assert_eq!(switch_before(text, 2), Some(12));
        assert_eq!(switch_before(text, 6), Some(12));
        assert_eq!(switch_before("none", 2), None);
    }
}
