//! Key templates. The input is a template and the values of its placeholders, one a line. A template that is accepted
//! must give different values different names, however a user chooses them.

use lock_runtime::LockName;
use template::Piece;

#[path = "../../lock-macros/src/template.rs"]
#[allow(dead_code)]
mod template;

fn name(template: &[Piece], values: &[&str]) -> LockName {
    let mut values = values.iter();
    template
        .iter()
        .fold(LockName::from(""), |name, piece| match piece {
            Piece::Text(text) => name.literal(text),
            Piece::Placeholder(_) => {
                name.with(*values.next().expect("a value for each placeholder"))
            }
        })
}

pub fn run(input: &str) {
    let (text, values) = input.split_once('\n').unwrap_or((input, ""));
    let literal = syn::LitStr::new(text, proc_macro2::Span::call_site());
    let Ok(template) = template::parse(&literal) else {
        return;
    };
    // An empty value makes no name, so it cannot make the same one.
    let values: Vec<&str> = values
        .split('\n')
        .filter(|value| !value.is_empty())
        .collect();
    let placeholders = template
        .iter()
        .filter(|piece| matches!(piece, Piece::Placeholder(_)));
    let count = placeholders.count();
    let Some((one, rest)) = values.split_at_checked(count.max(1)) else {
        return;
    };
    for other in rest.chunks_exact(one.len()) {
        let same = name(&template, one).as_str() == name(&template, other).as_str();
        assert!(
            !same || one == other || count == 0,
            "{text}: {one:?} and {other:?} have one name"
        );
    }
}
