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
        let body = if input.parse::<Option<Token![;]>>()?.is_some() {
            None
        } else {
            let (inner, body) = split_inner_attributes(parse_body(input)?)?;
            attrs.extend(inner);
            Some(body)
        };
        Ok(Function {
            attrs,
            vis,
            sig,
            body,
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
                Argument::Pattern(pattern) => roots.extend(bound_names(pattern)),
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

/// Returns the names that a pattern binds.
pub(crate) fn bound_names(pattern: &Pat) -> Vec<Ident> {
    let (own, most) = match pattern {
        Pat::Ident(binding) => (Some(binding.ident.clone()), usize::MAX),
        // Each case binds the same names.
        Pat::Or(_) => (None, 1),
        _ => (None, usize::MAX),
    };
    let mut pattern = pattern.clone();
    let inner = parts(&mut pattern).into_iter().take(most);
    let inner = inner.flat_map(|part| bound_names(part));
    own.into_iter().chain(inner).collect()
}

/// Returns the pattern for matching through a reference: it binds every name by reference.
pub(crate) fn by_reference(pattern: &Pat) -> Pat {
    let mut pattern = pattern.clone();
    strip_binding_modes(&mut pattern);
    pattern
}

fn strip_binding_modes(pattern: &mut Pat) {
    while let Pat::Reference(reference) = pattern {
        *pattern = (*reference.pat).clone();
    }
    if let Pat::Ident(binding) = pattern {
        binding.by_ref = None;
        binding.mutability = None;
    }
    parts(pattern).into_iter().for_each(strip_binding_modes);
}

/// Returns the patterns of which a pattern consists.
fn parts(pattern: &mut Pat) -> Vec<&mut Pat> {
    match pattern {
        Pat::Ident(binding) => {
            let inner = binding.subpat.iter_mut();
            inner.map(|(_, inner)| &mut **inner).collect()
        }
        Pat::Paren(inner) => vec![&mut inner.pat],
        Pat::Reference(inner) => vec![&mut inner.pat],
        Pat::Type(inner) => vec![&mut inner.pat],
        Pat::Slice(slice) => slice.elems.iter_mut().collect(),
        Pat::Tuple(tuple) => tuple.elems.iter_mut().collect(),
        Pat::TupleStruct(tuple) => tuple.elems.iter_mut().collect(),
        Pat::Struct(pattern) => {
            let fields = pattern.fields.iter_mut();
            fields.map(|field| &mut *field.pat).collect()
        }
        Pat::Or(cases) => cases.cases.iter_mut().collect(),
        _ => Vec::new(),
    }
}
