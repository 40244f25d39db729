//! The attribute's options, parsed one by one: a mistake in one does not hide the next.

use std::time::Duration;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, ExprCall, ExprLit, ExprMacro, ExprPath, Ident, Lit, LitStr, Path, Stmt, Token};

use crate::duration;
use crate::errors::Errors;
use crate::options::{Form, Known, OPTIONS};
use crate::suggest::{hint, meant};
use crate::template::CALL_OUTSIDE;

/// The modes that exist, the default first.
const MODES: [&str; 5] = ["exclusive", "fair", "read", "write", "semaphore"];
/// The most permits that a semaphore may have. `lock-runtime` checks the values that are not literals.
const MOST_PERMITS: u64 = 1_000_000_000_000;

/// The options as they were written, checked one at a time; `validate` checks them together.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) key: Option<Key>,
    pub(crate) keys: Option<Keys>,
    pub(crate) request: RequestOptions,
    pub(crate) when: Option<Expr>,
    pub(crate) on_busy: OnBusy,
    /// The variant of `OnLost`, if it is not the default, which is to drop the body.
    pub(crate) on_lost: Option<Ident>,
    pub(crate) map_err: Option<Expr>,
    pub(crate) mode: Option<Mode>,
    pub(crate) manager: Option<Expr>,
    pub(crate) guard: Option<Ident>,
    pub(crate) crate_path: Option<Path>,
    /// The options that were named, even if their value was bad.
    named: Vec<&'static str>,
    /// The options that unknown ones stand for.
    meant: Vec<&'static str>,
}

impl Args {
    /// Returns true for an option that was written, be it wrongly: it must not be called missing.
    pub(crate) fn mention(&self, option: &str) -> bool {
        self.named.contains(&option) || self.meant.contains(&option)
    }
}

pub(crate) enum Key {
    Template(LitStr),
    Expr(Expr),
}

/// Several locks, held as one.
pub(crate) enum Keys {
    List(Vec<Key>, Span),
    /// An expression that yields names.
    Expr(Expr),
}

/// The option that decides what the call returns if the lock is busy.
#[derive(Default)]
pub(crate) enum OnBusy {
    #[default]
    Error,
    Skip(Span),
    /// The function that answers instead of the body.
    Call(ExprPath),
}

/// The kind of lock.
pub(crate) enum Mode {
    Word(Ident),
    /// The number of permits in all.
    Semaphore(Expr),
}

/// The options that go to the lock's request, by name, in the order in which they were written.
#[derive(Default)]
pub(crate) struct RequestOptions(pub(crate) Vec<(&'static str, RequestValue)>);

pub(crate) enum RequestValue {
    Duration(Duration, Span),
    Expr(Expr),
}

impl RequestOptions {
    pub(crate) fn get(&self, name: &str) -> Option<&RequestValue> {
        let mut named = self.0.iter().filter(|(option, _)| *option == name);
        named.next().map(|(_, value)| value)
    }

    /// Returns a duration that is known at compile time.
    pub(crate) fn duration(&self, name: &str) -> Option<(Duration, Span)> {
        match self.get(name)? {
            RequestValue::Duration(duration, span) => Some((*duration, *span)),
            RequestValue::Expr(_) => None,
        }
    }
}

/// Parses everything between the attribute's parentheses.
pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Args {
    let mut args = Args::default();
    let parser = |input: ParseStream<'_>| {
        while !input.is_empty() {
            match parse_option(input, &mut args) {
                Err(error) => errors.add(error),
                Ok(()) if input.is_empty() || input.peek(Token![,]) => {}
                Ok(()) => errors.at(input.span(), "expected `,` between options"),
            }
            // What is left before the comma may belong to the mistake.
            while !input.is_empty() && input.parse::<Option<Token![,]>>()?.is_none() {
                input.parse::<TokenTree>()?;
            }
        }
        Ok(())
    };
    if let Err(error) = parser.parse2(tokens) {
        errors.add(error);
    }
    args
}

fn parse_option(input: ParseStream<'_>, args: &mut Args) -> syn::Result<()> {
    if input.peek(Lit) {
        let literal: Lit = input.parse()?;
        args.meant.push("key");
        return Err(syn::Error::new(
            literal.span(),
            "expected `option = value`; the key is written `key = \"...\"`",
        ));
    }
    let name = input
        .call(Ident::parse_any)
        .map_err(|error| syn::Error::new(error.span(), "expected `option = value`"))?;
    let text = name.unraw().to_string();
    let Some(option) = OPTIONS.iter().find(|option| option.name == text) else {
        let meant = meant(&text);
        args.meant.extend(meant.iter().map(|option| option.name));
        return Err(syn::Error::new(name.span(), unknown_option(&text, &meant)));
    };
    if args.named.contains(&option.name) {
        return Err(syn::Error::new(
            name.span(),
            format!("`{text}` is given twice"),
        ));
    }
    args.named.push(option.name);
    let has_value = input.parse::<Option<Token![=]>>()?.is_some();
    if !has_value || input.is_empty() || input.peek(Token![,]) {
        return Err(syn::Error::new(
            name.span(),
            format!("`{text}` needs a value: `{text} = ...`"),
        ));
    }
    let passed = match option.form {
        Form::Own => return parse_own(input, option.name, args),
        Form::Duration(..) => duration_arg(&text, value(input)?)?,
        Form::Bool => RequestValue::Expr(bool_arg(&text, value(input)?)?),
        Form::Any => RequestValue::Expr(value(input)?),
    };
    args.request.0.push((option.name, passed));
    Ok(())
}

/// Parses the value of an option that has a form of its own.
fn parse_own(input: ParseStream<'_>, name: &str, args: &mut Args) -> syn::Result<()> {
    match name {
        "key" => args.key = Some(key(value(input)?)?),
        "keys" => args.keys = Some(keys(value(input)?)?),
        "when" => args.when = Some(value(input)?),
        "on_busy" => args.on_busy = on_busy(input)?,
        "on_lost" => args.on_lost = on_lost(input)?,
        "map_err" => args.map_err = Some(value(input)?),
        "mode" => args.mode = Some(mode(input)?),
        "manager" => args.manager = Some(value(input)?),
        "guard" => args.guard = Some(guard(input)?),
        "crate" => args.crate_path = Some(crate_path(input)?),
        other => return Err(input.error(format!("`{other}` is not parsed"))),
    }
    Ok(())
}

fn unknown_option(name: &str, meant: &[&Known]) -> String {
    let quoted: Vec<_> = meant
        .iter()
        .map(|option| format!("`{}`", option.name))
        .collect();
    let mut message = format!("unknown option `{name}`");
    if !quoted.is_empty() {
        message += &format!("; did you mean {}?", quoted.join(" or "));
    }
    for (option, quoted) in meant.iter().zip(quoted) {
        message += &format!("\n{quoted}: {}", option.what);
    }
    let all: Vec<_> = OPTIONS.iter().map(|option| option.name).collect();
    message + "\nthe options are " + &all.join(", ")
}

/// Parses one expression, and takes it out of the invisible group that a `macro_rules!` fragment brings along.
fn value(input: ParseStream<'_>) -> syn::Result<Expr> {
    input.parse().map(ungrouped)
}

fn ungrouped(mut expr: Expr) -> Expr {
    while let Expr::Group(group) = expr {
        expr = *group.expr;
    }
    expr
}

fn key(value: Expr) -> syn::Result<Key> {
    match ungrouped(value) {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Ok(Key::Template(text)),
        Expr::Lit(literal) => Err(syn::Error::new_spanned(
            literal,
            "the key must be a string literal, such as \"order:{id}\", or an expression that makes a `LockName`",
        )),
        Expr::Call(ExprCall { func, .. }) if is_string(&func) => {
            Err(syn::Error::new_spanned(func, CALL_OUTSIDE))
        }
        // As an expression, it would keep its braces: all callers would share one lock.
        Expr::Macro(ExprMacro { mac, .. }) if ends_in(&mac.path, "concat") => {
            Err(syn::Error::new_spanned(
                mac,
                "a template must be one string literal: placeholders in `concat!` are not seen",
            ))
        }
        other => no_template_in(&other).map(|()| Key::Expr(other)),
    }
}

/// Refuses an expression whose value is a literal with braces: it would keep them, and all callers would share one lock.
fn no_template_in(value: &Expr) -> syn::Result<()> {
    match template_in(value) {
        None => Ok(()),
        Some(text) => Err(syn::Error::new(
            text.span(),
            "a template must stand alone: within an expression, its placeholders are plain text. Use `key!(\"order:{id}\")`, \
             or `LockName::from(..)` if the braces belong to the name",
        )),
    }
}

/// Returns the first literal with braces that can be the value of the expression, or an element of it.
fn template_in(value: &Expr) -> Option<LitStr> {
    let in_block = |block: &syn::Block| match block.stmts.last() {
        Some(Stmt::Expr(last, None)) => template_in(last),
        _ => None,
    };
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => text.value().contains('{').then(|| text.clone()),
        Expr::Paren(inner) => template_in(&inner.expr),
        Expr::Group(inner) => template_in(&inner.expr),
        Expr::Reference(inner) => template_in(&inner.expr),
        Expr::Index(inner) => template_in(&inner.expr),
        Expr::MethodCall(call) => {
            let is_one_of = |names: &str| names.split(' ').any(|name| call.method == name);
            let arguments = || call.args.iter().find_map(template_in);
            template_in(&call.receiver)
                .filter(|_| is_one_of(CONVERSIONS))
                .or_else(|| is_one_of(CHOICES).then(arguments).flatten())
        }
        Expr::Closure(closure) => template_in(&closure.body),
        // Not `LockName::from`, for braces that belong to the name.
        Expr::Call(ExprCall { func, args, .. }) => match &**func {
            Expr::Path(function) if keeps_text(&function.path) => template_in(args.first()?),
            _ => None,
        },
        Expr::Block(inner) => in_block(&inner.block),
        Expr::If(either) => {
            let otherwise = || template_in(&either.else_branch.as_ref()?.1);
            in_block(&either.then_branch).or_else(otherwise)
        }
        Expr::Match(cases) => cases.arms.iter().find_map(|arm| template_in(&arm.body)),
        Expr::Array(list) => list.elems.iter().find_map(template_in),
        Expr::Repeat(list) => template_in(&list.expr),
        Expr::Macro(ExprMacro { mac, .. }) if ends_in(&mac.path, "vec") => {
            let elements = &mac.tokens;
            template_in(&syn::parse2(quote!([#elements])).ok()?)
        }
        _ => None,
    }
}

/// The methods that make the same text of another type, or another list of the same elements. Spaces separate them.
const CONVERSIONS: &str =
    "into to_owned to_string clone to_vec iter into_iter as_slice collect cloned copied rev chain";

/// The methods of options and iterators whose argument is the value, or an element of it, or makes one.
const CHOICES: &str =
    "unwrap_or unwrap_or_else or or_else map map_or map_or_else then then_some chain";

/// `String::from`, `iter::once` and the like: the text stays as it is.
fn keeps_text(path: &Path) -> bool {
    let mut words = path.segments.iter().rev().map(|segment| &segment.ident);
    words.next().is_some_and(|function| {
        function == "once"
            || function == "Some"
            || function == "from" && words.next().is_some_and(|word| word == "String")
    })
}

/// Whether it is this macro, with or without a path in front.
fn ends_in(path: &Path, name: &str) -> bool {
    path.segments.last().is_some_and(|last| last.ident == name)
}

fn is_string(value: &Expr) -> bool {
    matches!(
        value,
        Expr::Lit(ExprLit {
            lit: Lit::Str(_),
            ..
        })
    )
}

fn keys(value: Expr) -> syn::Result<Keys> {
    match value {
        Expr::Array(list) if list.elems.is_empty() => Err(syn::Error::new_spanned(
            list,
            "`keys` needs at least one key, such as `keys = [\"account:{from}\", \"account:{to}\"]`",
        )),
        Expr::Array(list) => {
            let span = list.bracket_token.span.join();
            let keys = list
                .elems
                .into_iter()
                .map(key)
                .collect::<syn::Result<_>>()?;
            Ok(Keys::List(keys, span))
        }
        Expr::Lit(literal) => Err(syn::Error::new_spanned(
            literal,
            "`keys` is a list, such as `keys = [\"account:{from}\", \"account:{to}\"]`; for one lock there is `key`",
        )),
        other => no_template_in(&other).map(|()| Keys::Expr(other)),
    }
}

fn duration_arg(option: &str, value: Expr) -> syn::Result<RequestValue> {
    let Expr::Lit(ExprLit { lit, .. }) = &value else {
        return Ok(RequestValue::Expr(value));
    };
    let why = match lit {
        Lit::Str(text) => match duration::parse(&text.value()) {
            Ok(duration) => return Ok(RequestValue::Duration(duration, text.span())),
            Err(why) => why,
        },
        Lit::Int(number) => format!(
            "`{option}` needs a unit: write \"{0}s\" or \"{0}ms\", or a `Duration` expression",
            number.base10_digits(),
        ),
        _ => format!("`{option}` must be a string such as \"2s\", or a `Duration` expression"),
    };
    Err(syn::Error::new(lit.span(), why))
}

fn bool_arg(option: &str, value: Expr) -> syn::Result<Expr> {
    match &value {
        Expr::Lit(ExprLit { lit, .. }) if !matches!(lit, Lit::Bool(_)) => Err(syn::Error::new(
            lit.span(),
            format!("`{option}` must be `true`, `false` or a `bool` expression"),
        )),
        _ => Ok(value),
    }
}

/// Parses one of a few words.
fn word(input: ParseStream<'_>, option: &str, known: &[&str]) -> syn::Result<Ident> {
    let listed = known.join(", ");
    let word = input.call(Ident::parse_any).map_err(|error| {
        syn::Error::new(error.span(), format!("`{option}` is one of: {listed}"))
    })?;
    let text = word.to_string();
    if known.contains(&text.as_str()) {
        return Ok(word);
    }
    let close = hint(&text, known.iter().copied());
    Err(syn::Error::new(
        word.span(),
        format!("`{text}` is no `{option}`{close}\nit is one of: {listed}"),
    ))
}

fn mode(input: ParseStream<'_>) -> syn::Result<Mode> {
    let word = word(input, "mode", &MODES)?;
    if word != "semaphore" {
        return Ok(Mode::Word(word));
    }
    let missing = || {
        syn::Error::new(
            word.span(),
            "`semaphore` needs the number of permits that there are in all: `mode = semaphore(3)` admits three calls at a time",
        )
    };
    if !input.peek(syn::token::Paren) {
        return Err(missing());
    }
    let content;
    syn::parenthesized!(content in input);
    if content.is_empty() {
        return Err(missing());
    }
    let permits = value(&content)?;
    if !content.is_empty() {
        let error = content.error("`semaphore` takes one number");
        // The rest must be read, or syn would report it as a second mistake.
        content.parse::<TokenStream>()?;
        return Err(error);
    }
    check_permits(&permits)?;
    Ok(Mode::Semaphore(permits))
}

/// Checks a literal. Any other expression is a `u64`, which is checked when the function is called.
fn check_permits(permits: &Expr) -> syn::Result<()> {
    let Expr::Lit(ExprLit { lit, .. }) = permits else {
        return Ok(());
    };
    let fits = |number: &syn::LitInt| {
        let number = number.base10_parse::<u64>();
        number.is_ok_and(|number| (1..=MOST_PERMITS).contains(&number))
    };
    match lit {
        Lit::Int(number) if fits(number) => Ok(()),
        Lit::Int(number) => Err(syn::Error::new(
            number.span(),
            format!("a semaphore has 1 to {MOST_PERMITS} permits in all, not {number}"),
        )),
        other => Err(syn::Error::new(
            other.span(),
            "the number of permits is a whole number, such as `semaphore(3)`, or an expression of type `u64`",
        )),
    }
}

fn on_busy(input: ParseStream<'_>) -> syn::Result<OnBusy> {
    let word = word(input, "on_busy", &["error", "skip", "call"])?;
    if word == "error" {
        return Ok(OnBusy::Error);
    }
    if word == "skip" {
        return Ok(OnBusy::Skip(word.span()));
    }
    let missing = || {
        syn::Error::new(
            word.span(),
            "`call` needs the function to call: `on_busy = call(path)`, with the same arguments and the `LockError`",
        )
    };
    if !input.peek(syn::token::Paren) {
        return Err(missing());
    }
    let content;
    syn::parenthesized!(content in input);
    let path = content.parse().map_err(|_| missing());
    let path = match path {
        Ok(_) if !content.is_empty() => Err(content.error("`call` takes one path")),
        path => path,
    };
    // The rest must be read, or syn would report it as a second mistake.
    content.parse::<TokenStream>()?;
    path.map(OnBusy::Call)
}

fn on_lost(input: ParseStream<'_>) -> syn::Result<Option<Ident>> {
    let word = word(input, "on_lost", &["cancel", "finish", "error"])?;
    Ok((word != "cancel").then(|| variant(&word)))
}

/// Returns the variant that a word names: its first letter is a capital there.
pub(crate) fn variant(word: &Ident) -> Ident {
    let word = word.to_string();
    format_ident!("{}{}", word[..1].to_uppercase(), word[1..])
}

fn guard(input: ParseStream<'_>) -> syn::Result<Ident> {
    if input.peek(Token![_]) {
        return Err(input.error("`guard` needs a name for the hold's `Lease`; leave the option out if the body needs none"));
    }
    input.parse().map_err(|error: syn::Error| {
        syn::Error::new(
            error.span(),
            "`guard` needs a plain name, such as `guard = lease`: the body finds the hold's `Lease` under it",
        )
    })
}

fn crate_path(input: ParseStream<'_>) -> syn::Result<Path> {
    if input.peek(LitStr) {
        return input.parse::<LitStr>()?.parse();
    }
    input.call(Path::parse_mod_style).map_err(|error| {
        syn::Error::new(
            error.span(),
            "`crate` needs the path of `lock_runtime`, such as `crate = my_locks::lock_runtime`",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(options: &str) -> Vec<String> {
        let mut errors = Errors::default();
        parse(options.parse().unwrap(), &mut errors);
        let all = errors.into_result().err();
        all.into_iter()
            .flatten()
            .map(|error| error.to_string())
            .collect()
    }

    #[test]
    fn a_mistake_in_one_option_hides_no_leftovers_after_the_next() {
        let found = mistakes(r#"wait = 5, lease = "1s" "2s", lease = "3s", max_hold = "1m" x"#);
        let [unit, first, twice, second] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert!(unit.contains("needs a unit"), "{found:?}");
        assert!(twice.contains("given twice"), "{found:?}");
        for comma in [first, second] {
            assert_eq!(comma, "expected `,` between options");
        }
    }
}
