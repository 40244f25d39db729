//! What the documentation shows, read from its pages.

/// The example of `README.md`, which must compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub mod readme {}

/// The rules of an `ACL SETUSER` of `docs/redis.md`: what comes after `begin`, to the end of its block.
///
/// # Panics
///
/// If the page has no such block.
#[must_use]
pub fn documented_rights(begin: &str) -> Vec<&'static str> {
    let page = include_str!("../../docs/redis.md");
    let (_, block) = page
        .split_once(begin)
        .unwrap_or_else(|| panic!("docs/redis.md has no `{begin}`"));
    let block = block.split("```").next().unwrap_or_default();
    block.split_whitespace().collect()
}
