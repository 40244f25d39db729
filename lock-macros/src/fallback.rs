//! The expansion when the attribute is wrong: the function itself, unprotected, next to the errors.
//! Code that calls it then brings no errors of its own.

use proc_macro2::{Group, TokenStream};
use quote::{ToTokens, quote};

use crate::errors::Errors;
use crate::function::Function;

pub(crate) fn fallback(
    function: &Function,
    guard: Option<TokenStream>,
    errors: Errors,
) -> TokenStream {
    let errors = errors.into_compile_errors();
    let attrs = &function.attrs;
    let allow = guard
        .as_ref()
        .map(|_| quote!(#[allow(unused_variables, unreachable_code)]));
    let vis = &function.vis;
    let sig = &function.sig;
    let body = match (&function.body, guard) {
        (None, _) => quote!(;),
        (Some(body), None) => body.to_token_stream(),
        (Some(body), Some(guard)) => with_lease(body, &guard),
    };
    quote! {
        #errors
        #(#attrs)*
        #allow
        #vis #sig #body
    }
}

/// Binds the name that `guard` would have bound, because the body may use it. `guard` is the name and its type.
fn with_lease(body: &Group, guard: &TokenStream) -> TokenStream {
    quote! {
        {
            #[allow(clippy::diverging_sub_expression)]
            let #guard = ::core::unreachable!();
            #body
        }
    }
}
