//! Functions of every shape compile without a warning, and run.

// They are as users write them. tests/users has those that clippy looks at.
#![cfg(not(clippy))]
#![allow(dead_code, reason = "most functions only have to compile")]

mod arguments;
mod async_trait;
mod crate_path;
mod elided_lifetimes;
mod futures;
mod hygiene;
mod keys;
mod macro_rules;
mod modes;
mod option_expressions;
mod other_attributes;
mod policies;
mod shapes;
mod traits;

#[test]
fn functions_of_every_shape_compile_and_run() {
    arguments::main();
    async_trait::main();
    crate_path::main();
    elided_lifetimes::main();
    futures::main();
    hygiene::main();
    keys::main();
    macro_rules::main();
    modes::main();
    option_expressions::main();
    other_attributes::main().unwrap();
    policies::main();
    shapes::main();
    traits::main();
}
