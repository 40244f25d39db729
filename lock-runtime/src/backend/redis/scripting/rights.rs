//! Finds the rights that a user lacks after a script was refused: a server does not name the key, and Redis 7.0 does
//! not even name the command.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use crate::backend::Fault;
use crate::backend::redis::scripting::{self, Items, Manner, Script, Source, lua, source};
use crate::values::StoreError;

/// The longest time for a question about rights, which may not take much of the caller's time.
pub(crate) const LONGEST: Duration = Duration::from_millis(500);

/// The commands of the scripts whose first argument is no key. A script checks TIME by itself, and can do without the others.
const KEYLESS: [&str; 3] = ["TIME", "PUBLISH", "PUBSUB"];

/// Returns the refusal, with the missing rights if the server shows them.
pub(super) async fn explained<S: Script>(
    connection: &mut MultiplexedConnection,
    refused: &S,
    manner: Manner,
    why: StoreError,
) -> StoreError {
    let rights = Rights::of_all(refused, &[], None);
    let asked = scripting::call(
        connection,
        &rights,
        Manner {
            asking: false,
            ..manner
        },
    );
    match tokio::time::timeout(LONGEST, asked).await {
        Ok(Ok(missing)) if !missing.is_empty() => {
            StoreError::new(format!("{why}; missing rights: {}", missing.join(" ")))
        }
        _ => why,
    }
}

pub(crate) struct Rights {
    keys: Vec<Vec<u8>>,
    commands: BTreeSet<&'static str>,
}

impl Rights {
    /// Returns the question about the rights of a script, and of `later` scripts with the same keys and this one.
    pub(crate) fn of_all<S: Script>(
        script: &S,
        later: &[&Source],
        key_of_later: Option<String>,
    ) -> Rights {
        let mut command = Cmd::new();
        script.write(&mut command);
        let keys = command.args_iter().take(script.keys());
        let keys = keys.filter_map(|key| match key {
            redis::Arg::Simple(key) => Some(key.to_vec()),
            _ => None,
        });
        let keys = keys.chain(key_of_later.map(String::into_bytes));
        let keys = keys.collect();
        let sources = std::iter::once(S::source()).chain(later.iter().copied());
        let after = |call: &'static str| {
            sources
                .clone()
                .flat_map(move |source| source.text.split(call).skip(1))
        };
        // `redis.call`, `redis.pcall`, and what shortcuts call them.
        let calls = after("call('").chain(after("try('"));
        let commands = calls.filter_map(|call| call.split('\'').next());
        let commands = commands
            .filter(|command| !KEYLESS.contains(command))
            .collect();
        Rights { keys, commands }
    }
}

impl Script for Rights {
    type Reply = Vec<String>;

    fn source() -> &'static Source {
        source!("rights", "no-writes", [])
    }

    fn keys(&self) -> usize {
        0
    }

    fn write(&self, command: &mut Cmd) {
        command
            .arg(self.keys.len())
            .arg(&self.keys)
            .arg(&self.commands);
    }

    fn read(&self, reply: Value) -> Option<Result<Vec<String>, Fault>> {
        let mut items = Items::of(reply)?;
        let mut missing = Vec::new();
        while let Some(right) = items.words() {
            missing.push(right);
        }
        items.end(Ok(missing))
    }

    #[cfg(test)]
    fn shape() -> [String; 2] {
        ["", "how_many_keys, key..., command..."].map(str::to_owned)
    }
}
