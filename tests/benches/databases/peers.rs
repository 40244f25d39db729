//! The peers that are measured, behind one interface.

use lock_runtime::{LockManager, TryAcquire};
use tests::Server;

use crate::database::{Database, bare};
use crate::session::{Arg, Session, Sessions, Statement};

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    how: How,
}

enum How {
    Ours(LockManager),
    Theirs {
        sessions: Sessions,
        take: Statement,
        give: Statement,
    },
}

impl Peer {
    pub(crate) async fn ours<D: Database>(server: &Server<D>) -> Peer {
        let builder = LockManager::builder().ensure_schema(true);
        let locks = builder.connect(&server.url()).await.unwrap();
        let (name, how) = ("lock-runtime", How::Ours(locks));
        Peer { name, how }
    }

    pub(crate) async fn on_redis(url: &str) -> Peer {
        let locks = LockManager::connect(url).await.unwrap();
        let (name, how) = ("lock-runtime on Redis", How::Ours(locks));
        Peer { name, how }
    }

    /// Makes a peer of the bare statements, and a row for each key. `ours`, which makes the table, has to be called
    /// before.
    pub(crate) async fn bare<D: Database>(server: &Server<D>) -> Peer {
        let row = |n| format!("('bare:k{n}', 'exclusive', {})", D::LONG_AGO);
        let rows: Vec<String> = (0..100).map(row).collect();
        let rows = rows.join(", ");
        server.query(&format!(
            "INSERT INTO lock_leases (name, kind, expires_at) VALUES {rows}"
        ));
        let pair = bare::<D>();
        Self::theirs("two bare statements", server, pair).await
    }

    /// Does the same as `bare`, which has to be called before, without the words that limit the time of the first
    /// statement.
    pub(crate) async fn unlimited<D: Database>(server: &Server<D>, limit: &str) -> Peer {
        let [mut take, give] = bare::<D>();
        assert!(take.text.contains(limit), "{}", take.text);
        take.text = take.text.replace(limit, "");
        Self::theirs("without a limit of time", server, [take, give]).await
    }

    pub(crate) async fn shed_lock<D: Database>(server: &Server<D>) -> Peer {
        for rows in D::SHED_LOCK_ROWS {
            server.query(rows);
        }
        let pair = D::SHED_LOCK.map(|text| Statement {
            text: text.to_owned(),
            args: |task| {
                let key = format!("k{task}");
                vec![Arg::Text(key), Arg::Text("host".to_owned())]
            },
        });
        Self::theirs("ShedLock's statements", server, pair).await
    }

    pub(crate) async fn advisory<D: Database>(server: &Server<D>) -> Peer {
        let pair = D::ADVISORY.map(|text| Statement {
            text: text.to_owned(),
            args: |task| vec![Arg::Number(i64::try_from(task).unwrap())],
        });
        Self::theirs("advisory lock", server, pair).await
    }

    async fn theirs<D: Database>(
        name: &'static str,
        server: &Server<D>,
        [take, give]: [Statement; 2],
    ) -> Peer {
        let sessions = Sessions::open(server).await;
        let how = How::Theirs {
            sessions,
            take,
            give,
        };
        Peer { name, how }
    }

    /// Takes a free lock and gives it back.
    pub(crate) async fn pair(&self, task: usize) {
        match &self.how {
            How::Ours(locks) => {
                let guard = locks.mutex(format!("k{task}")).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
            How::Theirs {
                sessions,
                take,
                give,
            } => {
                assert_eq!(sessions.ask(task, take).await, 1);
                assert_eq!(sessions.ask(task, give).await, 1);
            }
        }
    }

    /// Asks for key 0, which somebody else holds. Panics if it gets it.
    pub(crate) async fn busy(&self) {
        match &self.how {
            How::Ours(locks) => {
                let tried = locks.mutex("k0").try_acquire().await.unwrap();
                assert!(matches!(tried, TryAcquire::Busy { .. }));
            }
            How::Theirs { sessions, take, .. } => assert_eq!(sessions.ask(0, take).await, 0),
        }
    }

    /// Takes key 0 for good, on a connection that lives on.
    pub(crate) async fn hold(&self, holder: &mut Session) {
        match &self.how {
            How::Ours(locks) => std::mem::forget(locks.mutex("k0").acquire().await.unwrap()),
            How::Theirs { take, .. } => {
                assert_eq!(holder.ask(&take.text, &(take.args)(0)).await, 1);
            }
        }
    }
}
