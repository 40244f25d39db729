//! The return type, as it may be written inside the body.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned;
use syn::{GenericArgument, Path, PathArguments, Type, TypeParamBound};

/// Returns a `return` that never runs and has the declared type. It makes the block's type known before the body is
/// checked, so that the body is coerced and its errors are shown as in a plain function.
pub(crate) fn typed_return(returns: &Type) -> TokenStream {
    let value = Ident::new("__lock_return", Span::mixed_site());
    quote_spanned! {returns.span()=>
        #[allow(
            unknown_lints,
            unreachable_code,
            clippy::diverging_sub_expression,
            clippy::empty_loop,
            clippy::let_unit_value,
            clippy::let_with_type_underscore,
            clippy::needless_return,
            clippy::type_complexity,
            clippy::unreachable
        )]
        if false {
            let #value: #returns = loop {};
            return #value;
        }
    }
}

/// Replaces each `impl Trait` in a type by `_`, because it may not be written inside a body.
pub(crate) fn inferred(mut ty: Type) -> Type {
    erase_impl_trait(&mut ty);
    ty
}

fn erase_impl_trait(ty: &mut Type) {
    match ty {
        Type::ImplTrait(opaque) => {
            let span = opaque.span();
            *ty = Type::Verbatim(quote_spanned!(span=> _));
        }
        Type::Path(path) => erase_in_arguments(&mut path.path),
        Type::TraitObject(object) => {
            for bound in &mut object.bounds {
                if let TypeParamBound::Trait(bound) = bound {
                    erase_in_arguments(&mut bound.path);
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

fn erase_in_arguments(path: &mut Path) {
    for segment in &mut path.segments {
        let PathArguments::AngleBracketed(arguments) = &mut segment.arguments else {
            continue;
        };
        for argument in &mut arguments.args {
            match argument {
                GenericArgument::Type(ty) => erase_impl_trait(ty),
                GenericArgument::AssocType(associated) => erase_impl_trait(&mut associated.ty),
                _ => {}
            }
        }
    }
}
