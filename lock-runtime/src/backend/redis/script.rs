//! How a script is called: by its hash, and by its text where the server does not know it.

use std::sync::OnceLock;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use super::faults;
use crate::backend::Fault;

/// The text of a script and the hash that the server knows it by.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    hash: OnceLock<String>,
}

impl Source {
    pub(super) const fn new(name: &'static str, text: &'static str) -> Source {
        Source {
            name,
            text,
            hash: OnceLock::new(),
        }
    }

    fn hash(&self) -> &str {
        self.hash
            .get_or_init(|| sha1_smol::Sha1::from(self.text).digest().to_string())
    }
}

/// The [`Source`] of `lua/NAME.lua` with the fragments of `lua/lib` that it uses before it, joined at compile time.
///
/// The flags must be on the very first line of the whole, so they are named here, too; a test compares both with the
/// script's header.
macro_rules! source {
    ($name:literal, [$($fragment:literal),*]) => {
        source!(@join "#!lua\n", $name, [$($fragment),*])
    };
    ($name:literal, $flags:literal, [$($fragment:literal),*]) => {
        source!(@join concat!("#!lua flags=", $flags, "\n"), $name, [$($fragment),*])
    };
    (@join $first:expr, $name:literal, [$($fragment:literal),*]) => {{
        static SOURCE: Source = Source::new(
            $name,
            concat!(
                $first,
                $(include_str!(concat!("lua/lib/", $fragment, ".lua")),)*
                include_str!(concat!("lua/", $name, ".lua")),
            ),
        );
        &SOURCE
    }};
}
pub(super) use source;

/// One call of one script.
pub(super) trait Script {
    type Reply;

    /// `KEYS` and `ARGV` as the script's header names them.
    #[cfg(test)]
    const SHAPE: [&'static str; 2];

    fn source() -> &'static Source;

    /// How many of what [`write`](Script::write) appends are keys.
    fn keys(&self) -> usize;

    /// Appends the keys, then the arguments.
    fn write(&self, command: &mut Cmd);

    /// `None` if the reply is malformed.
    fn read(&self, reply: Value) -> Option<Result<Self::Reply, Fault>>;
}

/// Runs a script on one connection. Has no timeout of its own.
///
/// EVALSHA; where the server does not know the script, load it and try again; where loading is refused, EVAL.
/// Each of these is sent only after the one before was answered, so there is never a second copy under way.
pub(super) async fn run<S: Script>(
    connection: &mut MultiplexedConnection,
    script: &S,
) -> Result<S::Reply, Fault> {
    let source = S::source();
    let mut answer = send(connection, &command(script, "EVALSHA", source.hash())).await;
    if answer.as_ref().is_err_and(faults::is_noscript) {
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(source.text).take();
        answer = match send(connection, &load).await {
            Ok(_) => send(connection, &command(script, "EVALSHA", source.hash())).await,
            Err(error) if faults::is_from_server(&error) => {
                send(connection, &command(script, "EVAL", source.text)).await
            }
            Err(error) => Err(error),
        };
    }
    match answer {
        Ok(reply) => script
            .read(reply)
            .unwrap_or_else(|| Err(faults::malformed(source.name))),
        Err(error) => Err(faults::of_call(&error)),
    }
}

pub(super) async fn send(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<Value, RedisError> {
    match connection.send_packed_command(command).await? {
        Value::ServerError(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

fn command<S: Script>(script: &S, verb: &str, body: &str) -> Cmd {
    let mut command = Cmd::with_capacity(16, 256);
    command.arg(verb).arg(body).arg(script.keys());
    script.write(&mut command);
    command
}
