//! The expansion of a checked plan: the key and two calls, `enter` and `hold`. All behaviour is in
//! `lock-runtime`, where it can be read, stepped through and tested.

use std::collections::HashSet;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{FnArg, Path, Type};

use crate::args::{Mode, OnBusy, RequestValue, variant};
use crate::capture::{borrowed, captures, conditions, identifiers, used_again};
use crate::function::{Argument, argument};
use crate::returns::typed_return;
use crate::shape::Making;
use crate::validate::Plan;

/// Expands the plan into the protected function.
pub(crate) fn expand(plan: &Plan<'_>, body: &Group) -> TokenStream {
    let function = plan.function;
    let used_by_call = used_by_call(plan);
    let mut used: HashSet<_> = plan.used_by_names.union(&used_by_call).cloned().collect();
    if let OnBusy::Call(_) = plan.args.on_busy {
        // It gets all arguments.
        used.extend(function.roots().iter().map(Ident::to_string));
    }
    let (inputs, rebind) = captures(function, &used);
    let call = plan.call(
        &borrowed(function, &plan.used_by_names),
        &borrowed(function, &used_by_call),
        &plan.protected(body, &rebind, &used),
    );

    let attrs = &function.attrs;
    let vis = &function.vis;
    let mut sig = function.sig.clone();
    sig.inputs = inputs.into_iter().collect();
    let body = match &plan.shape.making {
        Making::AsyncFn => call,
        Making::Opaque => quote!(async move { #call }),
        Making::Boxed | Making::BoxedBlock(_) => {
            quote!(::std::boxed::Box::pin(async move { #call }))
        }
    };
    quote! {
        #(#attrs)*
        #vis #sig { #body }
    }
}

impl Plan<'_> {
    /// Returns the block that runs under the lock.
    fn protected(&self, body: &Group, rebind: &TokenStream, used: &HashSet<String>) -> Group {
        let (private, returns) = (&self.private, &self.returns);
        let lease = self.args.guard.as_ref();
        let lease = lease.map(|lease| quote!(#[allow(clippy::shadow_same)] let #lease = #lease;));
        let mut place = body.span();
        let statements = match &self.shape.making {
            Making::AsyncFn => own_block(returns, place, body.stream()),
            Making::BoxedBlock(block) => {
                place = block.span();
                own_block(returns, place, used_again(block.stream(), used))
            }
            Making::Boxed => {
                let declared = &self.function.sig.output;
                deferred(quote!(move || #declared #body), private)
            }
            Making::Opaque => deferred(quote!(move || #body), private),
        };
        let mut protected = Group::new(Delimiter::Brace, quote!(#rebind #lease #statements));
        protected.set_span(place);
        protected
    }

    /// Returns the statements that make the key, call `enter` and call `hold`.
    fn call(
        &self,
        borrow_for_key: &TokenStream,
        borrow_for_call: &TokenStream,
        protected: &Group,
    ) -> TokenStream {
        let (private, returns) = (&self.private, &self.returns);
        let name = internal("names");
        let guard = internal("guard");
        let entered = internal("entered");
        // The call of `enter` has a statement of its own, so that the temporaries of the options are dropped before the
        // call waits.
        let entering = internal("entering");
        let error = internal("error");
        let refuse = internal("refuse");
        let refusal = self.refusal();
        let names = &self.names;
        let enter = self.enter(&name);
        let refused = self.refused(&refuse, &error);
        let lease = self.args.guard.as_ref().map(|lease| match self.args.when {
            None => quote!(let #lease = #guard.lease();),
            Some(_) => quote!(let #lease = #guard.as_ref().map(#private::LockGuard::lease);),
        });
        let on_lost = self.args.on_lost.as_ref();
        let on_lost = on_lost.map(|variant| quote!(.on_lost(#private::OnLost::#variant)));
        quote! {
            #[allow(unknown_lints, clippy::type_complexity)]
            let #refuse: #private::Refuse<#returns> = #refusal;
            let #name = { #borrow_for_key #names };
            let #entered = {
                let #entering = { #borrow_for_call #enter };
                let #entered = #entering.await;
                #entered
            };
            match #entered {
                ::core::result::Result::Ok(#guard) => {
                    #lease
                    #private::hold(#guard, #refuse, async move #protected)#on_lost.await
                }
                ::core::result::Result::Err(#error) => #refused,
            }
        }
    }

    /// Returns the function from a `LockError` to the return type. It is a plain pointer, made in one place, so that a
    /// return type that does not fit is reported once, at the type.
    fn refusal(&self) -> TokenStream {
        let (private, returns) = (&self.private, &self.returns);
        match (&self.args.map_err, &self.args.on_busy) {
            (Some(map_err), _) => quote_spanned!(map_err.span()=> #map_err),
            (None, OnBusy::Skip(_)) => {
                quote_spanned!(returns.span()=> #private::skip::<#returns>)
            }
            (None, _) => quote_spanned! {returns.span()=>
                <#returns as #private::FromLockError>::from_lock_error
            },
        }
    }

    fn enter(&self, name: &Ident) -> TokenStream {
        let private = &self.private;
        let manager = match &self.args.manager {
            Some(manager) => {
                // The expression is typed by itself first and then coerced: if it were expected to be a manager, the
                // branches of an `if` could not be references.
                let span = manager.span();
                let reference = Ident::new("manager", span);
                let some = some(reference.to_token_stream(), span);
                let place = quote_spanned!(span=> &(#manager));
                quote!(match #place { #reference => #some })
            }
            None => quote!(::core::option::Option::None),
        };
        let (mode, options) = (mode(self), request_options(self));
        let enter = match self.args.keys {
            None => quote!(#private::enter),
            Some(_) => quote!(#private::enter_all),
        };
        match &self.args.when {
            None => quote!(#enter(#manager, #name, #mode, #options)),
            Some(when) => {
                quote!(#private::enter_when(#when, #enter, #manager, #name, #mode, #options))
            }
        }
    }

    /// Returns the expression for the value of a call whose body did not run.
    fn refused(&self, refuse: &Ident, error: &Ident) -> TokenStream {
        let private = &self.private;
        let OnBusy::Call(path) = &self.args.on_busy else {
            return quote!(#refuse(#error));
        };
        let receiver = self.function.receiver().map(|receiver| {
            let receiver = receiver.self_token;
            quote!(#receiver,)
        });
        let arguments = self.function.sig.inputs.iter().filter_map(|input| {
            let FnArg::Typed(typed) = input else {
                return None;
            };
            let conditions = conditions(&typed.attrs);
            match argument(&typed.pat) {
                Argument::Plain(name) => Some(quote!(#(#conditions)* #name)),
                Argument::Pattern(_) => None,
            }
        });
        let returned = internal("returned");
        let busy = quote_spanned! {path.span()=>
            let #returned = #path(#receiver #(#arguments,)* #error);
            (&#returned).__lock_kind().__lock_answer(#returned).await
        };
        quote! {
            match #error {
                #error @ #private::LockError::Busy { .. } => {
                    #[allow(unused_imports)]
                    use #private::{KindLater as _, KindNow as _};
                    #busy
                }
                #error => #refuse(#error),
            }
        }
    }
}

/// Returns statements whose last value is that of the user's. These stay in a block of their own, as in an `async fn`:
/// their items are unknown to the signature's types and patterns, and before edition 2024, what the last expression
/// borrows from an argument is dropped before the argument.
fn own_block(returns: &Type, place: Span, statements: TokenStream) -> TokenStream {
    let typed = typed_return(returns);
    let value = internal("value");
    // A block of one expression would bring lints about its braces. With a span of ours instead, which silences them, the
    // block would be of our edition.
    let mut block = Group::new(Delimiter::Brace, quote!(const _: () = (); #statements));
    block.set_span(place);
    quote! {
        #typed
        #[allow(
            unknown_lints,
            clippy::diverging_sub_expression,
            clippy::let_with_type_underscore,
            clippy::type_complexity
        )]
        let #value: #returns = #block;
        #[allow(unreachable_code)]
        #value
    }
}

/// Defers a body that makes a future until the first poll. The body is a closure, so that a `return` in it ends the
/// body only.
fn deferred(closure: TokenStream, private: &TokenStream) -> TokenStream {
    let future = internal("future");
    quote! {
        let #future = #private::call(#closure);
        #future.await
    }
}

pub(crate) fn private_module(crate_path: &Path) -> TokenStream {
    quote!(#crate_path::__private)
}

/// Returns a name of ours, which can neither see the user's names nor be seen by them.
fn internal(name: &str) -> Ident {
    format_ident!("__lock_{name}", span = Span::mixed_site())
}

/// Returns the names that the options use, except the keys.
fn used_by_call(plan: &Plan<'_>) -> HashSet<String> {
    let passed = plan.args.request.0.iter();
    let passed = passed.filter_map(|(_, value)| match value {
        RequestValue::Expr(expr) => Some(expr),
        RequestValue::Duration(..) => None,
    });
    let permits = match &plan.args.mode {
        Some(Mode::Semaphore(permits)) => Some(permits),
        _ => None,
    };
    let others = [&plan.args.when, &plan.args.manager];
    let others = others.into_iter().flatten().chain(permits);
    let mut used = HashSet::new();
    for expr in passed.chain(others) {
        identifiers(expr, &mut used);
    }
    used
}

/// Returns the expression for the kind of lock.
fn mode(plan: &Plan<'_>) -> TokenStream {
    let private = &plan.private;
    let mode = match &plan.args.mode {
        Some(Mode::Semaphore(permits)) => {
            quote_spanned!(permits.span()=> Semaphore(#permits))
        }
        Some(Mode::Word(word)) => variant(word).into_token_stream(),
        None => quote!(Exclusive),
    };
    quote!(#private::Mode::#mode)
}

/// Returns the expression for the options that go to the request.
fn request_options(plan: &Plan<'_>) -> TokenStream {
    let private = &plan.private;
    let fields = plan.args.request.0.iter().map(|(name, value)| {
        let field = Ident::new(name, Span::call_site());
        let (value, span) = match value {
            RequestValue::Duration(duration, _) => {
                let (secs, nanos) = (duration.as_secs(), duration.subsec_nanos());
                let duration = quote!(::core::time::Duration::new(#secs, #nanos));
                (duration, Span::call_site())
            }
            RequestValue::Expr(expr) => (expr.to_token_stream(), expr.span()),
        };
        // Without a time in it, `wait` means forever, for which the attribute has no word.
        let value = match *name {
            "wait" => some(value, span),
            _ => value,
        };
        let value = some(value, span);
        quote!(#field: #value,)
    });
    quote! {
        #private::Overrides { #(#fields)* ..::core::default::Default::default() }
    }
}

/// Returns `Some(value)` with the value's span, because an error about its type is shown there.
fn some(value: TokenStream, span: Span) -> TokenStream {
    quote_spanned!(span=> ::core::option::Option::Some(#value))
}
