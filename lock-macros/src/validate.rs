//! The checks that span several options, or options and function. The result is a [`Plan`].

use std::collections::HashSet;
use std::time::Duration;

use proc_macro2::TokenStream;
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Lit, Type};

use crate::args::{Args, Mode, OnBusy, RequestOptions, RequestValue};
use crate::capture::identifiers;
use crate::duration::display;
use crate::errors::Errors;
use crate::function::{Argument, Function};
use crate::names::names;
use crate::options::{Form, OPTIONS, SHORTEST};
use crate::returns::inferred;
use crate::shape::{Shape, bare, shape};

const SHORTEST_RENEWED_LEASE: Duration = Duration::from_secs(1);

/// The input of the expansion. Nothing in it can be wrong any more, except types.
pub(crate) struct Plan<'a> {
    pub(crate) function: &'a Function,
    /// The path of the module whose functions the expansion calls.
    pub(crate) private: TokenStream,
    pub(crate) shape: Shape,
    /// The type that the function's future resolves to, with `_` for each `impl Trait`.
    pub(crate) returns: Type,
    /// The expression for the names of the locks.
    pub(crate) names: TokenStream,
    /// The identifiers in it. Arguments of these names are not unused, even if the body does not use them.
    pub(crate) used_by_names: HashSet<String>,
    pub(crate) args: Args,
}

/// Checks the options and the function. Returns `None` if a mistake was reported.
pub(crate) fn check<'a>(
    mut args: Args,
    private: TokenStream,
    function: &'a Function,
    errors: &mut Errors,
) -> Option<Plan<'a>> {
    let shape = check_function(function, errors);
    if let Some(shape) = &shape {
        check_output(&args, shape, function, errors);
    }
    check_durations(&args.request, errors);
    check_keep(&args, errors);
    check_on_busy(&args, function, errors);
    if let Some(guard) = &args.guard
        && function.roots().contains(guard)
    {
        errors.at(
            guard.span(),
            format!("`guard = {guard}` would hide the argument `{guard}`: choose another name"),
        );
    }
    let (names, used_by_names) = names(&args, &private, function, errors);
    if !errors.is_empty() {
        return None;
    }
    if let OnBusy::Skip(span) = args.on_busy
        && args.request.get("wait").is_none()
    {
        // The default is not to wait: a caller that waited would do the work a second time.
        let at_once = RequestValue::Duration(Duration::ZERO, span);
        args.request.0.push(("wait", at_once));
    }
    let shape = shape?;
    Some(Plan {
        function,
        private,
        returns: inferred(shape.output.clone()),
        shape,
        names,
        used_by_names,
        args,
    })
}

fn check_function(function: &Function, errors: &mut Errors) -> Option<Shape> {
    let Some(body) = &function.body else {
        errors.on(
            &function.sig,
            "a trait method without a body has nothing to protect: put #[distributed_lock] on the method in each `impl`",
        );
        return None;
    };
    if let Some(abi) = &function.sig.abi {
        errors.on(
            abi,
            format!(
                "#[distributed_lock] does not go on an `extern` fn: no foreign caller could await `{}`",
                function.name(),
            ),
        );
        return None;
    }
    let shape = shape(function);
    if shape.is_none() {
        let mut inside = HashSet::new();
        identifiers(body, &mut inside);
        let name = function.name();
        let message = if inside.contains("block_on") && inside.contains("Builder") {
            format!(
                "#[distributed_lock] comes too late: another attribute has made `{name}` a plain fn; put it above \
                 #[tokio::test] or #[tokio::main]"
            )
        } else {
            format!(
                "#[distributed_lock] needs an `async fn`, or a fn that returns `impl Future<Output = ..>` or \
                 `Pin<Box<dyn Future<Output = ..>>>`: `{name}` is none"
            )
        };
        errors.at(function.sig.fn_token.span, message);
    }
    shape
}

fn check_output(args: &Args, shape: &Shape, function: &Function, errors: &mut Errors) {
    if matches!(bare(&shape.output), Type::Never(_)) {
        errors.at(
            function.returns_span(),
            format!(
                "`{}` never returns, so it could not say that the lock was busy or lost: return `Result<Infallible, E>` where \
                 `E: From<LockError>`",
                function.name(),
            ),
        );
        return;
    }
    let is_unit = matches!(bare(&shape.output), Type::Tuple(tuple) if tuple.elems.is_empty());
    if is_unit && args.map_err.is_none() && !matches!(args.on_busy, OnBusy::Skip(_)) {
        errors.at(
            function.returns_span(),
            format!(
                "`{}` returns nothing, so it could not say that the lock was busy: return `Result<(), E>` where \
                 `E: From<LockError>`, or choose `on_busy = skip`",
                function.name(),
            ),
        );
    }
}

fn check_on_busy(args: &Args, function: &Function, errors: &mut Errors) {
    match &args.on_busy {
        OnBusy::Skip(span) if args.map_err.is_some() => errors.at(
            *span,
            "`on_busy = skip` and `map_err` exclude each other: let `map_err` answer `LockError::Busy` as skipped",
        ),
        OnBusy::Call(path) => {
            for argument in function.arguments() {
                if let Argument::Pattern(pattern) = argument {
                    let pattern = quote::quote!(#pattern);
                    errors.on(
                        path,
                        format!(
                            "`on_busy = call(..)` passes the arguments on, so each needs a plain name: `{pattern}` is \
                             a pattern"
                        ),
                    );
                }
            }
        }
        OnBusy::Skip(_) | OnBusy::Error => {}
    }
}

/// Checks the durations that are known at compile time.
fn check_durations(request: &RequestOptions, errors: &mut Errors) {
    for option in &OPTIONS {
        if let Form::Duration(least, most) = option.form
            && let Some((duration, span)) = request.duration(option.name)
            && (least.is_some_and(|least| duration < least)
                || most.is_some_and(|most| duration > most))
        {
            let bounds = match (least.map(display), most.map(display)) {
                (Some(least), Some(most)) => format!("{least} to {most}"),
                (Some(least), None) => format!("{least} at least"),
                (None, most) => format!("{} at most", most.unwrap_or_default()),
            };
            let (name, duration) = (option.name, display(duration));
            errors.at(span, format!("`{name}` lasts {bounds}, not {duration}"));
        }
    }
    if let Some((lease, span)) = request.duration("lease")
        && (SHORTEST..SHORTEST_RENEWED_LEASE).contains(&lease)
        && is_renewed(request) == Some(true)
    {
        errors.at(
            span,
            format!(
                "a lease that is renewed lasts {} at least, this one {}: make it longer, or add `auto_renew = false`",
                display(SHORTEST_RENEWED_LEASE),
                display(lease),
            ),
        );
    }
}

fn check_keep(args: &Args, errors: &mut Errors) {
    let span = match args.request.get("keep_for") {
        None => return,
        Some(RequestValue::Expr(keep_for)) => keep_for.span(),
        Some(RequestValue::Duration(_, span)) => *span,
    };
    let mode = match &args.mode {
        Some(Mode::Semaphore(_)) => Some("semaphore".to_owned()),
        Some(Mode::Word(word)) => Some(word.to_string()).filter(|word| word != "exclusive"),
        None => None,
    };
    if let Some(mode) = mode {
        errors.at(
            span,
            format!(
                "`keep_for` and `mode = {mode}` exclude each other: a process keeps locks of mode `exclusive` alone"
            ),
        );
    }
    if is_renewed(&args.request) == Some(false) {
        errors.at(
            span,
            "`keep_for` and `auto_renew = false` exclude each other: what is kept is renewed",
        );
    }
}

/// Returns whether the lease is renewed, or `None` if that is not known at compile time.
fn is_renewed(request: &RequestOptions) -> Option<bool> {
    match request.get("auto_renew") {
        None => Some(true),
        Some(RequestValue::Expr(Expr::Lit(ExprLit {
            lit: Lit::Bool(value),
            ..
        }))) => Some(value.value),
        Some(_) => None,
    }
}
