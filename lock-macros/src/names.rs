//! The names of the locks, checked and written as an expression.

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, LitStr};

use crate::args::{Args, Key, Keys};
use crate::capture::identifiers;
use crate::errors::Errors;
use crate::function::Function;
use crate::suggest::hint;
use crate::template::{self, Piece, Placeholder};

/// Returns the expression for the names of the locks, and the identifiers that are used in it. After a mistake, which is
/// reported, the expression is not complete.
pub(crate) fn names(
    args: &Args,
    private: &TokenStream,
    function: &Function,
    errors: &mut Errors,
) -> (TokenStream, HashSet<String>) {
    let mut used = HashSet::new();
    let mut name = |key: &Key| match key {
        Key::Template(literal) => template_key(literal, private, function, &mut used, errors),
        Key::Expr(expr) => {
            identifiers(expr, &mut used);
            quote_spanned!(expr.span()=> #private::name(#expr))
        }
    };
    let names = match (&args.key, &args.keys) {
        (Some(key), None) => name(key),
        (None, Some(Keys::List(keys, _))) => {
            let keys = keys.iter().map(name);
            quote!(#private::several([#(#keys),*]))
        }
        (None, Some(Keys::Expr(expr))) => {
            identifiers(expr, &mut used);
            quote_spanned!(expr.span()=> #private::several(#expr))
        }
        (Some(_), Some(keys)) => {
            let span = match keys {
                Keys::List(_, span) => *span,
                Keys::Expr(expr) => expr.span(),
            };
            errors.at(
                span,
                "`key` and `keys` exclude each other: name all locks in `keys`",
            );
            TokenStream::new()
        }
        (None, None) => {
            if !args.mention("key") && !args.mention("keys") {
                errors.at(
                    Span::call_site(),
                    "`key` is missing: #[distributed_lock(key = \"order:{id}\")]",
                );
            }
            TokenStream::new()
        }
    };
    (names, used)
}

fn template_key(
    literal: &LitStr,
    private: &TokenStream,
    function: &Function,
    used: &mut HashSet<String>,
    errors: &mut Errors,
) -> TokenStream {
    let pieces = template::parse(literal).unwrap_or_else(|error| {
        errors.add(error);
        Vec::new()
    });
    let span = literal.span();
    let roots = function.roots();
    let text = literal.value();
    let mut name = quote!(#private::template(#text));
    for piece in pieces {
        match piece {
            Piece::Text(text) => name.extend(quote!(.literal(#text))),
            Piece::Placeholder(placeholder) => match value_of(&placeholder, &roots, span) {
                Ok((value, root)) => {
                    identifiers(&value, used);
                    name.extend(with(&value, root));
                }
                Err(why) => {
                    let mut message = format!("{}: {why}", placeholder.described);
                    if placeholder.value.is_some() {
                        message.push_str(&known_arguments(&placeholder, function, &roots));
                    }
                    errors.at(span, message);
                }
            },
        }
    }
    name
}

/// Returns the call that adds a value to a name. It is looked up where `root` was written, the name that the value starts
/// from, and is shown where the value is.
pub(crate) fn with(value: &Expr, root: Span) -> TokenStream {
    quote_spanned!(root.located_at(value.span())=> .with(&(#value)))
}

/// Ties a placeholder to the argument that it starts from, whose span is returned as well. The root takes the argument's
/// hygiene, so that it resolves even if template and arguments come from different macros, and the template's position, so
/// that type errors are shown there.
fn value_of(
    placeholder: &Placeholder,
    roots: &[Ident],
    span: Span,
) -> Result<(Expr, Span), String> {
    let root = placeholder.root().ok_or(
        "an empty placeholder is only for `key!(\"...\", value)`; here it names an argument, such as `{id}`",
    )?;
    let Some(argument) = roots.iter().find(|argument| *argument == root) else {
        return Err(format!("`{root}` is no argument"));
    };
    let mut anchored = argument.clone();
    anchored.set_span(span.resolved_at(argument.span()));
    placeholder
        .value_rooted_at(anchored)
        .map(|value| (value, argument.span()))
        .ok_or_else(|| "expected an argument first".to_owned())
}

fn known_arguments(placeholder: &Placeholder, function: &Function, roots: &[Ident]) -> String {
    let names: Vec<String> = roots.iter().map(Ident::to_string).collect();
    let of = format!(" of `{}`", function.name());
    if names.is_empty() {
        return format!("{of}, which has none");
    }
    let close = match placeholder.root() {
        Some(root) => hint(&root.to_string(), names.iter().map(String::as_str)),
        None => String::new(),
    };
    let listed: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("{of}, which has {}{close}", listed.join(", "))
}
