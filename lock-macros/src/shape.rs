//! The shape of a function: how it makes its future, and what the future resolves to.

use proc_macro2::{Delimiter, Group, TokenTree};
use syn::punctuated::Punctuated;
use syn::{
    GenericArgument, Path, PathArguments, ReturnType, Token, Type, TypeParamBound, parse_quote,
};

use crate::function::Function;

/// The way in which the function makes its future.
pub(crate) enum Making {
    /// `async fn`
    AsyncFn,
    /// `-> impl Future<Output = T>`
    Opaque,
    /// `-> Pin<Box<dyn Future<Output = T>>>`
    Boxed,
    /// The same, with a body that is one `Box::pin(async move { .. })`, as `#[async_trait]` leaves it. The
    /// block is protected as if it were the body of an `async fn`.
    BoxedBlock(Group),
}

pub(crate) struct Shape {
    pub(crate) making: Making,
    /// The type that the future resolves to.
    pub(crate) output: Type,
}

/// Returns the shape, or `None` for a function that makes no future of a known form.
pub(crate) fn shape(function: &Function) -> Option<Shape> {
    let declared = match &function.sig.output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => Some(&**ty),
    };
    let (making, output) = match declared.map(bare) {
        _ if function.sig.asyncness.is_some() => {
            let output = declared.cloned().unwrap_or_else(|| parse_quote!(()));
            (Making::AsyncFn, output)
        }
        Some(Type::ImplTrait(opaque)) => (Making::Opaque, future_output(&opaque.bounds)?),
        Some(Type::Path(path)) => {
            let block = function.body.as_ref().and_then(boxed_block);
            let making = block.map_or(Making::Boxed, Making::BoxedBlock);
            (making, boxed_output(&path.path)?)
        }
        _ => return None,
    };
    Some(Shape { making, output })
}

/// Takes a type out of parentheses, and out of the invisible group that a `macro_rules!` fragment brings along.
pub(crate) fn bare(mut ty: &Type) -> &Type {
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(group) => &group.elem,
            _ => return ty,
        };
    }
}

/// Returns `T` of `Future<Output = T> + ..`.
fn future_output(bounds: &Punctuated<TypeParamBound, Token![+]>) -> Option<Type> {
    bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else {
            return None;
        };
        let segment = bound
            .path
            .segments
            .last()
            .filter(|segment| segment.ident == "Future")?;
        let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
            return None;
        };
        arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(output) if output.ident == "Output" => {
                Some(output.ty.clone())
            }
            _ => None,
        })
    })
}

/// Returns `T` of `Pin<Box<dyn Future<Output = T>>>`, `BoxFuture<'_, T>` or `LocalBoxFuture<'_, T>`.
fn boxed_output(path: &Path) -> Option<Type> {
    let segment = path.segments.last()?;
    if segment.ident == "BoxFuture" || segment.ident == "LocalBoxFuture" {
        return type_argument(&segment.arguments).cloned();
    }
    let Type::Path(boxed) = type_argument(&segment.arguments).filter(|_| segment.ident == "Pin")?
    else {
        return None;
    };
    let segment = boxed
        .path
        .segments
        .last()
        .filter(|segment| segment.ident == "Box")?;
    match type_argument(&segment.arguments)? {
        Type::TraitObject(object) => future_output(&object.bounds),
        _ => None,
    }
}

fn type_argument(arguments: &PathArguments) -> Option<&Type> {
    let PathArguments::AngleBracketed(arguments) = arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// Returns the block of a body that consists only of `Box::pin(async move { .. })`.
fn boxed_block(body: &Group) -> Option<Group> {
    let mut tokens: Vec<TokenTree> = body.stream().into_iter().collect();
    let Some(TokenTree::Group(arguments)) = tokens.pop() else {
        return None;
    };
    let callee: String = tokens.iter().map(ToString::to_string).collect();
    let is_pin = matches!(
        callee.as_str(),
        "Box::pin" | "::std::boxed::Box::pin" | "std::boxed::Box::pin"
    );
    if !is_pin || arguments.delimiter() != Delimiter::Parenthesis {
        return None;
    }
    let arguments: Vec<TokenTree> = arguments.stream().into_iter().collect();
    match arguments.as_slice() {
        [
            TokenTree::Ident(first),
            TokenTree::Ident(second),
            TokenTree::Group(block),
        ] if first == "async" && second == "move" && block.delimiter() == Delimiter::Brace => {
            Some(block.clone())
        }
        _ => None,
    }
}
