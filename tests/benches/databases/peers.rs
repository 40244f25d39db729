//! What is measured, behind one face.

use std::time::{Duration, SystemTime};

use lock_runtime::{LockManager, TryAcquire};
use tests::PostgresServer;
use tokio::sync::Mutex;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Row};

/// As many connections as this library has for requests by default.
const CONNECTIONS: usize = 8;

pub(crate) enum Peer {
    Ours {
        name: &'static str,
        locks: LockManager,
    },
    Bare {
        clients: Clients,
        acquire: String,
        release: String,
    },
    ShedLock {
        clients: Clients,
    },
    Advisory {
        clients: Clients,
    },
}

/// An argument and its type.
type Arg<'a> = (&'a (dyn ToSql + Sync), Type);

/// Connections that are lent to one task at a time.
pub(crate) struct Clients(Vec<Mutex<Client>>);

impl Clients {
    async fn open(server: &PostgresServer) -> Clients {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(Mutex::new(client(server).await));
        }
        Clients(clients)
    }

    /// What the statement of a task answers.
    async fn query(&self, task: usize, statement: &str, args: &[Arg<'_>]) -> Vec<Row> {
        let client = self.0[task % self.0.len()].lock().await;
        client.query_typed(statement, args).await.unwrap()
    }

    /// How many rows it changes.
    async fn change(&self, task: usize, statement: &str, args: &[Arg<'_>]) -> u64 {
        let client = self.0[task % self.0.len()].lock().await;
        client.execute_typed(statement, args).await.unwrap()
    }
}

/// A connection of its own.
pub(crate) async fn client(server: &PostgresServer) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

const SHED_LOCK_TABLE: &str = "CREATE TABLE IF NOT EXISTS shedlock (name varchar(64) PRIMARY KEY, \
    lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)";
const SHED_LOCK_INSERT: &str = "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) \
    SELECT 'k' || n, 'epoch', 'epoch', '' FROM generate_series(0, 99) AS n ON CONFLICT DO NOTHING";
const SHED_LOCK: &str = "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + interval '30 seconds', \
    locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = $2 \
    WHERE name = $1 AND lock_until <= timezone('utc', CURRENT_TIMESTAMP)";
const SHED_UNLOCK: &str = "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) WHERE name = $1 AND locked_by = $2";

impl Peer {
    pub(crate) async fn ours(server: &PostgresServer) -> Peer {
        let builder = LockManager::builder().ensure_schema(true);
        let locks = builder.connect(&server.url()).await.unwrap();
        Peer::Ours {
            name: "lock-runtime",
            locks,
        }
    }

    pub(crate) async fn on_redis(url: &str) -> Peer {
        let locks = LockManager::connect(url).await.unwrap();
        Peer::Ours {
            name: "lock-runtime on Redis",
            locks,
        }
    }

    /// After `ours`, which makes the table. It has a row for each key then.
    pub(crate) async fn bare(server: &PostgresServer) -> Peer {
        for n in 0..100 {
            let row = format!(
                "INSERT INTO lock_leases (name, kind, expires_at) VALUES ('bare:k{n}', 'exclusive', 'epoch')"
            );
            server.query(&row);
        }
        Peer::Bare {
            clients: Clients::open(server).await,
            acquire: own(include_str!(
                "../../../lock-runtime/src/backend/postgres/sql/acquire.sql"
            )),
            release: own(include_str!(
                "../../../lock-runtime/src/backend/postgres/sql/release.sql"
            )),
        }
    }

    pub(crate) async fn shed_lock(server: &PostgresServer) -> Peer {
        server.query(SHED_LOCK_TABLE);
        server.query(SHED_LOCK_INSERT);
        Peer::ShedLock {
            clients: Clients::open(server).await,
        }
    }

    pub(crate) async fn advisory(server: &PostgresServer) -> Peer {
        Peer::Advisory {
            clients: Clients::open(server).await,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Peer::Ours { name, .. } => name,
            Peer::Bare { .. } => "two bare statements",
            Peer::ShedLock { .. } => "ShedLock's statements",
            Peer::Advisory { .. } => "advisory lock",
        }
    }

    /// Takes a free lock and gives it back.
    pub(crate) async fn pair(&self, task: usize) {
        match self {
            Peer::Ours { locks, .. } => {
                let guard = locks.mutex(format!("k{task}")).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
            Peer::Bare {
                clients,
                acquire,
                release,
            } => {
                let (key, holder) = (
                    format!("bare:k{task}"),
                    format!("0b1f4dc06a3e4c0e9e574f9a4b1c7a11:{task}"),
                );
                let not_after = SystemTime::now() + Duration::from_secs(60);
                let taking: [Arg<'_>; 5] = [
                    (&key, Type::TEXT),
                    (&holder, Type::TEXT),
                    (&30_000_000_i64, Type::INT8),
                    (&not_after, Type::TIMESTAMPTZ),
                    (&0_i64, Type::INT8),
                ];
                let taken = clients.query(task, acquire, &taking).await;
                assert_eq!(taken.len(), 1);
                let giving: [Arg<'_>; 3] = [
                    (&key, Type::TEXT),
                    (&holder, Type::TEXT),
                    (&"topic", Type::TEXT),
                ];
                let given = clients.query(task, release, &giving).await;
                assert_eq!(given.len(), 1);
            }
            Peer::ShedLock { clients } => {
                let key = format!("k{task}");
                for statement in [SHED_LOCK, SHED_UNLOCK] {
                    let args: [Arg<'_>; 2] = [(&key, Type::TEXT), (&"host", Type::TEXT)];
                    let done = clients.change(task, statement, &args).await;
                    assert_eq!(done, 1);
                }
            }
            Peer::Advisory { clients } => {
                let key = i64::try_from(task).unwrap();
                for statement in [
                    "SELECT pg_try_advisory_lock($1)",
                    "SELECT pg_advisory_unlock($1)",
                ] {
                    let args: [Arg<'_>; 1] = [(&key, Type::INT8)];
                    let done = clients.query(task, statement, &args).await;
                    assert!(done[0].get::<_, bool>(0));
                }
            }
        }
    }

    /// Asks for a lock that somebody else holds; panics if it gets it. Key 0 is held.
    pub(crate) async fn busy(&self) {
        match self {
            Peer::Ours { locks, .. } => {
                let tried = locks.mutex("k0").try_acquire().await.unwrap();
                assert!(matches!(tried, TryAcquire::Busy { .. }));
            }
            Peer::Bare { .. } => panic!("its looks are the library's"),
            Peer::ShedLock { clients } => {
                let args: [Arg<'_>; 2] = [(&"k0", Type::TEXT), (&"other", Type::TEXT)];
                let done = clients.change(0, SHED_LOCK, &args).await;
                assert_eq!(done, 0);
            }
            Peer::Advisory { clients } => {
                let statement = "SELECT pg_try_advisory_lock($1)";
                let args: [Arg<'_>; 1] = [(&0_i64, Type::INT8)];
                let done = clients.query(0, statement, &args).await;
                assert!(!done[0].get::<_, bool>(0));
            }
        }
    }

    /// Takes key 0 for good.
    pub(crate) async fn hold(&self, holder: &Client) {
        match self {
            Peer::Ours { locks, .. } => {
                let guard = locks.mutex("k0").acquire().await.unwrap();
                std::mem::forget(guard);
            }
            Peer::Bare { .. } => {}
            Peer::ShedLock { clients } => {
                let args: [Arg<'_>; 2] = [(&"k0", Type::TEXT), (&"host", Type::TEXT)];
                clients.change(0, SHED_LOCK, &args).await;
            }
            Peer::Advisory { .. } => {
                holder
                    .query("SELECT pg_advisory_lock(0)", &[])
                    .await
                    .unwrap();
            }
        }
    }
}

/// One of the library's statements, as it fills it in.
fn own(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    text.replace("{micros}", "(extract(epoch FROM c.now) * 1000000)::bigint")
        .replace("{channel}", "lock_leases")
        .replace("{table}", "lock_leases")
}
