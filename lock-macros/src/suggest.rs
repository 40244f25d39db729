//! "Did you mean": the option that another library knows by this name, or the closest of a few known names.

use crate::options::{Known, OPTIONS};

/// Returns the options that an unknown one may stand for.
pub(crate) fn meant(name: &str) -> Vec<&'static Known> {
    let plain = name.replace('_', "").to_lowercase();
    let mut meant: Vec<_> = OPTIONS
        .iter()
        .filter(|option| option.elsewhere.split(' ').any(|other| other == plain))
        .collect();
    if meant.is_empty() {
        let close = nearest(name, OPTIONS.iter().map(|option| option.name));
        meant.extend(OPTIONS.iter().find(|option| Some(option.name) == close));
    }
    meant
}

/// Returns the closest candidate, if there is one whose distance from `name` is at most a third of its length (or one
/// edit for short names).
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|(edits, _)| *edits <= limit)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Returns `; did you mean ...?`, or nothing if no name is close.
pub(crate) fn hint<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(name, candidates) {
        Some(close) => format!("; did you mean `{close}`?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{meant, nearest};
    use crate::options::OPTIONS;

    fn names_meant(name: &str) -> Vec<&'static str> {
        meant(name).iter().map(|option| option.name).collect()
    }

    #[test]
    fn the_name_in_another_library_finds_an_option() {
        for (name, expected) in [
            ("ttl", vec!["lease"]),
            ("leaseTime", vec!["lease"]),
            ("lease_ms", vec!["lease"]),
            ("lockAtMostFor", vec!["lease"]),
            ("lock_at_least_for", vec!["min_hold"]),
            ("waitTime", vec!["wait"]),
            ("timeout", vec!["wait", "lease"]),
            ("lockName", vec!["key"]),
            ("maxHold", vec!["max_hold"]),
            ("keepFor", vec!["keep_for"]),
            ("idle_timeout", vec!["keep_for"]),
            ("leese", vec!["lease"]),
            ("colour", vec![]),
        ] {
            assert_eq!(names_meant(name), expected, "{name}");
        }
    }

    #[test]
    fn every_name_from_elsewhere_can_be_found_and_is_none_of_ours() {
        for option in &OPTIONS {
            for other in option.elsewhere.split(' ') {
                assert!(names_meant(other).contains(&option.name), "{other}");
                assert!(OPTIONS.iter().all(|option| option.name != other), "{other}");
            }
        }
    }

    #[test]
    fn a_typo_finds_its_name_and_a_stranger_finds_none() {
        let names = ["order", "ledger", "id"];
        for (typo, expected) in [
            ("ordr", Some("order")),
            ("oredr", Some("order")),
            ("legder", Some("ledger")),
            ("ib", Some("id")),
            ("customer", None),
            ("xy", None),
        ] {
            assert_eq!(nearest(typo, names), expected, "{typo}");
        }
    }
}
