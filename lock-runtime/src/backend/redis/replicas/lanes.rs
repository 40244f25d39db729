//! The lanes, and the queue before them: whoever comes while all are busy is asked about together with the others.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc, oneshot, watch};

use super::super::{CLOSED, GONE};
use super::lane::{Lane, Open, Terms};
use crate::backend::{Fault, Renewal};
use crate::clock::Moment;

/// One is on its way while another fills; more would only wait for the same replicas.
const LANES: usize = 2;
/// Holds that one `WAIT` is for: a few µs of the server's time each.
const TOGETHER: usize = 128;

/// What somebody wants to be sure of.
pub(super) struct Request {
    pub(super) holds: Vec<Renewal>,
    pub(super) deadline: Moment,
    answer: oneshot::Sender<Result<(), Fault>>,
}

impl Request {
    /// False if whoever asked is gone.
    pub(super) fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    pub(super) fn answer(self, answer: Result<(), Fault>) {
        let _ = self.answer.send(answer);
    }
}

type Queue = Arc<Mutex<mpsc::UnboundedReceiver<Request>>>;

pub(in super::super) struct Lanes {
    // As long as the callers that wait: those are bounded where they come from.
    queue: mpsc::UnboundedSender<Request>,
    terms: Arc<Terms>,
    closed: watch::Receiver<bool>,
}

impl Lanes {
    /// The lanes end when `closed` becomes true or is gone, and when this is dropped.
    pub(in super::super) fn start(
        terms: &Arc<Terms>,
        mut first: Option<Open>,
        handle: &Handle,
        closed: &watch::Sender<bool>,
    ) -> Lanes {
        let (sender, receiver) = mpsc::unbounded_channel();
        let queue = Arc::new(Mutex::new(receiver));
        for _ in 0..LANES {
            let lane = Lane::new(terms.clone(), first.take());
            handle.spawn(run(lane, queue.clone(), closed.subscribe()));
        }
        Lanes {
            queue: sender,
            terms: terms.clone(),
            closed: closed.subscribe(),
        }
    }

    /// Resolves once enough replicas have all of the holds. Dropped, it is as if nobody had asked.
    pub(in super::super) async fn confirm(
        &self,
        holds: Vec<Renewal>,
        deadline: Moment,
    ) -> Result<(), Fault> {
        let answered = self.ask(holds, deadline);
        self.answer(answered, deadline).await
    }

    /// As [`confirm`](Lanes::confirm), of each by itself: one that is held no more says nothing about the others.
    pub(in super::super) async fn confirm_each(
        &self,
        holds: Vec<Renewal>,
        deadline: Moment,
    ) -> Vec<Result<(), Fault>> {
        let asked: Vec<_> = holds
            .into_iter()
            .map(|hold| self.ask(vec![hold], deadline))
            .collect();
        let mut answers = Vec::with_capacity(asked.len());
        for answered in asked {
            answers.push(self.answer(answered, deadline).await);
        }
        answers
    }

    /// Without lanes, the answer's other end is dropped with the request.
    fn ask(&self, holds: Vec<Renewal>, deadline: Moment) -> oneshot::Receiver<Result<(), Fault>> {
        let (answer, answered) = oneshot::channel();
        let _ = self.queue.send(Request {
            holds,
            deadline,
            answer,
        });
        answered
    }

    async fn answer(
        &self,
        answered: oneshot::Receiver<Result<(), Fault>>,
        deadline: Moment,
    ) -> Result<(), Fault> {
        match tokio::time::timeout_at(deadline.tick(), answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(self.ended()),
            Err(_) => Err(self.terms.late()),
        }
    }

    fn ended(&self) -> Fault {
        Fault::Closed(if *self.closed.borrow() { CLOSED } else { GONE })
    }
}

async fn run(mut lane: Lane, queue: Queue, mut closed: watch::Receiver<bool>) {
    let serving = async {
        loop {
            let requests = tokio::select! {
                requests = next(&queue) => requests,
                () = lane.closed() => continue,
            };
            match requests {
                Some(requests) => lane.serve(requests).await,
                None => return,
            }
        }
    };
    tokio::select! {
        // An error means that the backend is gone: the same.
        _ = closed.wait_for(|closed| *closed) => {}
        () = serving => {}
    }
}

/// Waits for a request, and takes with it what else is there. `None` when there will be none any more.
async fn next(queue: &Queue) -> Option<Vec<Request>> {
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
