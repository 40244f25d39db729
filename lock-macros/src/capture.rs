//! How arguments travel into the protected body.
//!
//! An `async move` block takes only what it uses, place by place: an unused argument, or the unused
//! field of a used one, would stay outside and be dropped after the release. So every argument is
//! rebound whole at the start of the body, in order, as an `async fn` does itself.

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::{Attribute, FnArg, Pat, PatIdent};

use crate::function::{Argument, Function, argument, bound_names, by_reference};

/// The pieces of an expansion that depend on the arguments.
pub(crate) struct Captures {
    /// The signature's arguments, each with a name that can be moved as one.
    pub(crate) inputs: Vec<FnArg>,
    /// Goes first in the body.
    pub(crate) rebind: TokenStream,
}

/// `used_by_options`: names that the attribute itself uses; they are not reported as unused.
pub(crate) fn captures(function: &Function, used_by_options: &HashSet<String>) -> Captures {
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
        let cfgs: Vec<&Attribute> = typed
            .attrs
            .iter()
            .filter(|attr| attr.path().is_ident("cfg"))
            .collect();
        let pattern = &*typed.pat;
        match argument(pattern) {
            Argument::Plain(name) => {
                let mut plain = pattern.clone();
                if let Pat::Ident(PatIdent { mutability, .. }) = &mut plain {
                    *mutability = None;
                }
                outer.pat = Box::new(plain);
                rebind.extend(quote!(#(#cfgs)* let #pattern = #name;));
                if is_used(name) {
                    rebind.extend(quote!(#(#cfgs)* let _ = &#name;));
                }
            }
            Argument::Pattern(pattern) => {
                let whole = whole(position);
                let mut names = Vec::new();
                bound_names(pattern, &mut names);
                names.retain(is_used);
                rebind.extend(quote! {
                    #(#cfgs)* let #whole = #whole;
                    #(#cfgs)* let #pattern = #whole;
                    #(#cfgs)* { #(let _ = &#names;)* }
                });
                outer.pat = syn::parse_quote!(#whole);
            }
        }
        inputs.push(FnArg::Typed(outer));
    }
    Captures { inputs, rebind }
}

/// The name of a pattern argument as a whole.
fn whole(position: usize) -> Ident {
    format_ident!("__argument_{position}", span = Span::mixed_site())
}

/// Binds, by reference, the names inside pattern arguments that `used` contains. For the scope of one
/// statement: a reference that lived across an `.await` would ask the argument to be `Sync`.
pub(crate) fn borrowed(function: &Function, used: &HashSet<String>) -> TokenStream {
    let mut bindings = TokenStream::new();
    for (position, input) in function.sig.inputs.iter().enumerate() {
        let FnArg::Typed(typed) = input else { continue };
        let Argument::Pattern(pattern) = argument(&typed.pat) else {
            continue;
        };
        let mut names = Vec::new();
        bound_names(pattern, &mut names);
        if names.iter().any(|name| used.contains(&name.to_string())) {
            let cfgs = typed
                .attrs
                .iter()
                .filter(|attr| attr.path().is_ident("cfg"));
            let pattern = by_reference(pattern);
            let whole = whole(position);
            bindings.extend(quote! {
                #(#cfgs)*
                #[allow(unused_variables)]
                let #pattern = &#whole;
            });
        }
    }
    bindings
}

/// Every identifier in some tokens: a generous answer to "which arguments does this use?".
pub(crate) fn identifiers(tokens: impl ToTokens, into: &mut HashSet<String>) {
    for token in tokens.into_token_stream() {
        match token {
            TokenTree::Ident(ident) => {
                into.insert(ident.to_string());
            }
            TokenTree::Group(group) => identifiers(group.stream(), into),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}
