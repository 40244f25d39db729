//! From a checked plan to tokens: the key, then two calls, `enter` and `hold`. All behaviour is in
//! `lock-runtime`, where it can be read, stepped through and tested.

use std::collections::HashSet;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{GenericArgument, Path, PathArguments, Type, parse_quote};

use crate::args::DurationArg;
use crate::capture::{Captures, borrowed, captures, identifiers};
use crate::function::Function;
use crate::validate::{KeyPart, KeyPlan, Plan};

/// The protected function.
pub(crate) fn expand(plan: &Plan, function: &Function, body: &Group) -> TokenStream {
    let private = private_module(&plan.crate_path);
    let used_by_key = used_by_key(plan);
    let used_by_call = used_by_call(plan);
    let used = used_by_key.union(&used_by_call).cloned().collect();
    let Captures { inputs, rebind } = captures(function, &used);
    let borrow_for_key = borrowed(function, &used_by_key);
    let borrow_for_call = borrowed(function, &used_by_call);
    let returns = function
        .returns()
        .cloned()
        .unwrap_or_else(|| parse_quote!(()));
    let returns = inferred(returns);

    let attrs = &function.attrs;
    let vis = &function.vis;
    let mut sig = function.sig.clone();
    sig.inputs = inputs.into_iter().collect();

    let name = internal("name");
    let guard = internal("guard");
    let entered = internal("entered");
    let error = internal("error");
    let refuse = internal("refuse");
    let key = key_expression(plan, &private);
    let manager = match &plan.manager {
        Some(manager) => some(quote_spanned!(manager.span()=> &(#manager)), manager.span()),
        None => quote!(::core::option::Option::None),
    };
    let call = call_options(plan, &private);
    let (lease, rebind_lease) = match &plan.guard {
        Some(lease) => (
            quote!(let #lease = #guard.lease();),
            quote!(let #lease = #lease;),
        ),
        None => Default::default(),
    };
    let typed_return = typed_return(&returns);
    // One block, with the place of the user's own: a block inside ours would bring lints about braces.
    let statements = body.stream();
    let mut protected = Group::new(
        Delimiter::Brace,
        quote!(#rebind #rebind_lease #typed_return #statements),
    );
    protected.set_span(body.span());
    // A plain pointer, made in one place: a return type that does not fit is reported once, at the type.
    let refusal =
        quote_spanned!(returns.span()=> <#returns as #private::FromLockError>::from_lock_error);
    quote! {
        #(#attrs)*
        #vis #sig {
            let #refuse: fn(#private::LockError) -> #returns = #refusal;
            let #name = { #borrow_for_key #key };
            let #entered = {
                #borrow_for_call
                let #entered = #private::enter(#manager, #name, #call).await;
                #entered
            };
            match #entered {
                ::core::result::Result::Ok(#guard) => {
                    #lease
                    #private::hold(#guard, #refuse, async move #protected).await
                }
                ::core::result::Result::Err(#error) => #refuse(#error),
            }
        }
    }
}

fn private_module(crate_path: &Path) -> TokenStream {
    quote!(#crate_path::__private)
}

/// A name of ours: it can neither see nor be seen by the user's.
fn internal(name: &str) -> Ident {
    format_ident!("__lock_{name}", span = Span::mixed_site())
}

/// Names that the key uses: their arguments are not unused, whatever the body does.
fn used_by_key(plan: &Plan) -> HashSet<String> {
    let mut used = HashSet::new();
    match &plan.key {
        KeyPlan::Expr(expr) => identifiers(expr, &mut used),
        KeyPlan::Template(_, parts) => {
            for part in parts {
                if let KeyPart::Value(value, _) = part {
                    identifiers(value, &mut used);
                }
            }
        }
    }
    used
}

/// The same for the other options.
fn used_by_call(plan: &Plan) -> HashSet<String> {
    let durations = [&plan.wait, &plan.lease, &plan.max_hold];
    let durations = durations.into_iter().filter_map(|duration| match duration {
        Some(DurationArg::Expr(expr)) => Some(expr),
        _ => None,
    });
    let others = [&plan.auto_renew, &plan.label, &plan.manager];
    let mut used = HashSet::new();
    for expr in durations.chain(others.into_iter().flatten()) {
        identifiers(expr, &mut used);
    }
    used
}

fn key_expression(plan: &Plan, private: &TokenStream) -> TokenStream {
    match &plan.key {
        KeyPlan::Expr(expr) => quote_spanned!(expr.span()=> #private::name(#expr)),
        KeyPlan::Template(text, parts) => build_key(text, parts, private),
    }
}

/// The calls that build a name from a template; shared with `key!`.
pub(crate) fn build_key(text: &str, parts: &[KeyPart], private: &TokenStream) -> TokenStream {
    let steps = parts.iter().map(|part| match part {
        KeyPart::Text(text) => quote!(.literal(#text)),
        KeyPart::Value(value, root) => {
            quote_spanned!(root.span().located_at(value.span())=> .part(&(#value)))
        }
    });
    quote!(#private::KeyBuilder::new(#text) #(#steps)* .finish())
}

fn call_options(plan: &Plan, private: &TokenStream) -> TokenStream {
    let mut fields = TokenStream::new();
    let durations = [
        ("wait", &plan.wait),
        ("lease", &plan.lease),
        ("max_hold", &plan.max_hold),
    ];
    for (name, duration) in durations {
        let field = Ident::new(name, Span::call_site());
        match duration {
            Some(DurationArg::Literal(duration, _)) => {
                let (secs, nanos) = (duration.as_secs(), duration.subsec_nanos());
                fields.extend(quote! {
                    #field: ::core::option::Option::Some(::core::time::Duration::new(#secs, #nanos)),
                });
            }
            Some(DurationArg::Expr(expr)) => {
                let value = some(expr.to_token_stream(), expr.span());
                fields.extend(quote!(#field: #value,));
            }
            None => {}
        }
    }
    for (name, value) in [("auto_renew", &plan.auto_renew), ("label", &plan.label)] {
        let field = Ident::new(name, Span::call_site());
        if let Some(value) = value {
            let value = some(value.to_token_stream(), value.span());
            fields.extend(quote!(#field: #value,));
        }
    }
    quote! {
        #private::Call { #fields ..::core::default::Default::default() }
    }
}

/// `Some(value)`, at the value's place: a value of the wrong type is shown there.
fn some(value: TokenStream, span: Span) -> TokenStream {
    quote_spanned!(span=> ::core::option::Option::Some(#value))
}

/// A `return` that never runs and carries the declared type: it makes the block's type known before
/// the body is checked, so that the body is coerced and its errors are shown as in a plain function.
fn typed_return(returns: &Type) -> TokenStream {
    let value = internal("return");
    quote_spanned! {returns.span()=>
        #[allow(
            unknown_lints,
            unreachable_code,
            clippy::diverging_sub_expression,
            clippy::empty_loop,
            clippy::let_unit_value,
            clippy::let_with_type_underscore,
            clippy::needless_return,
            clippy::unreachable
        )]
        if false {
            let #value: #returns = loop {};
            return #value;
        }
    }
}

/// The type with each `impl Trait` left to inference: it may not be written inside a body.
fn inferred(mut ty: Type) -> Type {
    erase_impl_trait(&mut ty);
    ty
}

fn erase_impl_trait(ty: &mut Type) {
    match ty {
        Type::ImplTrait(opaque) => {
            let span = opaque.span();
            *ty = Type::Verbatim(quote_spanned!(span=> _));
        }
        Type::Path(path) => {
            for segment in &mut path.path.segments {
                if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
                    for argument in &mut arguments.args {
                        if let GenericArgument::Type(ty) = argument {
                            erase_impl_trait(ty);
                        }
                    }
                }
            }
        }
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(erase_impl_trait),
        Type::Reference(reference) => erase_impl_trait(&mut reference.elem),
        Type::Array(array) => erase_impl_trait(&mut array.elem),
        Type::Slice(slice) => erase_impl_trait(&mut slice.elem),
        Type::Paren(inner) => erase_impl_trait(&mut inner.elem),
        Type::Group(inner) => erase_impl_trait(&mut inner.elem),
        _ => {}
    }
}
