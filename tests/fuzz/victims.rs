//! Messages on the control channel, where others may publish what they like. Only a message as our own script sends it
//! names holders, and it names exactly those.

use std::collections::BTreeSet;

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let pairs = digits?;
    Some(
        pairs
            .chunks(2)
            .map(|pair| (pair[0] * 16 + pair[1]) as u8)
            .collect(),
    )
}

/// Returns the holders that a message names: one alias of 16 bytes for each, 256 at most.
fn named(payload: &[u8]) -> Option<BTreeSet<[u8; 16]>> {
    let text = std::str::from_utf8(payload).ok()?;
    let aliases = text.strip_prefix("holders:")?;
    if aliases.is_empty() || aliases.len() % 32 != 0 || aliases.len() > 256 * 32 {
        return None;
    }
    let bytes = hex(aliases)?;
    let aliases = bytes.chunks(16).map(|alias| alias.try_into().ok());
    aliases.collect()
}

pub fn run(payload: &[u8]) {
    let read = lock_runtime::fuzz::victims(payload);
    assert_eq!(read.map(BTreeSet::from_iter), named(payload));
}
