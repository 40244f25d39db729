//! Values that the rest is made of. Nothing here knows anything else of the crate; `clock` alone reads clocks.
//!
//! The rest imports them from here, whichever file they are in.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

pub(crate) mod backoff;
pub(crate) mod channels;
pub(crate) mod client;
pub(crate) mod clock;
pub(crate) mod count;
pub(crate) mod decimal;
#[allow(
    dead_code,
    reason = "the attribute's file: it also writes durations, for messages"
)]
pub(crate) mod duration;
pub(crate) mod error;
pub(crate) mod fence;
pub(crate) mod handshake;
pub(crate) mod health;
pub(crate) mod holder;
pub(crate) mod ids;
pub(crate) mod key;
pub(crate) mod kind;
pub(crate) mod label;
pub(crate) mod name;
pub(crate) mod options;
pub(crate) mod refusal;
pub(crate) mod replicas;
pub(crate) mod store;
pub(crate) mod ttl;

pub(crate) use self::backoff::{Backoff, jittered};
pub(crate) use self::channels::ClusterChannels;
pub(crate) use self::client::ClientRecord;
pub(crate) use self::clock::Moment;
pub(crate) use self::count::{Count, Counted};
pub(crate) use self::error::{LockError, LostReason, StoreError, config};
pub(crate) use self::fence::{FencingToken, SPARE_TOKENS, TokenRange};
pub(crate) use self::handshake::{
    Certificates, Credentials, Handshake, Login, PemPair, pem_file, pem_files,
};
pub(crate) use self::health::{Checkup, Health, NodeHealth};
pub(crate) use self::holder::{Alias, HolderId, HolderIds, manager_of};
pub(crate) use self::ids::{IdRange, IdSecret};
pub(crate) use self::key::{Key, KeyMap};
pub(crate) use self::kind::{Kind, LockMode};
pub(crate) use self::label::Label;
pub(crate) use self::name::{IntoLockName, LockName};
pub use self::options::Overrides;
pub(crate) use self::options::{HoldOptions, Options};
pub(crate) use self::refusal::{HeldHere, ShutdownCause, WaiterCap};
pub(crate) use self::replicas::Replicas;
pub(crate) use self::store::StoreKind;
pub(crate) use self::ttl::Ttl;

/// Boxes a future that most callers never await, so that the future that may await it does not have its size: thousands of
/// those may wait at a time.
pub(crate) fn rare<F: Future>(future: F) -> Pin<Box<F>> {
    Box::pin(future)
}

/// Runs the parts side by side. The answers are in the order of the parts.
pub(crate) async fn all<T, F>(mut parts: Vec<F>) -> Vec<T>
where
    F: Future<Output = T> + Unpin,
{
    let mut answers: Vec<Option<T>> = Vec::new();
    answers.resize_with(parts.len(), || None);
    poll_fn(|cx| {
        let mut pending = false;
        for (part, answer) in parts.iter_mut().zip(&mut answers) {
            if answer.is_none() {
                match Pin::new(part).poll(cx) {
                    Poll::Ready(done) => *answer = Some(done),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    answers.into_iter().flatten().collect()
}
