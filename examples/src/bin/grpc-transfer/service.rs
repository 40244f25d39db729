//! The service, which moves money between two accounts under the locks of both, and streams an account's balance.
//!
//! | lock | held by | protects |
//! | --- | --- | --- |
//! | `account:{name}`, two of them | [`Service::transfer`] | the balances, read and then written |
//! | `watcher:{name}` | a layer, until the stream ends | one stream per watcher |

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lock_runtime::{LockManager, key};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};
use tower_lock::types::UntilBodyEnd;
use tower_lock::{GrpcStatus, LockLayer, Refusal, RequestKey};

use crate::bank::bank_server::Bank;
use crate::bank::{Balance, TransferReply, TransferRequest, WatchRequest};

/// The time that the "database" takes.
const QUERY: Duration = Duration::from_millis(5);

/// The time for which a transfer waits for its accounts.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the layer around the server, which allows one stream per watcher. The metadata entry `x-watcher` names the
/// watcher; requests without it, such as transfers, pass. So a client that leaves it out may watch as often as it likes: a
/// service that minds takes the watcher from its authentication. Each stream ends after a minute.
pub(crate) fn one_stream_per_watcher(
    locks: LockManager,
) -> LockLayer<RequestKey, GrpcStatus, UntilBodyEnd> {
    let watcher = RequestKey::new("watcher").header("x-watcher").optional();
    LockLayer::from_key(locks, watcher)
        .wait(Duration::from_secs(1))
        .reply(GrpcStatus)
        .until_body_end(Duration::from_secs(60))
}

/// The bank and its locks. Clones share everything.
#[derive(Clone)]
pub(crate) struct Service {
    locks: LockManager,
    accounts: Arc<HashMap<String, watch::Sender<u64>>>,
}

impl Service {
    pub(crate) fn new(locks: LockManager, balances: &[(&str, u64)]) -> Service {
        let accounts = balances
            .iter()
            .map(|(name, amount)| ((*name).to_owned(), watch::Sender::new(*amount)));
        Service {
            locks,
            accounts: Arc::new(accounts.collect()),
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.accounts
            .values()
            .map(|account| *account.borrow())
            .sum()
    }

    fn account(&self, name: &str) -> Result<&watch::Sender<u64>, Status> {
        let account = self.accounts.get(name);
        account.ok_or_else(|| Status::not_found(format!("no account `{name}`")))
    }

    /// Moves money. This is right only under the locks of both accounts: without them, the balances that were read may
    /// be out of date after the `await`.
    async fn move_money(&self, order: &TransferRequest) -> Result<u64, Status> {
        let (from, to) = (self.account(&order.from)?, self.account(&order.to)?);
        let (had, other_had) = (*from.borrow(), *to.borrow());
        sleep(QUERY).await;
        let short = || Status::failed_precondition(format!("{} has {had}", order.from));
        let left = had.checked_sub(order.amount).ok_or_else(short)?;
        let grown = other_had.checked_add(order.amount);
        let grown = grown.ok_or_else(|| Status::out_of_range("too much money"))?;
        from.send_replace(left);
        to.send_replace(grown);
        Ok(left)
    }
}

#[tonic::async_trait]
impl Bank for Service {
    async fn transfer(
        &self,
        request: Request<TransferRequest>,
    ) -> Result<Response<TransferReply>, Status> {
        let order = request.into_inner();
        if order.from == order.to {
            return Err(Status::invalid_argument("one account"));
        }
        // `multi` takes both locks or none, in an order that cannot deadlock. Otherwise two opposite transfers could
        // hold one account each and wait for the other.
        let accounts =
            [&order.from, &order.to].map(|name| self.locks.mutex(key!("account:{name}")));
        let both = self.locks.multi(accounts).wait(PATIENCE);
        let moved = both.run(|_| self.move_money(&order));
        let left = moved.await.map_err(Refusal::from)??;
        Ok(Response::new(TransferReply { left }))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<Balance, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let account = self.account(&request.into_inner().account)?;
        let balances = WatchStream::new(account.subscribe());
        Ok(Response::new(Box::pin(
            balances.map(|amount| Ok(Balance { amount })),
        )))
    }
}
