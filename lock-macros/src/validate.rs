//! Checks that span several options, or options and function; what passes is a [`Plan`].

use std::time::Duration;

use proc_macro2::Span;
use syn::{Expr, ExprLit, Ident, Lit, Path, parse_quote};

use crate::args::{Args, DurationArg, Key, Seen};
use crate::duration::display;
use crate::errors::Errors;
use crate::function::Function;
use crate::nearest::hint;
use crate::template::{Piece, Placeholder, Template};

const SHORTEST_LEASE: Duration = Duration::from_millis(50);
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
const SHORTEST_RENEWED_LEASE: Duration = Duration::from_secs(1);

/// What the expansion is made from; nothing in it can be wrong any more, types aside.
pub(crate) struct Plan {
    pub(crate) key: KeyPlan,
    pub(crate) wait: Option<DurationArg>,
    pub(crate) lease: Option<DurationArg>,
    pub(crate) auto_renew: Option<Expr>,
    pub(crate) max_hold: Option<DurationArg>,
    pub(crate) label: Option<Expr>,
    pub(crate) manager: Option<Expr>,
    pub(crate) guard: Option<Ident>,
    pub(crate) crate_path: Path,
}

pub(crate) enum KeyPlan {
    /// The template's text and its parts.
    Template(String, Vec<KeyPart>),
    /// Anything that becomes a `LockName`.
    Expr(Expr),
}

pub(crate) enum KeyPart {
    Text(String),
    /// The value and the argument name that it starts from.
    Value(Expr, Ident),
}

/// `None` when a mistake was reported.
pub(crate) fn check(
    args: Args,
    seen: &Seen,
    function: &Function,
    errors: &mut Errors,
) -> Option<Plan> {
    check_function(function, errors);
    check_lease(&args, errors);
    for (option, limit) in [("lease", &args.lease), ("max_hold", &args.max_hold)] {
        if let Some(DurationArg::Literal(Duration::ZERO, span)) = limit {
            errors.at(*span, format!("`{option}` must be longer than zero"));
        }
    }
    if let Some(guard) = &args.guard
        && function.roots().contains(guard)
    {
        errors.at(
            guard.span(),
            format!("`guard = {guard}` would hide the argument `{guard}`: choose another name"),
        );
    }
    let key = match args.key {
        Some(Key::Template(literal)) => template_key(literal, function, errors),
        Some(Key::Expr(expr)) => Some(KeyPlan::Expr(expr)),
        None => {
            if !seen.has("key") {
                errors.at(
                    Span::call_site(),
                    "`key` is missing: #[distributed_lock(key = \"order:{id}\")]",
                );
            }
            None
        }
    };
    if !errors.is_empty() {
        return None;
    }
    Some(Plan {
        key: key?,
        wait: args.wait,
        lease: args.lease,
        auto_renew: args.auto_renew,
        max_hold: args.max_hold,
        label: args.label,
        manager: args.manager,
        guard: args.guard,
        crate_path: args
            .crate_path
            .unwrap_or_else(|| parse_quote!(::lock_runtime)),
    })
}

fn check_function(function: &Function, errors: &mut Errors) {
    if function.body.is_none() {
        errors.on(
            &function.sig,
            "a trait method without a body has nothing to protect: put #[distributed_lock] on the method in each `impl`",
        );
        return;
    }
    if function.sig.asyncness.is_none() {
        errors.at(
            function.sig.fn_token.span,
            format!(
                "#[distributed_lock] needs an `async fn`, and `{}` is none",
                function.name()
            ),
        );
        return;
    }
    if function.returns().is_none() {
        errors.at(
            function.returns_span(),
            format!(
                "`{}` returns nothing, so it could not say that the lock was busy: return `Result<(), E>` where \
                 `E: From<LockError>`",
                function.name(),
            ),
        );
    }
}

fn check_lease(args: &Args, errors: &mut Errors) {
    let Some(DurationArg::Literal(lease, span)) = &args.lease else {
        return;
    };
    let renewed = match &args.auto_renew {
        None => true,
        Some(Expr::Lit(ExprLit {
            lit: Lit::Bool(value),
            ..
        })) => value.value,
        Some(_) => false,
    };
    if lease.is_zero() {
        // Said for every duration alike.
    } else if *lease < SHORTEST_LEASE || *lease > LONGEST_LEASE {
        errors.at(
            *span,
            format!(
                "the lease {} is out of bounds: {} to {}",
                display(*lease),
                display(SHORTEST_LEASE),
                display(LONGEST_LEASE),
            ),
        );
    } else if renewed && *lease < SHORTEST_RENEWED_LEASE {
        errors.at(
            *span,
            format!(
                "a lease that is renewed lasts {} at least, this one {}: make it longer, or add `auto_renew = false`",
                display(SHORTEST_RENEWED_LEASE),
                display(*lease),
            ),
        );
    }
}

fn template_key(literal: syn::LitStr, function: &Function, errors: &mut Errors) -> Option<KeyPlan> {
    let text = literal.value();
    let span = literal.span();
    let template = match Template::parse(literal) {
        Ok(template) => template,
        Err(error) => {
            errors.add(error);
            return None;
        }
    };
    let roots = function.roots();
    let parts: Vec<_> = template
        .pieces
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Text(text) => Some(KeyPart::Text(text)),
            Piece::Placeholder(placeholder) => match value_of(&placeholder, &roots, span) {
                Ok(part) => Some(part),
                Err(why) => {
                    let mut message = format!("{}: {why}", placeholder.describe());
                    if placeholder.value.is_some() {
                        message.push_str(&known_arguments(&placeholder, function, &roots));
                    }
                    errors.at(span, message);
                    None
                }
            },
        })
        .collect();
    Some(KeyPlan::Template(text, parts))
}

/// Ties a placeholder to the argument that it starts from. The root takes the argument's hygiene, so
/// that it resolves even where template and arguments come out of different macros, and the
/// template's place, so that type errors are shown there.
fn value_of(placeholder: &Placeholder, roots: &[Ident], span: Span) -> Result<KeyPart, String> {
    let root = placeholder.root().ok_or(
        "an empty placeholder is only for `key!(\"...\", value)`; here it names an argument, such as `{id}`",
    )?;
    let Some(argument) = roots.iter().find(|argument| *argument == root) else {
        return Err(format!("`{root}` is no argument"));
    };
    let mut anchored = argument.clone();
    anchored.set_span(span.resolved_at(argument.span()));
    placeholder
        .value_rooted_at(anchored)
        .map(|value| KeyPart::Value(value, argument.clone()))
        .ok_or_else(|| "expected an argument first".to_owned())
}

fn known_arguments(placeholder: &Placeholder, function: &Function, roots: &[Ident]) -> String {
    let names: Vec<String> = roots.iter().map(Ident::to_string).collect();
    let of = format!(" of `{}`", function.name());
    if names.is_empty() {
        return format!("{of}, which has none");
    }
    let close = match placeholder.root() {
        Some(root) => hint(&root.to_string(), names.iter().map(String::as_str)),
        None => String::new(),
    };
    let listed: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("{of}, which has {}{close}", listed.join(", "))
}
