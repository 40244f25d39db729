//! Turns an error of the client or the server into a [`Fault`], which says whether the request may have been executed,
//! and whether a retry can help.

use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};

use crate::backend::Fault;
use crate::values::StoreError;

/// Returns the fault of a request that was handed to the connection.
pub(crate) fn of_call(error: &RedisError) -> Fault {
    if let Some(code) = server_code(error) {
        let detail = error.detail().unwrap_or_default();
        return of_reply(code, detail);
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => Fault::Denied(StoreError::shortened(&error.to_string())),
        // A malformed reply does not show what the server did.
        _ => Fault::Unknown(StoreError::shortened(&error.to_string())),
    }
}

/// Returns the fault for an error reply, given its code and the rest of its text.
///
/// A server error is a definite no-op, because the scripts check everything before their first write. There are two
/// exceptions. In a slot that leaves its node, reading a key that the script has just deleted, or that has already left,
/// is an error. And a proxy answers with an error of its own when it has lost its server, which may have done the request.
pub(crate) fn of_reply(code: &str, detail: &str) -> Fault {
    let mut text = format!("{code} {}", without_arguments(detail));
    if let Some(command) = not_allowed(detail) {
        text = format!("{text}; missing rights: +{command}");
    }
    let source = StoreError::shortened(&text);
    let has_left = code == "ERR" && detail.contains("attempted to access a non local key");
    if has_left || is_of_a_proxy(code, detail) {
        return Fault::Unknown(source);
    }
    let denied = match code {
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => true,
        "ERR" => [
            // The client drops the code of the error that refuses SELECT.
            "has no permissions to",
            // The texts of Redis 7.0, then those of 7.2 and later and its forks.
            "The user executing the script",
            "ACL failure in script",
            "unknown command",
            "Error compiling script",
            "invalid password",
            "Client sent AUTH, but no password is set",
        ]
        .iter()
        .any(|text| detail.contains(text)),
        _ => false,
    };
    if denied {
        Fault::Denied(source)
    } else {
        Fault::NotDone(source)
    }
}

/// Returns `true` if the error may be that of a proxy. The codes of a server are in capitals: Envoy's `upstream failure`
/// has none, and twemproxy's `ERR Connection timed out` has that of a server.
fn is_of_a_proxy(code: &str, detail: &str) -> bool {
    const LOST: [&str; 4] = [
        "timed out",
        "upstream",
        "onnection reset",
        "onnection closed",
    ];
    let is_code = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    !code.bytes().all(is_code) || code == "ERR" && LOST.iter().any(|text| detail.contains(text))
}

/// Returns the fault of an error text inside a reply that is not an error itself.
pub(crate) fn of_text(text: &str) -> Fault {
    let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
    of_reply(code, detail)
}

/// Returns `true` if the server says that it is not a master, or not any more.
pub(crate) fn is_demotion(fault: &Fault) -> bool {
    let Fault::NotDone(source) = fault else {
        return false;
    };
    let text = source.to_string();
    text.starts_with("READONLY") || text.starts_with("MASTERDOWN")
}

/// Returns `true` if a node of a cluster says that another one has the key. A replica says that of all keys.
pub(crate) fn is_moved(fault: &Fault) -> bool {
    matches!(fault, Fault::NotDone(source) if source.to_string().starts_with("MOVED"))
}

/// Returns `true` if the server has no room for new keys. It renews and releases what is there.
pub(crate) fn is_full(fault: &Fault) -> bool {
    matches!(fault, Fault::NotDone(source) if source.to_string().starts_with("OOM"))
}

/// Returns `true` if the server accepts only scripts whose keys are in one slot.
pub(crate) fn is_of_several_slots(fault: &Fault) -> bool {
    matches!(fault, Fault::NotDone(source) if source.to_string().starts_with("CROSSSLOT"))
}

/// Returns `true` if a script may have been refused because of one of its keys, or for its size: without that key, or
/// as two scripts, it may succeed. A request that the server refuses to all users is not sent again in parts.
pub(crate) fn may_be_of_one_key(fault: &Fault) -> bool {
    const OF_ALL: [&str; 12] = [
        "LOADING",
        "MASTERDOWN",
        "NOREPLICAS",
        "CLUSTERDOWN",
        "TRYAGAIN",
        "MOVED",
        "ASK",
        "BUSY",
        "READONLY",
        "OOM",
        "MISCONF",
        "NOSCRIPT",
    ];
    match fault {
        Fault::Foreign { .. } => true,
        Fault::Denied(_) => fault.is_about_a_key(),
        Fault::NotDone(source) => {
            let text = source.to_string();
            let code = text.split(' ').next().unwrap_or_default();
            // A fault that is not from the server has no code.
            let is_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase());
            is_code && !OF_ALL.contains(&code)
        }
        _ => false,
    }
}

/// Returns the fault of a reply that no script of ours gives.
pub(crate) fn malformed(script: &str) -> Fault {
    Fault::unknown(format!("the server gave a malformed reply to `{script}`"))
}

pub(crate) fn is_noscript(error: &RedisError) -> bool {
    server_code(error) == Some("NOSCRIPT")
}

/// Returns `true` if the user may not send the command. A command that a script may not call is another error.
pub(crate) fn is_no_right(error: &RedisError) -> bool {
    server_code(error) == Some("NOPERM")
}

/// Returns `true` if the server answered, and with an error.
pub(crate) fn is_from_server(error: &RedisError) -> bool {
    server_code(error).is_some()
}

fn server_code(error: &RedisError) -> Option<&str> {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => error.code(),
        _ => None,
    }
}

/// Returns the kind of I/O error that ended the connection. rustls reports a bad certificate as invalid data. The
/// client passes the cause on directly or inside an `Arc`.
pub(crate) fn io_kind(error: &RedisError) -> Option<io::ErrorKind> {
    let source = error.source()?;
    let shared = source.downcast_ref::<Arc<dyn Error + Send + Sync>>();
    let cause = match shared {
        Some(shared) => shared.downcast_ref::<io::Error>(),
        None => source.downcast_ref::<io::Error>(),
    };
    Some(cause?.kind())
}

/// Returns the command that a user may not send, in the form of a right. `rights.rs` finds the rights that a script
/// lacks.
fn not_allowed(detail: &str) -> Option<String> {
    let (_, rest) = detail.split_once("has no permissions to run the '")?;
    let (command, _) = rest.split_once('\'')?;
    Some(command.to_ascii_lowercase())
}

/// Removes the arguments of a refused command, which the server repeats. Ours have the holder's id.
fn without_arguments(detail: &str) -> &str {
    detail
        .find(", with args beginning with")
        .map_or(detail, |end| &detail[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::error::LONGEST;

    fn server(code: &str, detail: &str) -> RedisError {
        redis::make_extension_error(code.to_owned(), Some(detail.to_owned()))
    }

    #[test]
    fn passing_server_errors_are_definite_no_ops() {
        for code in [
            "LOADING",
            "MASTERDOWN",
            "NOREPLICAS",
            "CLUSTERDOWN",
            "TRYAGAIN",
            "MOVED",
            "ASK",
            "BUSY",
            "READONLY",
            "OOM",
            "MISCONF",
        ] {
            let fault = of_call(&server(code, "something"));
            assert!(matches!(&fault, Fault::NotDone(text) if text.to_string().contains(code)));
        }
        assert!(matches!(
            of_text("ERR max number of clients reached"),
            Fault::NotDone(_)
        ));
    }

    #[test]
    fn what_a_proxy_says_of_a_server_that_it_has_lost_is_no_answer() {
        for text in [
            "upstream failure",
            "no upstream host",
            "ERR Connection timed out",
            "ERR Connection reset by peer",
        ] {
            assert!(matches!(of_text(text), Fault::Unknown(_)), "{text}");
        }
    }

    #[test]
    fn a_refusal_of_one_key_differs_from_one_of_all_keys() {
        for text in [
            "CROSSSLOT Keys in request don't hash to the same slot",
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "NOPERM No permissions to access a key",
            "ERR Protocol error: too big bulk count string",
        ] {
            assert!(may_be_of_one_key(&of_text(text)), "{text}");
        }
        for text in [
            "READONLY You can't write against a read only replica.",
            "NOREPLICAS Not enough good replicas to write.",
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "WRONGPASS invalid username-password pair or user is disabled.",
        ] {
            assert!(!may_be_of_one_key(&of_text(text)), "{text}");
        }
        assert!(!may_be_of_one_key(&Fault::not_done(
            "not connected in time"
        )));
        assert!(!may_be_of_one_key(&Fault::unknown("ERR whatever")));
    }

    #[test]
    fn logins_and_rights_are_refused_for_good() {
        for text in [
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "ERR this user has no permissions to run the 'select' command",
            "DENIED Redis is running in protected mode because protected mode is enabled",
            "ERR The user executing the script can't run this command or subcommand script: 1f",
            "ERR ACL failure in script: User app has no permissions to run the 'hset' command",
            "ERR unknown command 'EVALSHA', with args beginning with: 'abc' ",
        ] {
            assert!(matches!(of_text(text), Fault::Denied(_)), "{text}");
        }
    }

    #[test]
    fn a_command_that_a_user_may_not_send_is_named_as_a_right() {
        for text in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "NOPERM User app has no permissions to run the 'evalsha' command or its subcommand",
        ] {
            let said = of_text(text).to_string();
            assert!(said.ends_with("; missing rights: +evalsha"), "{said}");
        }
        let key = "NOPERM this user has no permissions to access one of the keys used as arguments";
        assert_eq!(of_text(key).to_string(), key);
    }

    #[test]
    fn a_cut_connection_is_unknown_unless_the_request_only_asked() {
        for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::InvalidData] {
            let fault = of_call(&RedisError::from(io::Error::from(kind)));
            assert!(matches!(&fault, Fault::Unknown(_)), "{fault}");
            let fault = fault.of_a_question();
            assert!(matches!(&fault, Fault::NotDone(_)), "{fault}");
        }
        let parse = RedisError::from((ErrorKind::Parse, "garbage"));
        assert!(matches!(of_call(&parse), Fault::Unknown(_)));
    }

    #[test]
    fn error_texts_are_short_and_hold_no_arguments() {
        let fault = of_text("ERR unknown command 'x', with args beginning with: 'secret-holder' ");
        assert!(!format!("{fault:?}").contains("secret-holder"));
        let Fault::NotDone(long) = of_text(&"ERR x\r\n".repeat(10_000)) else {
            panic!()
        };
        assert!(long.to_string().len() <= LONGEST);
    }
}
