use quote::ToTokens;

use super::*;

fn parse_text(template: &str) -> syn::Result<Vec<Piece>> {
    parse(&LitStr::new(template, Span::call_site()))
}

/// Shows a template's pieces: text as it is, placeholders as `<offset expr>`.
fn shown(template: &str) -> String {
    let pieces = parse_text(template).unwrap_or_else(|error| panic!("{error}"));
    let shown = pieces.iter().map(|piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Placeholder(Placeholder { described, value }) => {
            let (_, offset) = described.rsplit_once(' ').unwrap();
            match value {
                Some(value) => {
                    let value = value.to_token_stream().to_string().replace(' ', "");
                    format!("<{offset} {value}>")
                }
                None => format!("<{offset}>"),
            }
        }
    });
    shown.collect()
}

fn faults(template: &str) -> Vec<String> {
    match parse_text(template) {
        Ok(_) => panic!("{template} was accepted"),
        Err(faults) => faults.into_iter().map(|fault| fault.to_string()).collect(),
    }
}

#[test]
fn text_and_placeholders_are_taken_apart() {
    for (template, expected) in [
        ("report:daily", "report:daily"),
        ("order:{id}", "order:<6 id>"),
        ("{id}", "<0 id>"),
        ("{a}:{b}", "<0 a>:<4 b>"),
        ("a:{a}/b:{b}!", "a:<2 a>/b:<8 b>!"),
        ("{order.id}", "<0 order.id>"),
        ("{self.tenant}", "<0 self.tenant>"),
        ("{pair.0.1}", "<0 pair.0.1>"),
        ("{user.id()}", "<0 user.id()>"),
        (
            "{user.part(1, \"x}\", Kind::A, -2)}",
            "<0 user.part(1,\"x}\",Kind::A,-2)>",
        ),
        ("{r#type}", "<0 r#type>"),
        (
            "{path.replace(\"//\", '/', r#\"/* */\"#)}//{b}/*{c}*/",
            "<0 path.replace(\"//\",'/',r#\"/**/\"#)>//<39 b>/*<44 c>*/",
        ),
        ("{}:{}", "<0>:<3>"),
        ("{{literal}}:{id}", "{literal}:<12 id>"),
        ("{{{id}}}", "{<2 id>}"),
        ("größe:{id}", "größe:<8 id>"),
    ] {
        assert_eq!(shown(template), expected, "{template}");
    }
}

#[test]
fn a_quoted_argument_has_no_end_or_format_of_its_placeholder() {
    for argument in [
        r#"")", ":""#,
        r#"'(', "::""#,
        r#"'}', "}""#,
        r#"'"', '}'"#,
        r#"'\'', '}'"#,
        r#"'\\', ':'"#,
        r#""\"}", ')', ':'"#,
        r##"r"\", r#""}"#, ":""##,
        r#"b'}', b"}:""#,
        r#"'é', "}""#,
    ] {
        let template = format!("{{path.replace({argument})}}:{{id}}");
        let second = template.len() - "{id}".len();
        let expected = format!("<0 path.replace({argument})>:<{second} id>");
        assert_eq!(shown(&template), expected.replace(", ", ","), "{template}");
    }
    for (template, reason) in [
        ("a:{id.get(')'):>5}", "the format spec `:>5`"),
        ("a:{id.get(\"(\"):?}", "the format spec `:?`"),
        (
            "a:{id:'static}",
            "placeholder `{id:'static}` at byte 2: the format spec `:'static`",
        ),
        ("a:{id.get('a)}", "expected an argument or `self`"),
        ("a:{id.get(\")}", "placeholder `{id.get(\")}` at byte 2"),
        ("a:{id.get('\\)}", "placeholder `{id.get('\\)}` at byte 2"),
    ] {
        let faults = faults(template);
        assert!(faults[0].contains(reason), "{template}: {faults:?}");
    }
}

#[test]
fn what_is_no_placeholder_is_refused_by_name() {
    for (template, reason) in [
        ("", "must not be empty"),
        ("a:{id", "opened by `{` at byte 2 is not closed"),
        ("a:id}", "`}` at byte 4 closes no placeholder"),
        ("a:{ id}", "placeholder `{ id}` at byte 2: no space"),
        (
            "a:{id:?}",
            "placeholder `{id:?}` at byte 2: the format spec `:?`",
        ),
        ("a:{id:>5}", "the format spec `:>5`"),
        ("a:{id?}", "`?` is not allowed"),
        ("a:{load.await}", "`.await` is not allowed"),
        ("a:{f(id)}", "a function call is not allowed"),
        ("a:{ids[0]}", "indexing"),
        ("a:{format!(\"x\")}", "a macro call"),
        ("a:{id.get::<u8>()}", "`::<..>` is not allowed"),
        (
            "a:{id.get(f(1))}",
            "the method argument `f (1)` is not allowed",
        ),
        ("a:{Kind::A}", "a path with `::` is not allowed"),
        ("a:{0}", "a position is not allowed"),
        ("a:{\"x\"}", "a literal is not allowed"),
        ("a:{&id}", "`&`"),
        ("a:{id + 1}", "this kind of expression"),
        ("a:{id.}", "expected an argument or `self`"),
        ("a:{1x y}", "expected an argument or `self`"),
        (
            "a:{id/**/}",
            "placeholder `{id/**/}` at byte 2: a comment is not allowed",
        ),
        ("a:{id // the order's}", "a comment is not allowed"),
        ("a:{order /* the */ .id}", "a comment is not allowed"),
        ("a:{id.max(/** least */ 1)}", "a comment is not allowed"),
        (
            "a:{path.replace(\"//\", '/' /* one */)}",
            "a comment is not allowed",
        ),
    ] {
        let faults = faults(template);
        assert!(faults[0].contains(reason), "{template}: {faults:?}");
    }
}

#[test]
fn several_mistakes_are_reported_together() {
    let faults = faults("{a?}:{b.await}:}");
    assert_eq!(faults.len(), 3, "{faults:?}");
    assert!(faults[2].contains("byte 15"), "{faults:?}");
}

#[test]
fn two_placeholders_need_a_separator_that_no_value_contains() {
    for template in ["{a}{b}", "{a}-{b}", "{a}x.y_z%{b}", "{a}0{b}"] {
        let faults = faults(template);
        assert!(
            faults[0].contains("does not keep their values apart"),
            "{template}: {faults:?}"
        );
    }
    for template in [
        "{a}:{b}",
        "{a}x:y{b}",
        "{a} {b}",
        "{a}é{b}",
        "{a}{{{b}",
        "-{a}-",
    ] {
        assert!(parse_text(template).is_ok(), "{template}");
    }
}

#[test]
fn a_value_is_rooted_anew_without_touching_the_rest() {
    let pieces = parse_text("{user.pair.0.id(user)}");
    let pieces = pieces.unwrap_or_else(|error| panic!("{error}"));
    let [Piece::Placeholder(placeholder)] = pieces.as_slice() else {
        panic!("it is one placeholder");
    };
    assert_eq!(placeholder.root().unwrap(), "user");
    let value = placeholder
        .value_rooted_at(Ident::new("other", Span::call_site()))
        .unwrap();
    assert_eq!(
        value.to_token_stream().to_string().replace(' ', ""),
        "(&other).pair.0.id(user)"
    );
}
