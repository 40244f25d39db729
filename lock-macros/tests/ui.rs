//! What compiles, and what every mistake says.

/// In one run, which builds what both need once.
#[test]
fn functions_of_every_shape_compile_and_every_mistake_is_a_clear_error_at_its_place() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}

/// The form that `#[async_trait]` gives a method is not documented. The attribute recognises the form of this version.
/// With another one, look at the methods of `pass/async_trait.rs` first, then change the number.
#[test]
fn async_trait_is_the_version_whose_output_is_recognised() {
    let lock = include_str!("../../Cargo.lock");
    let version = lock
        .split("name = \"async-trait\"\n")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    assert_eq!(version, Some("version = \"0.1.92\""));
}
