//! The expansion when the attribute is wrong: the function itself, unprotected, next to the errors.
//! Code that calls it then brings no errors of its own.

use proc_macro2::{Group, Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::Path;

use crate::errors::Errors;
use crate::function::Function;

pub(crate) fn fallback(
    function: &Function,
    guard: Option<&Ident>,
    crate_path: &Path,
    errors: Errors,
) -> TokenStream {
    let errors = errors.into_compile_errors();
    let attrs = &function.attrs;
    let allow = guard.map(|_| quote!(#[allow(unused_variables, unreachable_code)]));
    let vis = &function.vis;
    let sig = &function.sig;
    let body = match (&function.body, guard) {
        (None, _) => quote!(;),
        (Some(body), None) => body.to_token_stream(),
        (Some(body), Some(guard)) => with_lease(body, guard, crate_path),
    };
    quote! {
        #errors
        #(#attrs)*
        #allow
        #vis #sig #body
    }
}

/// Binds the name that `guard` would have bound, because the body may use it.
fn with_lease(body: &Group, guard: &Ident, crate_path: &Path) -> TokenStream {
    quote! {
        {
            #[allow(clippy::diverging_sub_expression)]
            let #guard: #crate_path::Lease = ::core::unreachable!();
            #body
        }
    }
}
