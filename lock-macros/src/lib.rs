//! The `#[distributed_lock]` attribute of `lock-runtime`, and the macro that its `key!` calls.
//!
//! Depend on [`lock-runtime`](https://docs.rs/lock-runtime), which has both under its default feature `macros`.

use proc_macro::TokenStream;

mod args;
mod capture;
mod duration;
mod errors;
mod expand;
mod fallback;
mod function;
mod key_macro;
mod names;
mod options;
mod returns;
mod shape;
mod suggest;
mod template;
mod validate;

// Its examples are tested by the crate in tests/ui: what a proc-macro crate uses in its tests is built a second time.
#[cfg_attr(not(doctest), doc = include_str!("manual.md"))]
#[proc_macro_attribute]
pub fn distributed_lock(options: TokenStream, item: TokenStream) -> TokenStream {
    attribute(options.into(), item.into()).into()
}

/// The macro that `lock_runtime::key!` calls, with its own path in front.
#[doc(hidden)]
#[proc_macro]
pub fn key(input: TokenStream) -> TokenStream {
    key_macro::expand(input.into()).into()
}

/// Parses, validates and expands, or falls back to the plain function if there is a mistake.
fn attribute(
    options: proc_macro2::TokenStream,
    item: proc_macro2::TokenStream,
) -> proc_macro2::TokenStream {
    let mut errors = errors::Errors::default();
    let function: function::Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            errors.add(error);
            let errors = errors.into_compile_errors();
            return quote::quote!(#errors #item);
        }
    };
    let args = args::parse(options, &mut errors);
    // A name that hides an argument is refused: then the body means the argument.
    let guard = args.guard.clone();
    let guard = guard.filter(|guard| !function.roots().contains(guard));
    let has_when = args.mention("when");
    let crate_path = args.crate_path.clone();
    let crate_path = crate_path.unwrap_or_else(|| syn::parse_quote!(::lock_runtime));
    let private = expand::private_module(&crate_path);
    match (
        validate::check(args, private, &function, &mut errors),
        &function.body,
    ) {
        (Some(plan), Some(body)) => expand::expand(&plan, body),
        _ => {
            let lease = quote::quote!(#crate_path::Lease);
            let guard = guard.map(|guard| {
                if has_when {
                    quote::quote!(#guard: ::core::option::Option<#lease>)
                } else {
                    quote::quote!(#guard: #lease)
                }
            });
            fallback::fallback(&function, guard, errors)
        }
    }
}
