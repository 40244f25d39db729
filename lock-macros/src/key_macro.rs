//! `key!("order:{id}:{}", value)`, with the path of `lock_runtime` in front. The `key!` of `lock_runtime` passes the
//! path, so that it is right even if a crate calls `lock_runtime` by another name.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::token::Paren;
use syn::{Expr, Ident, LitStr, Path, Token};

use crate::errors::Errors;
use crate::expand::{build_key, private_module};
use crate::template::{self, CALL_OUTSIDE, Piece};
use crate::validate::KeyPart;

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
    let pieces = template::parse(&input.template)?;
    let mut errors = Errors::default();
    let mut values = input.values.into_iter();
    let mut parts = Vec::new();
    for piece in pieces {
        let placeholder = match piece {
            Piece::Text(text) => {
                parts.push(KeyPart::Text(text));
                continue;
            }
            Piece::Placeholder(placeholder) => placeholder,
        };
        if let (Some(value), Some(root)) = (&placeholder.value, placeholder.root()) {
            parts.push(KeyPart::Value(value.clone(), root.clone()));
        } else if let Some(value) = values.next() {
            // Only the span of the anchor matters: the value is already the caller's own expression.
            let anchor = Ident::new("value", Span::mixed_site().located_at(value.span()));
            parts.push(KeyPart::Value(value, anchor));
        } else {
            let described = &placeholder.described;
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
    Ok(build_key(&text, &parts, private))
}
