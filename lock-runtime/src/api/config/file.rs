//! Files, by serde: a field for each setting, in whichever format.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

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
            if let Text(Some(text)) = fields.next_value()? {
                let set = settings.set_checked(name, &text);
                set.map_err(|why| A::Error::custom(format_args!("`{name}`: {why}")))?;
            }
        }
        Ok(settings)
    }
}

/// A value as the environment would hold it; `None` if it says that there is none.
struct Text(Option<String>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        deserializer.deserialize_any(AnyText)
    }
}

struct AnyText;

impl<'de> Visitor<'de> for AnyText {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a whole number, a truth value or a list of texts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(Some(text.to_owned())))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Text, E> {
        Ok(Text(Some(value.to_string())))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Text, E> {
        Ok(Text(Some(value.to_string())))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Text, E> {
        Ok(Text(Some(value.to_string())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<Text, A::Error> {
        let mut all: Vec<String> = Vec::new();
        while let Some(text) = texts.next_element()? {
            all.push(text);
        }
        Ok(Text(Some(all.join(" "))))
    }

    fn visit_none<E: Error>(self) -> Result<Text, E> {
        Ok(Text(None))
    }

    fn visit_unit<E: Error>(self) -> Result<Text, E> {
        Ok(Text(None))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Text, D::Error> {
        Text::deserialize(deserializer)
    }
}
