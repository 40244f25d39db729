//! The `#[distributed_lock]` attribute and the `key!` macro of `lock-runtime`.
//!
//! Depend on `lock-runtime`, which re-exports both under its default feature `macros`.

use proc_macro::TokenStream;

mod args;
mod capture;
mod duration;
mod errors;
mod expand;
mod fallback;
mod function;
mod key_macro;
mod nearest;
mod template;
mod validate;

/// Runs an `async fn` under a distributed lock.
#[proc_macro_attribute]
pub fn distributed_lock(options: TokenStream, item: TokenStream) -> TokenStream {
    attribute(options.into(), item.into()).into()
}

/// Builds a `LockName` from a template, with the attribute's placeholders and escaping.
#[proc_macro]
pub fn key(input: TokenStream) -> TokenStream {
    key_macro::expand(input.into()).into()
}

/// Parse, validate, expand; fall back to the plain function.
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
    let (args, seen) = args::parse(options, &mut errors);
    let guard = args.guard.clone();
    let crate_path = args.crate_path.clone();
    match (
        validate::check(args, &seen, &function, &mut errors),
        &function.body,
    ) {
        (Some(plan), Some(body)) => expand::expand(&plan, &function, body),
        _ => fallback::fallback(&function, guard.as_ref(), crate_path.as_ref(), errors),
    }
}
