//! Explains why a connection could not be opened: whether a retry can help, and what to do about it.

use std::io;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError};

use crate::backend::Fault;
use crate::backend::kit::tls_refusal;
use crate::backend::redis::scripting::faults::{io_kind, of_call};
use crate::values::{Moment, StoreError};

/// The facts about an attempt to connect that its errors depend on.
#[derive(Clone, Copy)]
pub(super) struct DialAttempt<'a> {
    pub(super) server: &'a ConnectionInfo,
    pub(super) part: ServerPart,
    /// The time that the attempt may take.
    pub(super) within: Duration,
    pub(super) until: Moment,
}

/// The role of a server in the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerPart {
    /// The URL names it as a single server.
    Server,
    /// The sentinels name it as a master.
    NamedMaster,
    Sentinel,
    Node,
}

impl ServerPart {
    /// Returns advice for a server that may speak TLS, after an attempt without TLS.
    fn by_tls(self) -> &'static str {
        match self {
            ServerPart::Server => "If it is a TLS port, use `rediss://`",
            ServerPart::NamedMaster => {
                "If it is a TLS port, use `rediss-sentinel://`, with `?sentinel_tls=off` if the sentinels speak none"
            }
            ServerPart::Sentinel => {
                "If the sentinels speak TLS, use `rediss-sentinel://`, or `?sentinel_tls=on` if the servers speak none"
            }
            ServerPart::Node => "If it is a TLS port, use `rediss-cluster://`",
        }
    }

    /// Returns advice for a server that may not speak TLS, after an attempt with TLS.
    fn plainly(self) -> &'static str {
        match self {
            ServerPart::Server => "If it is not a TLS port, use `redis://`",
            ServerPart::NamedMaster => {
                "If it is not a TLS port, use `redis-sentinel://`, with `?sentinel_tls=on` if the sentinels speak TLS"
            }
            ServerPart::Sentinel => {
                "If the sentinels speak no TLS, use `redis-sentinel://`, or `?sentinel_tls=off` if the servers speak TLS"
            }
            ServerPart::Node => "If it is not a TLS port, use `redis-cluster://`",
        }
    }

    /// Returns advice about a certificate for other names, if the host was announced by a sentinel or a node.
    fn announced(self) -> Option<&'static str> {
        match self {
            ServerPart::Server | ServerPart::Sentinel => None,
            ServerPart::NamedMaster => Some(
                "the certificate has to name the host that the sentinels announce, as a subject alternative name. Let them \
                 announce names: `resolve-hostnames yes`, `announce-hostnames yes`",
            ),
            ServerPart::Node => Some(
                "the certificate has to name the host of the URL and that which the node announces, as subject \
                 alternative names. Let nodes announce names: `cluster-announce-hostname`, with \
                 `cluster-preferred-endpoint-type hostname`",
            ),
        }
    }
}

/// The steps of an attempt. Each waits for another answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DialStep {
    Connect,
    #[cfg(feature = "tls-rustls")]
    Tls,
    Greeting,
}

impl DialAttempt<'_> {
    /// Runs a step, until the end of the attempt at most.
    pub(super) async fn step<T, E: Into<RedisError>>(
        self,
        step: DialStep,
        making: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Fault> {
        match tokio::time::timeout(self.until.remaining(), making).await {
            Ok(made) => made.map_err(|error| self.fault(&error.into())),
            Err(_) => Err(self.silent(step)),
        }
    }

    /// Returns the fault of a failed step. No request has been sent.
    fn fault(self, error: &RedisError) -> Fault {
        // As managed servers answer where RESP3 is switched off, and as Envoy does.
        let refuses_hello = matches!(error.code(), Some("NOPROTO" | "unsupported"));
        match error.kind() {
            kind if kind == ErrorKind::RESP3NotSupported || refuses_hello => Fault::denied(
                "the server does not speak RESP3: Redis 7.0 or later is needed, and no proxy that leaves out HELLO",
            ),
            ErrorKind::Parse => Fault::Impossible(format!(
                "what answers there does not speak Redis's protocol: it may be an HTTP server, or another service. \
                 Check host and port. {}",
                self.part.by_tls()
            )),
            ErrorKind::Io => self.of_io(error),
            _ => match of_call(error) {
                Fault::Unknown(source) => Fault::NotDone(source),
                Fault::NotDone(source) => self.passing(source),
                fault => refused(fault),
            },
        }
    }

    /// Finds the lasting refusals among the errors after which a retry usually helps.
    fn passing(self, said: StoreError) -> Fault {
        let text = said.to_string();
        let database = self.server.redis_settings().db();
        if text.contains("DB index is out of range") {
            return Fault::Impossible(format!(
                "the server has no database {database}: it has fewer. Name a lower one, or raise `databases` in the \
                 server's configuration"
            ));
        }
        if text.contains("SELECT is not allowed in cluster mode") {
            return Fault::Impossible(format!(
                "the server is a node of a Redis Cluster, which has no database {database}: use `redis-cluster://`, \
                 without a database"
            ));
        }
        if text.contains("max number of clients") {
            let more = "close connections, or raise `maxclients` in the server's configuration";
            return Fault::not_done(format!("{said}: {more}"));
        }
        Fault::NotDone(said)
    }

    fn of_io(self, error: &RedisError) -> Fault {
        let text = error.to_string();
        let advised =
            |advice: &str| StoreError::new(format!("{}: {advice}", StoreError::shortened(&text)));
        let is_socket = matches!(self.server.addr(), ConnectionAddr::Unix(_));
        let is_tls = matches!(self.server.addr(), ConnectionAddr::TcpTls { .. });
        match io_kind(error) {
            Some(io::ErrorKind::ConnectionRefused) => {
                Fault::NotDone(advised(match self.server.addr() {
                    ConnectionAddr::Unix(_) => {
                        "no server listens at that socket. Check its path, and that the server runs"
                    }
                    _ => "nothing listens there. Check host and port, and that the server runs",
                }))
            }
            Some(io::ErrorKind::NotFound) if is_socket => {
                Fault::NotDone(advised("check the socket's path, and that the server runs"))
            }
            Some(io::ErrorKind::PermissionDenied) => {
                Fault::Denied(advised(match self.server.addr() {
                    ConnectionAddr::Unix(_) => {
                        "this process needs the right to write to the socket"
                    }
                    _ => "this process may not connect there",
                }))
            }
            Some(io::ErrorKind::InvalidInput) => {
                Fault::Impossible(advised("check the address").to_string())
            }
            // rustls reports data that it refuses as invalid data.
            Some(io::ErrorKind::InvalidData) if is_tls => match self.part.announced() {
                Some(advice) if text.contains("not valid for name") => {
                    Fault::Denied(advised(advice))
                }
                _ => tls_refusal::explained(&text, self.part.plainly()),
            },
            Some(
                io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof,
            ) => Fault::NotDone(advised(&match self.server.addr() {
                ConnectionAddr::Unix(_) => "the connection was closed without an answer".to_owned(),
                ConnectionAddr::TcpTls { .. } => format!(
                    "the connection was closed without an answer. {}",
                    self.part.plainly()
                ),
                _ => format!(
                    "the connection was closed without an answer. {}. If a proxy that does not know HELLO is in \
                     between, connect to Redis directly",
                    self.part.by_tls()
                ),
            })),
            _ => Fault::NotDone(StoreError::shortened(&text)),
        }
    }

    /// Returns the fault of a step without an answer in time. The server may be slow, so a retry can help.
    fn silent(self, step: DialStep) -> Fault {
        let why = match (step, self.server.addr()) {
            (DialStep::Connect, ConnectionAddr::Unix(_)) => {
                "the server does not take the connection"
            }
            (DialStep::Connect, _) => {
                "nothing answers at the address. Check host and port, and that no firewall is in between"
            }
            #[cfg(feature = "tls-rustls")]
            (DialStep::Tls, _) => {
                &format!("the TLS handshake is not answered. {}", self.part.plainly())
            }
            (DialStep::Greeting, _) => {
                "the server takes the connection, and does not answer HELLO. It may be busy or frozen, or no Redis \
                 server. Check host and port"
            }
        };
        Fault::not_done(format!("no connection within {:?}: {why}", self.within))
    }
}

/// Adds advice to a server's lasting refusal during the opening of a connection.
pub(crate) fn refused(fault: Fault) -> Fault {
    let Fault::Denied(said) = fault else {
        return fault;
    };
    let text = said.to_string();
    let advised = |advice: &str| Fault::denied(format!("{text} {advice}"));
    match text.split(' ').next().unwrap_or_default() {
        "NOAUTH" => Fault::denied(
            "NOAUTH the server wants a password, and the URL gives it none: write `:password@` or `user:password@` before \
             the host (a name without a colon is a user and no password); for Sentinels, `?sentinel_pass=password`",
        ),
        "WRONGPASS" => {
            advised("Check user and password. In a URL, a `%` of the password is written `%25`")
        }
        "DENIED" => Fault::denied(
            "DENIED the server is in protected mode and serves its own machine only: set a password (`requirepass`, or \
             users), or `protected-mode no`",
        ),
        "ERR" if text.contains("unknown command") => Fault::Impossible(format!(
            "{text}: a Sentinel answers so (use `redis-sentinel://host:26379/service`), or a proxy that leaves \
             commands out (connect to Redis directly)"
        )),
        _ => Fault::Denied(said),
    }
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;
    use crate::backend::redis::connection::url::server_at;
    use crate::values::clock;

    fn fault(address: ConnectionAddr, part: ServerPart, kind: io::ErrorKind) -> Fault {
        let attempt = DialAttempt {
            server: &address.into_connection_info().unwrap(),
            part,
            within: Duration::ZERO,
            until: clock::now(),
        };
        attempt.fault(&RedisError::from(io::Error::from(kind)))
    }

    fn tcp() -> ConnectionAddr {
        server_at("host".to_owned(), 1, false)
    }

    fn tls() -> ConnectionAddr {
        server_at("host".to_owned(), 1, true)
    }

    #[test]
    fn cut_connections_pass_and_say_the_possible_cause() {
        for (address, named) in [(tcp(), "`rediss://`"), (tls(), "`redis://`")] {
            let cut = fault(address, ServerPart::Server, io::ErrorKind::BrokenPipe);
            assert!(matches!(&cut, Fault::NotDone(_)), "{cut}");
            assert!(cut.to_string().contains(named), "{cut}");
        }
    }

    #[test]
    fn a_server_or_proxy_that_refuses_hello_does_not_pass() {
        for said in [
            "NOPROTO sorry, this protocol version is not supported.",
            "unsupported command 'HELLO'",
            "ERR unknown command `HELLO`, with args beginning with: `3`, ",
        ] {
            let reply = redis::parse_redis_value(format!("-{said}\r\n").as_bytes());
            let error = reply.and_then(redis::Value::extract_error).unwrap_err();
            let attempt = DialAttempt {
                server: &tcp().into_connection_info().unwrap(),
                part: ServerPart::Server,
                within: Duration::ZERO,
                until: clock::now(),
            };
            let fault = attempt.fault(&error);
            assert!(!fault.is_passing(), "{said}: {fault}");
        }
    }

    #[test]
    fn the_advice_depends_on_the_role_of_the_server() {
        for (part, by_tls, plainly) in [
            (ServerPart::Server, "`rediss://`", "`redis://`"),
            (
                ServerPart::NamedMaster,
                "`rediss-sentinel://`, with `?sentinel_tls=off`",
                "`redis-sentinel://`, with `?sentinel_tls=on`",
            ),
            (
                ServerPart::Sentinel,
                "`?sentinel_tls=on`",
                "`?sentinel_tls=off`",
            ),
            (
                ServerPart::Node,
                "`rediss-cluster://`",
                "`redis-cluster://`",
            ),
        ] {
            for (address, named) in [(tcp(), by_tls), (tls(), plainly)] {
                let said = fault(address, part, io::ErrorKind::BrokenPipe).to_string();
                assert!(said.contains(named), "{said}");
            }
        }
    }

    #[test]
    fn a_socket_without_rights_and_a_bad_certificate_are_denied() {
        let denied = fault(
            ConnectionAddr::Unix("/s".into()),
            ServerPart::Server,
            io::ErrorKind::PermissionDenied,
        );
        assert!(matches!(&denied, Fault::Denied(_)), "{denied}");
        assert!(denied.to_string().contains("right to write"), "{denied}");
        let bad = fault(tls(), ServerPart::Server, io::ErrorKind::InvalidData);
        assert!(matches!(&bad, Fault::Denied(_)), "{bad}");
        let plain = fault(tcp(), ServerPart::Server, io::ErrorKind::InvalidData);
        assert!(matches!(&plain, Fault::NotDone(_)), "{plain}");
    }
}
