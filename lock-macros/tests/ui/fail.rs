//! What every mistake says. All of them are checked in one run of cargo, which needs a set without programs that pass.

#[test]
fn every_mistake_is_a_clear_error_at_its_place() {
    trybuild::TestCases::new().compile_fail("fail/*.rs");
}

/// The form that `#[async_trait]` gives a method is not documented. The attribute recognises the form of this version.
/// With another one, look at the methods of `pass/async_trait.rs` first, then change the number.
#[test]
fn async_trait_is_the_version_whose_output_is_recognised() {
    let lock = include_str!("../../../Cargo.lock");
    let version = lock
        .split("name = \"async-trait\"\n")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    assert_eq!(version, Some("version = \"0.1.92\""));
}
