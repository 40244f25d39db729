//! The connections for `WAIT`, and their queue. Requests that arrive while all connections are busy share the next
//! `WAIT`.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc, oneshot, watch};

use crate::backend::kit::closed::until_closed;
use crate::backend::redis::connection::Target;
use crate::backend::redis::replicas::wait_connection::{
    WaitCommon, WaitConnection, WaitRequest, WaitSettings,
};
use crate::backend::{Fault, Renewal};
use crate::sync;
use crate::values::Moment;

/// The number of connections. One `WAIT` is under way while the requests for another gather; more connections would
/// only wait for the same replicas.
const CONNECTIONS: usize = 2;
/// The number of holds from which a `WAIT` takes no further requests. Each hold costs a few µs of the server's time.
const TOGETHER: usize = 128;

type SharedQueue = Arc<Mutex<mpsc::UnboundedReceiver<WaitRequest>>>;

/// The queue of requests to one server, and the connections that serve it.
pub(in super::super) struct WaitQueue {
    // Its length is bounded by the number of waiting callers, which is limited elsewhere.
    queue: mpsc::UnboundedSender<WaitRequest>,
    settings: Arc<WaitSettings>,
    closed: watch::Receiver<bool>,
}

impl WaitQueue {
    /// Starts the connections. They end when `closed` becomes true or is gone, and when the queue is dropped.
    pub(in super::super) fn start(
        target: Arc<Target>,
        common: &Arc<WaitCommon>,
        handle: &Handle,
        closed: &watch::Receiver<bool>,
    ) -> Arc<WaitQueue> {
        let settings = Arc::new(WaitSettings {
            target,
            common: common.clone(),
            last: sync::Mutex::new(None),
        });
        let (sender, receiver) = mpsc::unbounded_channel();
        let queue = Arc::new(Mutex::new(receiver));
        for _ in 0..CONNECTIONS {
            let (settings, open) = (settings.clone(), None);
            let connection = WaitConnection { settings, open };
            let running = run(connection, queue.clone());
            handle.spawn(until_closed(closed.clone(), running));
        }
        Arc::new(WaitQueue {
            queue: sender,
            settings,
            closed: closed.clone(),
        })
    }

    /// Asks whether enough replicas have all of the holds. Without holds, asks whether replicas can be asked at all. The
    /// request is sent at once. Dropping the future withdraws it.
    pub(in super::super) fn ask(
        self: &Arc<Self>,
        holds: Vec<Renewal>,
        deadline: Moment,
    ) -> impl Future<Output = Result<(), Fault>> + use<> {
        let (answer, answered) = oneshot::channel();
        // Without connections, the answer's other end is dropped with the request.
        let _ = self.queue.send(WaitRequest {
            holds,
            deadline,
            answer,
        });
        let asked = self.clone();
        async move {
            match tokio::time::timeout_at(deadline.tick(), answered).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) if *asked.closed.borrow() => Err(Fault::closed()),
                Ok(Err(_)) => Err(Fault::runtime_ended()),
                Err(_) => Err(asked.settings.late()),
            }
        }
    }
}

async fn run(mut connection: WaitConnection, queue: SharedQueue) {
    loop {
        let requests = tokio::select! {
            requests = next(&queue) => requests,
            () = connection.closed() => continue,
        };
        match requests {
            Some(requests) => connection.serve(requests).await,
            None => return,
        }
    }
}

/// Waits for a request, and takes all other waiting requests with it. Returns `None` when there will be no more.
async fn next(queue: &SharedQueue) -> Option<Vec<WaitRequest>> {
    let mut queue = queue.lock().await;
    let first = queue.recv().await?;
    let mut holds = first.holds.len();
    let mut requests = vec![first];
    while holds < TOGETHER
        && let Ok(request) = queue.try_recv()
    {
        holds += request.holds.len();
        requests.push(request);
    }
    Some(requests)
}
