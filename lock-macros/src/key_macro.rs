//! `key!("order:{id}:{}", value)`, with the path of `lock_runtime` in front. The `key!` of `lock_runtime` passes the
//! path, so that it is right even if a crate calls `lock_runtime` by another name.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::token::Paren;
use syn::{Expr, LitStr, Path, Token};

use crate::errors::Errors;
use crate::expand::private_module;
use crate::names::with;
use crate::template::{self, CALL_OUTSIDE, Piece};

struct Input {
    template: LitStr,
    values: Punctuated<Expr, Token![,]>,
}

impl Parse for Input {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let template = input.parse().map_err(|error: syn::Error| {
            syn::Error::new(
                error.span(),
                "`key!` starts with a string literal, such as key!(\"order:{id}\")",
            )
        })?;
        if input.peek(Paren) {
            return Err(input.error(CALL_OUTSIDE));
        }
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
        Ok(Input {
            template,
            values: Punctuated::parse_terminated(input)?,
        })
    }
}

pub(crate) fn expand(tokens: TokenStream) -> TokenStream {
    let crate_path = |input: ParseStream<'_>| {
        let path = input.call(Path::parse_mod_style)?;
        input.parse::<Token![,]>()?;
        Ok((path, input.parse()?))
    };
    let (path, rest): (Path, TokenStream) = match crate_path.parse2(tokens) {
        Ok(parsed) => parsed,
        Err(error) => return error.into_compile_error(),
    };
    let private = private_module(&path);
    match syn::parse2(rest).and_then(|input| key(input, &private)) {
        Ok(expression) => expression,
        Err(error) => {
            let error = error.into_compile_error();
            quote!({ #error #private::template("") })
        }
    }
}

fn key(input: Input, private: &TokenStream) -> syn::Result<TokenStream> {
    let span = input.template.span();
    let text = input.template.value();
    let mut values = input.values.into_iter();
    let mut errors = Errors::default();
    let mut name = quote!(#private::template(#text));
    for piece in template::parse(&input.template)? {
        let placeholder = match piece {
            Piece::Text(text) => {
                name.extend(quote!(.literal(#text)));
                continue;
            }
            Piece::Placeholder(placeholder) => placeholder,
        };
        if let (Some(value), Some(root)) = (&placeholder.value, placeholder.root()) {
            name.extend(with(value, root.span()));
        } else if let Some(value) = values.next() {
            // Only this span matters: the value is already the caller's own expression.
            name.extend(with(&value, Span::mixed_site()));
        } else {
            let described = placeholder.described;
            errors.at(
                span,
                format!("{described} has no value: add one after the template"),
            );
        }
    }
    for value in values {
        errors.on(value, "no `{}` in the template takes this value");
    }
    errors.into_result()?;
    Ok(name)
}
