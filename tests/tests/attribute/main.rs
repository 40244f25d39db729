//! The attribute around a function.

mod bounds;
mod calls;
mod events;
mod keys;
mod min_hold;
mod modes;
mod policies;
