//! Key templates: text with `{placeholders}`, shared by the attribute and `key!`.
//!
//! ```text
//! template    = (text | "{{" | "}}" | "{" placeholder "}")*
//! placeholder = root ("." segment)*  |  nothing (`key!` only: the next argument)
//! root        = identifier | "self"
//! segment     = field | tuple index | method "(" (literal | path),* ")"
//! ```
//!
//! Values are escaped to `[A-Za-z0-9_.%-]` at run time. Two placeholders need a character outside
//! that set between them: otherwise two different pairs of values could make the same key.

use proc_macro2::Span;
use syn::{Expr, ExprLit, Ident, Lit, LitStr, Member, parse_quote, parse_quote_spanned};

use crate::errors::Errors;

/// The message for parentheses after the literal. rustc proposes them there if `{order.id}` names a method, because it
/// puts them after what it underlines.
pub(crate) const CALL_OUTSIDE: &str =
    "the parentheses of a method belong inside the braces, such as \"order:{order.id()}\"";

pub(crate) enum Piece {
    /// Text with its doubled braces already single.
    Text(String),
    Placeholder(Placeholder),
}

pub(crate) struct Placeholder {
    /// The beginning of every message about it, such as ``placeholder `{order.id}` at byte 6``. Stable Rust has no spans
    /// inside a string literal, so the message says where it is.
    pub(crate) described: String,
    /// The value to take; `None` for `{}`.
    pub(crate) value: Option<Expr>,
}

impl Placeholder {
    /// Returns the identifier that the value starts from.
    pub(crate) fn root(&self) -> Option<&Ident> {
        let mut expr = self.value.as_ref()?;
        loop {
            expr = match expr {
                Expr::Field(field) => &field.base,
                Expr::MethodCall(call) => &call.receiver,
                Expr::Path(path) => return path.path.get_ident(),
                _ => return None,
            }
        }
    }

    /// Returns the value with its root replaced. A method is called on a reference to the root, so that it cannot
    /// consume or change the argument.
    pub(crate) fn value_rooted_at(&self, root: Ident) -> Option<Expr> {
        let mut value = self.value.clone()?;
        let mut calls = false;
        let mut expr = &mut value;
        loop {
            expr = match expr {
                Expr::Field(field) => &mut field.base,
                Expr::MethodCall(call) => {
                    calls = true;
                    &mut call.receiver
                }
                Expr::Path(_) => break,
                _ => return None,
            }
        }
        *expr = if calls {
            parse_quote_spanned!(root.span()=> (&#root))
        } else {
            parse_quote!(#root)
        };
        Some(value)
    }
}

/// Takes a literal apart. The error has every mistake that was found, each at the literal.
pub(crate) fn parse(literal: &LitStr) -> syn::Result<Vec<Piece>> {
    let template = literal.value();
    let span = literal.span();
    let mut errors = Errors::default();
    if template.is_empty() {
        errors.at(span, "a key must not be empty");
    }
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = template.as_str();
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let offset = template.len() - rest.len();
        if let Some(brace) = ["{{", "}}"]
            .into_iter()
            .find(|pair| rest.starts_with(*pair))
        {
            text.push_str(&brace[..1]);
            rest = &rest[2..];
            continue;
        }
        if rest.starts_with('}') {
            errors.at(
                span,
                format!("`}}` at byte {offset} closes no placeholder: write `}}}}` for the character itself"),
            );
            rest = &rest[1..];
            continue;
        }
        let Some(inside) = inside_braces(&rest[1..]) else {
            errors.at(
                span,
                format!(
                    "the placeholder opened by `{{` at byte {offset} is not closed: write `{{{{` for the character itself"
                ),
            );
            text.clear();
            rest = "";
            break;
        };
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        match parse_placeholder(inside, offset, span) {
            Ok(placeholder) => pieces.push(Piece::Placeholder(placeholder)),
            Err(error) => errors.add(error),
        }
        rest = &rest[inside.len() + 2..];
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    if errors.is_empty() {
        ambiguities(&pieces, span, &mut errors);
    }
    errors.into_result().map(|()| pieces)
}

/// Returns the text up to the closing brace. A brace inside a quoted argument does not close.
fn inside_braces(after_open: &str) -> Option<&str> {
    let close = code(after_open).find(|(_, c)| *c == '}').map(|(at, _)| at);
    // An unclosed quote hides the brace: take the first brace, because the value is refused anyway.
    let close = close.or_else(|| after_open.find('}'))?;
    Some(&after_open[..close])
}

/// Returns the characters that stand outside string and character literals, with their places. A literal that is not
/// closed goes on to the end.
fn code(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut next = 0;
    std::iter::from_fn(move || {
        while let Some(end) = end_of_literal(text, next) {
            next = end;
        }
        let at = next;
        let c = text[at..].chars().next()?;
        next += c.len_utf8();
        Some((at, c))
    })
}

/// Returns the end of the literal whose opening quote is at that place, if one is.
fn end_of_literal(text: &str, at: usize) -> Option<usize> {
    let (before, rest) = text.split_at(at);
    let mut chars = rest.chars();
    let quote = chars.next()?;
    let inside = chars.as_str();
    let unhashed = before.trim_end_matches('#');
    let length = match quote {
        // In a raw string, only a quote with as many `#` as at its beginning closes, and a backslash escapes nothing.
        '"' if unhashed.ends_with('r') => {
            let close = format!("\"{}", &before[unhashed.len()..]);
            inside.find(&close).map(|end| end + close.len())
        }
        '"' => closing_quote(inside, quote),
        '\'' if inside.starts_with('\\') => closing_quote(inside, quote),
        // The quote of a lifetime is followed by no other.
        '\'' => {
            let c = chars.next()?;
            let closed = c != quote && chars.next() == Some(quote);
            return closed.then(|| at + 1 + c.len_utf8() + 1);
        }
        _ => return None,
    };
    Some(length.map_or(text.len(), |length| at + 1 + length))
}

/// Returns the place after the first quote that no backslash escapes.
fn closing_quote(inside: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn parse_placeholder(text: &str, offset: usize, span: Span) -> syn::Result<Placeholder> {
    let described = format!("placeholder `{{{text}}}` at byte {offset}");
    let fault = |what: &str| syn::Error::new(span, format!("{described}: {what}"));
    if text.is_empty() {
        return Ok(Placeholder {
            described,
            value: None,
        });
    }
    if text.trim() != text {
        return Err(fault("no space may stand next to the braces"));
    }
    if text.contains('{') {
        return Err(fault(
            "a brace or a block is not allowed inside a placeholder",
        ));
    }
    if let Some(spec) = format_spec(text) {
        return Err(fault(&format!(
            "the format spec `{spec}` is not allowed, a key part is always its `Display` form"
        )));
    }
    if has_comment(text) {
        return Err(fault("a comment is not allowed"));
    }
    let generated = Span::mixed_site().located_at(span);
    let mut value: Expr = LitStr::new(text, generated).parse().map_err(|_| {
        fault("expected an argument or `self`, then `.field`, `.0` or `.method(..)`")
    })?;
    refusal(&value).map_or(Ok(()), |what| Err(fault(&what)))?;
    resolve(&mut value, span);
    Ok(Placeholder {
        described,
        value: Some(value),
    })
}

/// Returns true if a comment begins outside of literals. The lexer drops comments in silence.
fn has_comment(text: &str) -> bool {
    let code: Vec<_> = code(text).collect();
    code.windows(2)
        .any(|pair| matches!(pair, [(at, '/'), (next, '/' | '*')] if *next == at + 1))
}

/// Returns the part from the first single `:` outside parentheses and literals on, as in `{id:?}`.
fn format_spec(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let mut code = code(text).peekable();
    while let Some((at, c)) = code.next() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ':' if code.next_if(|(_, next)| *next == ':').is_some() => {}
            ':' if depth == 0 => return Some(&text[at..]),
            _ => {}
        }
    }
    None
}

/// Returns the reason why an expression cannot be a placeholder's value, if it cannot.
fn refusal(value: &Expr) -> Option<String> {
    let not_allowed = |what: &str| {
        Some(format!(
            "{what} is not allowed, only `.field`, `.0` and `.method(..)` are"
        ))
    };
    match value {
        Expr::Path(path) if path.qself.is_none() && path.path.get_ident().is_some() => None,
        Expr::Path(_) => not_allowed("a path with `::`"),
        Expr::Field(field) => match &field.member {
            Member::Named(_) | Member::Unnamed(_) => refusal(&field.base),
        },
        Expr::MethodCall(call) if call.turbofish.is_some() => not_allowed("`::<..>`"),
        Expr::MethodCall(call) => {
            if let Some(argument) = call
                .args
                .iter()
                .find(|argument| !is_plain_argument(argument))
            {
                let argument = quote::quote!(#argument);
                return Some(format!(
                    "the method argument `{argument}` is not allowed, only literals and paths are"
                ));
            }
            refusal(&call.receiver)
        }
        Expr::Try(_) => not_allowed("`?`"),
        Expr::Await(_) => not_allowed("`.await`"),
        Expr::Index(_) => not_allowed("indexing with `[..]`"),
        Expr::Call(_) => not_allowed("a function call"),
        Expr::Macro(_) => not_allowed("a macro call"),
        Expr::Reference(_) => not_allowed("`&`, values are taken by reference anyway,"),
        Expr::Lit(ExprLit {
            lit: Lit::Int(_), ..
        }) => Some("a position is not allowed, name the value instead".into()),
        Expr::Lit(_) => not_allowed("a literal"),
        _ => not_allowed("this kind of expression"),
    }
}

/// Makes variables and items be looked up where the literal was written. Fields and methods remain generated code: for
/// a misspelt one, rustc would otherwise propose the right one as a replacement of the whole literal.
fn resolve(value: &mut Expr, written: Span) {
    match value {
        Expr::Path(path) => {
            for segment in &mut path.path.segments {
                segment.ident.set_span(written);
            }
        }
        Expr::Field(field) => {
            if let Member::Named(name) = &mut field.member {
                in_any_edition(name);
            }
            resolve(&mut field.base, written);
        }
        Expr::MethodCall(call) => {
            in_any_edition(&mut call.method);
            resolve(&mut call.receiver, written);
            for argument in &mut call.args {
                resolve(argument, written);
            }
        }
        _ => {}
    }
}

/// Makes a name raw if it is a word of our edition, which is that of generated code, but not of the caller's.
fn in_any_edition(name: &mut Ident) {
    if name == "gen" {
        *name = Ident::new_raw("gen", name.span());
    }
}

fn is_plain_argument(argument: &Expr) -> bool {
    match argument {
        Expr::Lit(_) | Expr::Path(_) => true,
        Expr::Unary(unary) => {
            matches!(unary.op, syn::UnOp::Neg(_)) && matches!(*unary.expr, Expr::Lit(_))
        }
        _ => false,
    }
}

/// Reports each two neighbouring placeholders that no character keeps apart.
fn ambiguities(pieces: &[Piece], span: Span, errors: &mut Errors) {
    let mut before: Option<&Placeholder> = None;
    let mut between = "";
    for piece in pieces {
        match piece {
            Piece::Text(text) => between = text,
            Piece::Placeholder(placeholder) => {
                if let Some(before) = before
                    && between.chars().all(may_be_in_a_value)
                {
                    let message = format!(
                        "`{between}` between {} and {} does not keep their values apart: put a character \
                         there that no value can contain, such as `:` or `/` (letters, digits, `_`, `.`, \
                         `-` and `%` do not count)",
                        before.described, placeholder.described,
                    );
                    errors.at(span, message);
                }
                before = Some(placeholder);
                between = "";
            }
        }
    }
}

/// Returns true for a character that the escaping of `lock-runtime` lets through or produces.
fn may_be_in_a_value(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '%')
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
