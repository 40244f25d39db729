//! The options of a URL of any store.

use std::borrow::Cow;

use crate::values::{LockError, config};

/// The options that no code has taken yet, and the options that the store takes.
pub(crate) struct UrlOptions<'a> {
    left: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    known: Vec<String>,
}

impl<'a> UrlOptions<'a> {
    pub(crate) fn new(left: Vec<(Cow<'a, str>, Cow<'a, str>)>) -> UrlOptions<'a> {
        let known = Vec::new();
        UrlOptions { left, known }
    }

    /// Splits `name=value&…` without decoding it.
    pub(crate) fn as_written(query: &'a str) -> UrlOptions<'a> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        UrlOptions::new(
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }

    /// Takes the option of that name. The last option of a name counts.
    pub(crate) fn take(&mut self, name: &str) -> Option<Cow<'a, str>> {
        self.known.push(format!("`{name}`"));
        let given = self.left.extract_if(.., |(given, _)| given == name);
        given.last().map(|(_, value)| value)
    }

    /// Takes an option that is `on` or `off`.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`] for any other value.
    pub(crate) fn take_switch(&mut self, name: &str) -> Result<Option<bool>, LockError> {
        match self.take(name).as_deref() {
            None => Ok(None),
            Some("on") => Ok(Some(true)),
            Some("off") => Ok(Some(false)),
            Some(_) => Err(config(format!("`{name}` is `on` or `off`"))),
        }
    }

    /// Takes all options whose names are among these words. `what` names the options in errors.
    pub(crate) fn take_all(
        &mut self,
        names: &str,
        what: &str,
    ) -> Vec<(Cow<'a, str>, Cow<'a, str>)> {
        self.known.push(what.to_owned());
        let is_known = |name: &str| names.split_whitespace().any(|known| known == name);
        let given = self.left.extract_if(.., |(name, _)| is_known(name));
        given.collect()
    }

    /// Returns `true` if there is an option of that name that was not taken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.left.iter().any(|(given, _)| given == name)
    }

    /// Refuses options that were not taken.
    ///
    /// # Errors
    /// [`LockError::InvalidConfig`].
    pub(crate) fn finish(self) -> Result<(), LockError> {
        let Some((name, _)) = self.left.first() else {
            return Ok(());
        };
        // Only a plain word is shown: anything else may be a part of a password.
        let is_word = |byte: u8| byte.is_ascii_lowercase() || b"_-".contains(&byte);
        let what = if !name.is_empty() && name.bytes().all(is_word) {
            format!("an unknown option, `{name}`")
        } else {
            "an unknown option, or a `?` or `&` in a password that is not percent-encoded"
                .to_owned()
        };
        let known = match &*self.known {
            [] => "none".to_owned(),
            [one] => one.clone(),
            [others @ .., last] => format!("{} and {last}", others.join(", ")),
        };
        Err(config(format!(
            "the URL has {what}; options there are: {known}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(query: &str, known: &[&str]) -> String {
        let pairs = query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let pairs = pairs.map(|(name, value)| (name.into(), value.into()));
        let mut options = UrlOptions::new(pairs.collect());
        for name in known {
            options.take(name);
        }
        options.finish().unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_option_is_refused_with_the_known_options() {
        let said = refusal("a=1&look_table=x&c=2", &["a", "b", "c"]);
        let end =
            "the URL has an unknown option, `look_table`; options there are: `a`, `b` and `c`";
        assert!(said.ends_with(end), "{said}");
        let said = refusal("look_table=x", &[]);
        assert!(said.ends_with("there are: none"), "{said}");
    }

    #[test]
    fn a_possible_part_of_a_password_is_not_shown() {
        for query in ["hunter2", "hunter2=1", "%73slmode=require", "=hunter2"] {
            let said = refusal(query, &["a"]);
            assert!(said.contains("percent-encoded"), "{query}: {said}");
            assert!(
                !said.contains("hunter2") && !said.contains("slmode"),
                "{query}: {said}"
            );
        }
    }

    #[test]
    fn the_last_option_of_a_name_counts() {
        let pairs = [("a", "1"), ("b", "2"), ("a", "3")];
        let pairs = pairs.map(|(name, value)| (name.into(), value.into()));
        let mut options = UrlOptions::new(pairs.to_vec());
        assert_eq!(options.take("a").as_deref(), Some("3"));
        assert_eq!(options.take("b").as_deref(), Some("2"));
        assert!(options.take("a").is_none() && options.finish().is_ok());
    }
}
