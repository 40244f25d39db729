//! The script that draws a range of ids from a source.

use crate::backend::Fault;
use crate::backend::redis::scripting::{Items, Script, Source, lua, script, source};
use crate::values::{IdRange, IdSecret};

script! {
    "draw_ids", ["digits", "range", "refusal", "last_id"]
    struct DrawIds<'a> {
        keys { source: &'a str }
        args {
            count: u32,
            /// The secret for a source of shuffled ids. It becomes the source's secret if this script makes the source.
            secret: Option<String>
        }
    }
    |this, mut items| -> Drawn {
        match items.text()?.as_str() {
            "OK" => {
                let (seconds, low) = (items.digits()?, items.digits()?);
                let secret = match items.text()?.as_str() {
                    "" => None,
                    secret => Some(IdSecret::parse(secret)?),
                };
                let is_id = seconds < 1 << 31 && low < 1 << 32;
                let first = is_id.then_some((seconds << 32 | low).cast_signed())?;
                let range = IdRange::new(first, this.count, secret)?;
                items.end(Ok(Drawn::Range(range)))
            }
            "EARLY" => items.end(Ok(Drawn::NotYet)),
            "OTHERWISE" => {
                let is_shuffled = items.flag()?;
                items.end(Ok(Drawn::Otherwise { is_shuffled }))
            }
            "CLOCK" => items.end(Err(Fault::no_ids_at_this_time())),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Drawn {
    Range(IdRange),
    /// The block of the next ids has not begun yet.
    NotYet,
    /// The source has shuffled ids and the caller wants plain ones, or the reverse.
    Otherwise {
        is_shuffled: bool,
    },
}
