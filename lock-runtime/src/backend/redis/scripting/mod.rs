//! Calls scripts by their hash, and by their text if the server does not know the hash.

use std::sync::OnceLock;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, InfoDict, RedisError, Value};

use crate::backend::Fault;
use crate::observe::metrics;
use crate::values::{ClusterChannels, StoreKind, rare};

pub(crate) mod exclusive;
pub(crate) mod faults;
pub(crate) mod grouped;
pub(crate) mod outcomes;
pub(crate) mod reply;
pub(crate) mod rights;
pub(crate) mod table;

pub(crate) use self::reply::{Items, expiry, text};
pub(crate) use self::table::{lua, renewal, script, source};

/// The text of a script and the hash that the server knows it by.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    /// The text in each [`Form`].
    forms: [OnceLock<ScriptText>; 4],
}

#[derive(Debug)]
struct ScriptText {
    text: String,
    hash: String,
}

/// The form of a script's text. It decides where the script publishes, and where it counts listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Classic,
    Sharded,
    Both,
    /// For a node that a slot of sharded channels is being moved to. Their listeners are still at the node that has the
    /// slot, so the reply tells the client to publish.
    Moving,
}

impl Form {
    /// Returns the fragments that are not the same in each form.
    fn fragments(self) -> [&'static str; 2] {
        match self {
            Form::Classic => [lua!("lib/", "publish"), lua!("lib/", "listeners")],
            Form::Sharded => [
                lua!("lib/sharded/", "publish"),
                lua!("lib/sharded/", "listeners"),
            ],
            Form::Both => [lua!("lib/both/", "publish"), lua!("lib/both/", "listeners")],
            Form::Moving => [
                lua!("lib/moving/", "publish"),
                lua!("lib/moving/", "listeners"),
            ],
        }
    }
}

impl Source {
    pub(crate) const fn new(name: &'static str, text: &'static str) -> Source {
        Source {
            name,
            text,
            forms: [const { OnceLock::new() }; 4],
        }
    }

    fn hash(&self, form: Form) -> &str {
        &self.in_form(form).hash
    }

    pub(crate) fn text(&self, form: Form) -> &str {
        &self.in_form(form).text
    }

    fn in_form(&self, form: Form) -> &ScriptText {
        self.forms[form as usize].get_or_init(|| {
            let mut text = self.text.to_owned();
            if form != Form::Classic {
                let pairs = Form::Classic.fragments().into_iter().zip(form.fragments());
                for (classic, other) in pairs {
                    text = text.replace(classic, other);
                }
            }
            let hash = sha1_smol::Sha1::from(&text).digest().to_string();
            ScriptText { text, hash }
        })
    }
}

/// One call of one script.
pub(crate) trait Script {
    type Reply;

    fn source() -> &'static Source;

    /// Returns how many of the arguments that [`write`](Script::write) appends are keys.
    fn keys(&self) -> usize;

    /// Appends the keys, then the arguments.
    fn write(&self, command: &mut Cmd);

    /// Parses the reply, unless it is [`foreign`](reply::foreign); `None` if it is malformed.
    fn read(&self, reply: Value) -> Option<Result<Self::Reply, Fault>>;

    /// `KEYS` and `ARGV` as the script's header names them.
    #[cfg(test)]
    fn shape() -> [String; 2];
}

/// Lists the names, with a `?` after each field whose type is an option.
#[cfg(test)]
pub(crate) fn shape_of(fields: &[(&str, &str)]) -> String {
    let names = fields.iter().map(|(name, type_of)| {
        let optional = if type_of.starts_with("Option") {
            "?"
        } else {
            ""
        };
        format!("{name}{optional}")
    });
    names.collect::<Vec<_>>().join(", ")
}

/// The manner in which scripts are sent on one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) channels: ClusterChannels,
    /// Whether ASKING precedes each script.
    pub(crate) asking: bool,
    /// Whether a script is sent only once. If the server does not know it, the script is loaded, but not sent again:
    /// requests that must come after it may already have been sent. The reason of a refusal is not looked up either.
    pub(crate) once: bool,
}

impl Manner {
    /// The manner for a single server.
    pub(crate) const PLAIN: Manner = Manner {
        channels: ClusterChannels::Classic,
        asking: false,
        once: false,
    };

    fn form(&self) -> Form {
        match self.channels {
            ClusterChannels::Classic => Form::Classic,
            _ if self.asking => Form::Moving,
            ClusterChannels::Sharded => Form::Sharded,
            ClusterChannels::Both => Form::Both,
        }
    }
}

/// Runs a script on one connection, without a timeout of its own. A refusal names the missing rights.
pub(crate) async fn run<S: Script>(
    connection: &mut MultiplexedConnection,
    script: &S,
    manner: Manner,
) -> Result<S::Reply, Fault> {
    match call(connection, script, manner).await {
        Err(Fault::Denied(why)) if !manner.once => {
            let explained = rare(rights::explained(connection, script, manner, why));
            Err(Fault::Denied(explained.await))
        }
        answer => answer,
    }
}

/// Runs a script on one connection, without a timeout and without an explanation of a refusal.
///
/// Sends EVALSHA. If the server does not know the script, loads it and sends EVALSHA again. If loading is refused, or if a
/// proxy has loaded the script on another server, sends EVAL. Each of these is sent only after the one before it was
/// answered, so there is never a second copy under way.
async fn call<S: Script>(
    connection: &mut MultiplexedConnection,
    script: &S,
    manner: Manner,
) -> Result<S::Reply, Fault> {
    let source = S::source();
    let form = manner.form();
    let by_hash = source.hash(form);
    let mut answer = ask(connection, &command(script, "EVALSHA", by_hash), manner).await;
    if answer.as_ref().is_err_and(faults::is_noscript) {
        let text = source.text(form);
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(text).take();
        answer = match send(connection, &load).await {
            Ok(_) if manner.once => answer,
            Ok(_) => match ask(connection, &command(script, "EVALSHA", by_hash), manner).await {
                Err(error) if faults::is_noscript(&error) => {
                    ask(connection, &command(script, "EVAL", text), manner).await
                }
                answer => answer,
            },
            Err(refused) if manner.once => Err(refused),
            Err(refused) if faults::is_from_server(&refused) => {
                let whole = ask(connection, &command(script, "EVAL", text), manner).await;
                // One of the two rights is enough. The error names the right that the documentation tells users to
                // allow.
                whole.map_err(|error| {
                    if faults::is_no_right(&error) {
                        refused
                    } else {
                        error
                    }
                })
            }
            Err(error) => Err(error),
        };
    }
    metrics::called(
        StoreKind::Redis,
        source.name,
        answer
            .as_ref()
            .map_or_else(faults::is_from_server, |_| true),
    );
    match answer {
        Ok(reply) => match reply::foreign(&reply) {
            Some(fault) => Err(fault),
            None => script
                .read(reply)
                .unwrap_or_else(|| Err(faults::malformed(source.name))),
        },
        Err(error) => Err(faults::of_call(&error)),
    }
}

async fn ask(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
    manner: Manner,
) -> Result<Value, RedisError> {
    if manner.asking {
        return rare(send_asking(connection, command)).await;
    }
    send(connection, command).await
}

/// Sends ASKING and the command in one message to the connection's task, because ASKING counts for the next command
/// only, whichever task sends it.
async fn send_asking(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<Value, RedisError> {
    let mut pipeline = redis::Pipeline::with_capacity(2);
    pipeline.cmd("ASKING").add_command(command.clone());
    let mut replies = connection.send_packed_commands(&pipeline, 0, 2).await?;
    match (replies.pop(), replies.pop()) {
        // Without ASKING, the node does not serve the slot. So the refusal of ASKING is the cause, and not the script's
        // error.
        (Some(Value::ServerError(_)), Some(Value::ServerError(refused))) => Err(refused.into()),
        (Some(Value::ServerError(error)), _) => Err(error.into()),
        (Some(reply), Some(_)) => Ok(reply),
        _ => Err((redis::ErrorKind::Client, "a pipeline lacks a reply").into()),
    }
}

pub(crate) async fn send(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<Value, RedisError> {
    match connection.send_packed_command(command).await? {
        Value::ServerError(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

/// Waits for the answer to a request that changes nothing, at most for `timeout`.
pub(crate) async fn in_time<T>(
    what: &str,
    timeout: Duration,
    asked: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let late = |_| Fault::not_done(format!("no answer to {what} within {timeout:?}"));
    tokio::time::timeout(timeout, asked).await.map_err(late)?
}

/// Returns the text of one field of the answer to HELLO.
pub(crate) fn hello_field<'a>(hello: &'a Value, field: &str) -> Option<&'a [u8]> {
    let is_it = |name: &Value| matches!(name, Value::BulkString(name) if name == field.as_bytes());
    let Value::Map(fields) = hello else {
        return None;
    };
    match fields.iter().find(|(name, _)| is_it(name)) {
        Some((_, Value::BulkString(text))) => Some(text),
        _ => None,
    }
}

/// Returns the server's answer to INFO for these sections.
pub(crate) async fn info(
    connection: &mut MultiplexedConnection,
    sections: &[&str],
) -> Result<InfoDict, Fault> {
    let info = redis::cmd("INFO").arg(sections).take();
    match send(connection, &info).await {
        Ok(Value::VerbatimString { text, .. }) => Ok(InfoDict::new(&text)),
        Ok(Value::BulkString(text)) => Ok(InfoDict::new(&String::from_utf8_lossy(&text))),
        Ok(_) => Err(faults::malformed("INFO")),
        Err(error) => Err(faults::of_call(&error)),
    }
}

fn command<S: Script>(script: &S, verb: &str, body: &str) -> Cmd {
    let keys = script.keys();
    // This has room for nearly every script with any number of keys, so that the buffer does not grow.
    let mut command = Cmd::with_capacity(12 + 4 * keys, 128 + 128 * keys);
    command.arg(verb).arg(body).arg(keys);
    script.write(&mut command);
    command
}
