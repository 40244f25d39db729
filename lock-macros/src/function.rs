//! The annotated function, parsed only as far as the expansion needs it: the body remains raw tokens.

use proc_macro2::{Delimiter, Group, Span, TokenTree};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, FnArg, Ident, Pat, ReturnType, Signature, Token, Visibility};

pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    /// The body. It is `None` for a trait method that ends in `;`.
    pub(crate) body: Option<Group>,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        if !starts_a_function(input) {
            return Err(input.error("#[distributed_lock] goes on an `async fn`"));
        }
        let sig = input.parse()?;
        if input.peek(Token![;]) {
            input.parse::<Token![;]>()?;
            return Ok(Function {
                attrs,
                vis,
                sig,
                body: None,
            });
        }
        let body = parse_body(input)?;
        let (inner, body) = split_inner_attributes(body)?;
        attrs.extend(inner);
        Ok(Function {
            attrs,
            vis,
            sig,
            body: Some(body),
        })
    }
}

fn starts_a_function(input: ParseStream<'_>) -> bool {
    input.peek(Token![fn])
        || input.peek(Token![async])
        || input.peek(Token![unsafe])
        || input.peek(Token![extern])
        || (input.peek(Token![const]) && !input.peek2(Ident) && !input.peek2(Token![_]))
}

/// Parses the body, and takes it out of the invisible group that a `$body:block` of `macro_rules!` brings along.
fn parse_body(input: ParseStream<'_>) -> syn::Result<Group> {
    let mut tree: TokenTree = input.parse()?;
    loop {
        match tree {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return Ok(group),
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                let span = group.span();
                let inner = group.stream().into_iter().next();
                tree =
                    inner.ok_or_else(|| syn::Error::new(span, "expected the function's body"))?;
            }
            other => {
                return Err(syn::Error::new(
                    other.span(),
                    "expected the function's body",
                ));
            }
        }
    }
}

/// Splits the inner attributes from a body, as outer ones, which go in front of the function. `#![..]` is only legal
/// at the start of the function's own body, not of the block into which we put it.
fn split_inner_attributes(body: Group) -> syn::Result<(Vec<Attribute>, Group)> {
    let mut tokens = body.stream().into_iter();
    let starts_inner = matches!(
        (tokens.next(), tokens.next()),
        (Some(TokenTree::Punct(hash)), Some(TokenTree::Punct(bang)))
            if hash.as_char() == '#' && bang.as_char() == '!'
    );
    if !starts_inner {
        return Ok((Vec::new(), body));
    }
    let split = |input: ParseStream<'_>| {
        let mut inner = input.call(Attribute::parse_inner)?;
        for attr in &mut inner {
            attr.style = syn::AttrStyle::Outer;
        }
        Ok((inner, input.parse::<proc_macro2::TokenStream>()?))
    };
    let (inner, rest) = syn::parse::Parser::parse2(split, body.stream())?;
    let mut stripped = Group::new(body.delimiter(), rest);
    stripped.set_span(body.span());
    Ok((inner, stripped))
}

/// One argument other than `self`, as the expansion sees it.
pub(crate) enum Argument<'a> {
    /// `id: u64`, `mut id: u64`
    Plain(&'a Ident),
    /// `Path(id): Path<u64>`, `(a, b): (u8, u8)`, `_: Token`, `ref x: T`
    Pattern(&'a Pat),
}

impl Function {
    pub(crate) fn name(&self) -> String {
        self.sig.ident.to_string()
    }

    pub(crate) fn receiver(&self) -> Option<&syn::Receiver> {
        self.sig.receiver()
    }

    pub(crate) fn arguments(&self) -> impl Iterator<Item = Argument<'_>> {
        self.sig.inputs.iter().filter_map(|input| match input {
            FnArg::Receiver(_) => None,
            FnArg::Typed(typed) => Some(argument(&typed.pat)),
        })
    }

    /// Returns everything that a placeholder may start from: `self` and each name that an argument binds.
    pub(crate) fn roots(&self) -> Vec<Ident> {
        let mut roots: Vec<Ident> = Vec::new();
        if let Some(receiver) = self.receiver() {
            roots.push(Ident::new("self", receiver.self_token.span));
        }
        for argument in self.arguments() {
            match argument {
                Argument::Plain(name) => roots.push(name.clone()),
                Argument::Pattern(pattern) => bound_names(pattern, &mut roots),
            }
        }
        roots
    }

    /// Returns the span for errors about the return type.
    pub(crate) fn returns_span(&self) -> Span {
        match &self.sig.output {
            ReturnType::Default => self.sig.ident.span(),
            ReturnType::Type(_, ty) => syn::spanned::Spanned::span(ty),
        }
    }
}

pub(crate) fn argument(pattern: &Pat) -> Argument<'_> {
    match pattern {
        Pat::Ident(plain) if plain.by_ref.is_none() && plain.subpat.is_none() => {
            Argument::Plain(&plain.ident)
        }
        other => Argument::Pattern(other),
    }
}

/// Adds the names that a pattern binds to `names`.
pub(crate) fn bound_names(pattern: &Pat, names: &mut Vec<Ident>) {
    match pattern {
        Pat::Ident(binding) => {
            names.push(binding.ident.clone());
            if let Some((_, inner)) = &binding.subpat {
                bound_names(inner, names);
            }
        }
        Pat::Paren(inner) => bound_names(&inner.pat, names),
        Pat::Reference(inner) => bound_names(&inner.pat, names),
        Pat::Type(inner) => bound_names(&inner.pat, names),
        Pat::Slice(slice) => slice.elems.iter().for_each(|pat| bound_names(pat, names)),
        Pat::Tuple(tuple) => tuple.elems.iter().for_each(|pat| bound_names(pat, names)),
        Pat::TupleStruct(tuple) => tuple.elems.iter().for_each(|pat| bound_names(pat, names)),
        Pat::Struct(fields) => fields
            .fields
            .iter()
            .for_each(|field| bound_names(&field.pat, names)),
        Pat::Or(cases) => cases
            .cases
            .iter()
            .take(1)
            .for_each(|pat| bound_names(pat, names)),
        _ => {}
    }
}

/// Returns the pattern for matching through a reference: it binds every name by reference.
pub(crate) fn by_reference(pattern: &Pat) -> Pat {
    let mut pattern = pattern.clone();
    strip_binding_modes(&mut pattern);
    pattern
}

fn strip_binding_modes(pattern: &mut Pat) {
    match pattern {
        Pat::Ident(binding) => {
            binding.by_ref = None;
            binding.mutability = None;
            if let Some((_, inner)) = &mut binding.subpat {
                strip_binding_modes(inner);
            }
        }
        Pat::Reference(reference) => {
            let mut inner = (*reference.pat).clone();
            strip_binding_modes(&mut inner);
            *pattern = inner;
        }
        Pat::Paren(inner) => strip_binding_modes(&mut inner.pat),
        Pat::Type(inner) => strip_binding_modes(&mut inner.pat),
        Pat::Slice(slice) => slice.elems.iter_mut().for_each(strip_binding_modes),
        Pat::Tuple(tuple) => tuple.elems.iter_mut().for_each(strip_binding_modes),
        Pat::TupleStruct(tuple) => tuple.elems.iter_mut().for_each(strip_binding_modes),
        Pat::Struct(fields) => {
            fields
                .fields
                .iter_mut()
                .for_each(|field| strip_binding_modes(&mut field.pat));
        }
        Pat::Or(cases) => cases.cases.iter_mut().for_each(strip_binding_modes),
        _ => {}
    }
}
