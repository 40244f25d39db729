//! Files, by serde: a field for each setting, in any format.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::LockConfig;

impl<'de> Deserialize<'de> for LockConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LockConfig, D::Error> {
        deserializer.deserialize_struct("LockConfig", LockConfig::NAMES, Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = LockConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the settings of a lock manager")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<LockConfig, A::Error> {
        let mut settings = LockConfig::default();
        let mut seen = Vec::new();
        while let Some(field) = fields.next_key::<String>()? {
            let Some(name) = LockConfig::NAMES.iter().find(|name| **name == field) else {
                return Err(A::Error::unknown_field(&field, LockConfig::NAMES));
            };
            if seen.contains(name) {
                return Err(A::Error::duplicate_field(name));
            }
            seen.push(*name);
            if let Some(value) = fields.next_value::<Option<Written>>()? {
                let set = settings.set_checked(name, &value.into_text());
                set.map_err(|why| A::Error::custom(format_args!("`{name}`: {why}")))?;
            }
        }
        Ok(settings)
    }
}

/// A value as the file's format writes it.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a setting is a text, a whole number, a truth value or a list of texts"
)]
enum Written {
    Text(String),
    Truth(bool),
    Count(u64),
    Number(i64),
    Texts(Vec<String>),
}

impl Written {
    /// Returns the text that the environment would hold.
    fn into_text(self) -> String {
        match self {
            Written::Text(text) => text,
            Written::Truth(value) => value.to_string(),
            Written::Count(number) => number.to_string(),
            Written::Number(number) => number.to_string(),
            Written::Texts(texts) => texts.join(" "),
        }
    }
}
