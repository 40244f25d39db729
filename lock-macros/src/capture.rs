//! The arguments, which move into the protected body.
//!
//! An `async move` block takes only the places that it uses: an unused argument, or the unused
//! field of a used one, would stay outside and be dropped after the release. So every argument is
//! rebound whole at the start of the body, in order, as an `async fn` does itself.

use std::collections::HashSet;

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, Meta, Pat, PatIdent};

use crate::function::{Argument, Function, argument, bound_names, by_reference};

/// Returns the signature's arguments, each with one name by which it can be moved whole, and the statements that go
/// first in the body. The names in `used_by_options`, which the attribute itself uses, are not reported as unused.
pub(crate) fn captures(
    function: &Function,
    used_by_options: &HashSet<String>,
) -> (Vec<FnArg>, TokenStream) {
    let mut inputs = Vec::new();
    let mut rebind = TokenStream::new();
    let is_used = |name: &Ident| used_by_options.contains(&name.to_string());
    for (position, input) in function.sig.inputs.iter().enumerate() {
        let typed = match input {
            FnArg::Typed(typed) => typed,
            FnArg::Receiver(receiver) => {
                inputs.push(input.clone());
                // `self` cannot be rebound; borrowing it makes the block take all of it.
                let whole = receiver.self_token;
                rebind.extend(quote!(let _ = &#whole;));
                continue;
            }
        };
        let mut outer = typed.clone();
        outer.attrs.iter_mut().for_each(expected_inside);
        // The plain function neither binds an argument anew nor uses one whose name begins with `_`, so these lints
        // would be the attribute's own.
        let quiet = quote!(#[allow(
            clippy::no_effect_underscore_binding,
            clippy::shadow_same,
            clippy::used_underscore_binding
        )]);
        let conditions = conditions(&typed.attrs);
        let own = typed.attrs.iter();
        let own = own.filter(|attr| is_one_of(attr, &CONDITIONS) || is_one_of(attr, &LINTS));
        let conditions_and_lints = quote!(#(#own)*);
        let pattern = &*typed.pat;
        match argument(pattern) {
            Argument::Plain(name) => {
                let mut plain = pattern.clone();
                if let Pat::Ident(PatIdent { mutability, .. }) = &mut plain {
                    *mutability = None;
                }
                outer.pat = Box::new(plain);
                rebind.extend(quote!(#quiet #conditions_and_lints let #pattern = #name;));
                if is_used(name) {
                    rebind.extend(quote!(#(#conditions)* let _ = &#name;));
                }
            }
            Argument::Pattern(pattern) => {
                let whole = whole(position);
                let mut names = bound_names(pattern);
                names.retain(is_used);
                rebind.extend(quote! {
                    #(#conditions)* let #whole = #whole;
                    #conditions_and_lints let #pattern = #whole;
                    #(#conditions)* { #(let _ = &#names;)* }
                });
                outer.pat = syn::parse_quote!(#whole);
            }
        }
        inputs.push(FnArg::Typed(outer));
    }
    (inputs, rebind)
}

const CONDITIONS: [&str; 2] = ["cfg", "cfg_attr"];
const LINTS: [&str; 5] = ["allow", "expect", "warn", "deny", "forbid"];

fn is_one_of(attr: &Attribute, names: &[&str]) -> bool {
    names.iter().any(|name| attr.path().is_ident(name))
}

/// Returns the attributes that decide whether an argument is there. They expect no lint: only the body's own binding may.
pub(crate) fn conditions(attrs: &[Attribute]) -> Vec<Attribute> {
    let of_argument = attrs.iter().filter(|attr| is_one_of(attr, &CONDITIONS));
    let mut conditions: Vec<Attribute> = of_argument.cloned().collect();
    conditions.iter_mut().for_each(expected_inside);
    conditions
}

/// Turns an argument's `#[expect]` into `#[allow]`, also within a `#[cfg_attr]`: the lint is raised where the body rebinds
/// the argument, and only that place may expect it.
fn expected_inside(attr: &mut Attribute) {
    let Meta::List(list) = &mut attr.meta else {
        return;
    };
    if list.path.is_ident("expect") {
        list.path = Ident::new("allow", list.path.span()).into();
    } else if list.path.is_ident("cfg_attr") {
        let mut tokens = std::mem::take(&mut list.tokens).into_iter().peekable();
        while let Some(token) = tokens.next() {
            let is_called = matches!(tokens.peek(), Some(TokenTree::Group(_)));
            list.tokens.extend([match token {
                TokenTree::Ident(word) if is_called && word == "expect" => {
                    Ident::new("allow", word.span()).into()
                }
                token => token,
            }]);
        }
    }
}

/// Returns the name of a pattern argument as a whole.
fn whole(position: usize) -> Ident {
    format_ident!("__argument_{position}", span = Span::mixed_site())
}

/// Binds by reference the names of each pattern argument of which `used` contains one. The bindings must live for one
/// statement only: a reference that lived across an `.await` would require the argument to be `Sync`.
pub(crate) fn borrowed(function: &Function, used: &HashSet<String>) -> TokenStream {
    let mut bindings = TokenStream::new();
    for (position, input) in function.sig.inputs.iter().enumerate() {
        let FnArg::Typed(typed) = input else { continue };
        let Argument::Pattern(pattern) = argument(&typed.pat) else {
            continue;
        };
        let names = bound_names(pattern);
        if names.iter().any(|name| used.contains(&name.to_string())) {
            let conditions = conditions(&typed.attrs);
            let pattern = by_reference(pattern);
            let whole = whole(position);
            bindings.extend(quote! {
                #(#conditions)*
                #[allow(unused_variables, clippy::pattern_type_mismatch)]
                let #pattern = &#whole;
            });
        }
    }
    bindings
}

/// Marks the arguments in `used` as used in a method that `#[async_trait]` has rewritten. It binds them once more, by
/// `let id = id;`, and these bindings must not be reported as unused if only the attribute uses the arguments.
pub(crate) fn used_again(body: TokenStream, used: &HashSet<String>) -> TokenStream {
    let mut tokens: Vec<TokenTree> = Vec::new();
    for token in body {
        tokens.push(token);
        if let Some((conditions, name)) = rebinding(&tokens)
            && used.contains(&name.to_string())
        {
            tokens.extend(quote!(#(#conditions)* let _ = &#name;));
        }
    }
    tokens.into_iter().collect()
}

/// Returns the attributes and the name if the tokens end with `let name = name;` or `let mut name = name;`.
fn rebinding(tokens: &[TokenTree]) -> Option<(&[TokenTree], Ident)> {
    let is = |token: &TokenTree, text: &str| token.to_string() == text;
    let [
        before @ ..,
        TokenTree::Ident(name),
        equals,
        TokenTree::Ident(value),
        end,
    ] = tokens
    else {
        return None;
    };
    if !is(end, ";") || !is(equals, "=") || name != value {
        return None;
    }
    let before = match before {
        [before @ .., word] if is(word, "mut") => before,
        _ => before,
    };
    let [attributes @ .., word] = before else {
        return None;
    };
    if !is(word, "let") {
        return None;
    }
    let mut start = attributes.len();
    while let Some([hash, TokenTree::Group(group)]) = attributes[..start].last_chunk()
        && is(hash, "#")
        && group.delimiter() == Delimiter::Bracket
    {
        start -= 2;
    }
    Some((&attributes[start..], name.clone()))
}

/// Collects every identifier in some tokens, also as `{name}` in a literal, where `key!` and `format!` find it. The
/// result is a generous answer to "which arguments does this use?".
pub(crate) fn identifiers(tokens: impl ToTokens, into: &mut HashSet<String>) {
    for token in tokens.into_token_stream() {
        match token {
            TokenTree::Ident(ident) => {
                into.insert(ident.to_string());
            }
            TokenTree::Group(group) => identifiers(group.stream(), into),
            TokenTree::Literal(literal) => placeholders(&literal.to_string(), into),
            TokenTree::Punct(_) => {}
        }
    }
}

fn placeholders(literal: &str, into: &mut HashSet<String>) {
    for after_brace in literal.split('{').skip(1) {
        let end = after_brace.find(|c: char| c != '#' && c != '_' && !c.is_alphanumeric());
        into.insert(after_brace[..end.unwrap_or(after_brace.len())].to_owned());
    }
}
