//! What compiles, and what every mistake says.

#[test]
fn functions_of_every_shape_compile() {
    trybuild::TestCases::new().pass("tests/ui/pass/*.rs");
}

#[test]
fn every_mistake_is_a_clear_error_at_its_place() {
    trybuild::TestCases::new().compile_fail("tests/ui/fail/*.rs");
}
