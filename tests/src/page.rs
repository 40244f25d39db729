//! Examples and rules of the documentation, read from its pages.

/// The example of `README.md`, which must compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub mod readme {}

/// Returns the rules of an `ACL SETUSER` of `docs/redis.md`: the words after `begin`, to the end of its block.
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

/// Returns the statements of a database's page that delete idle rows.
///
/// # Panics
///
/// If the page has none.
#[must_use]
pub fn documented_clean_up(page: &'static str) -> &'static str {
    let mut blocks = page.split("```sql\n").skip(1);
    let block = blocks.find(|block| block.contains("DELETE") && !block.contains("GRANT"));
    let block = block.expect("the page has no DELETE");
    block.split("```").next().unwrap_or_default()
}

/// Returns a recipe of `docs/fencing.md`: the block of a section whose first line is `-- ` and the title.
///
/// # Panics
///
/// If the page has no such section, or the section has no such block.
#[must_use]
pub fn documented_recipe(section: &str, title: &str) -> &'static str {
    let mut blocks = blocks_of_recipes(section);
    let found = blocks.find_map(|block| {
        let (_, code) = block.split_once('\n')?;
        (code.lines().next() == Some(&format!("-- {title}"))).then_some(code)
    });
    found.unwrap_or_else(|| panic!("docs/fencing.md has no `-- {title}` under `{section}`"))
}

/// Returns the HTTP request of a section of `docs/fencing.md`: its first line and its headers, and its body.
///
/// # Panics
///
/// If the page has no such section, or the section has no request.
#[must_use]
pub fn documented_request(section: &str) -> (&'static str, &'static str) {
    let mut blocks = blocks_of_recipes(section);
    let request = blocks.find_map(|block| block.strip_prefix("http\n"));
    let request =
        request.unwrap_or_else(|| panic!("docs/fencing.md has no request under `{section}`"));
    request.split_once("\n\n").expect("a head and a body")
}

/// Returns the code blocks of a section of `docs/fencing.md`, each with its language.
fn blocks_of_recipes(section: &str) -> impl Iterator<Item = &'static str> + use<> {
    let page = include_str!("../../docs/fencing.md");
    let (_, section_on) = page
        .split_once(&format!("\n## {section}\n"))
        .unwrap_or_else(|| panic!("docs/fencing.md has no section `{section}`"));
    let text = section_on.split("\n## ").next().unwrap_or_default();
    text.split("\n```").skip(1).step_by(2)
}
