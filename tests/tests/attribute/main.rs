//! Tests of the attribute around a function.

mod bounds;
mod calls;
mod endings;
mod events;
mod keys;
mod min_hold;
mod modes;
mod names;
mod policies;
mod witness;
