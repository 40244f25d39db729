//! The listeners for failovers: one for each sentinel, on `+switch-master`.
//!
//! Their messages are hints that save time. Without them, an old master is noticed when its connection ends or it
//! refuses a write.

use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionInfo, PushInfo, PushKind, Value};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::{Sentinels, ask};
use crate::backend::Fault;
use crate::backend::redis::connection::refused::ServerPart;
use crate::backend::redis::connection::{DialOptions, dial};
use crate::backend::redis::scripting::faults;
use crate::observe::metrics::logged;
use crate::values::{Backoff, clock};

const SWITCH: &str = "+switch-master";
/// The interval at which a quiet sentinel is asked. The answer is a sign of life, too.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// Listens until `closed` becomes true or its sender is gone.
pub(in super::super) async fn watch(
    sentinels: Arc<Sentinels>,
    options: Arc<DialOptions>,
    timeout: Duration,
    mut closed: watch::Receiver<bool>,
) {
    let mut listeners = JoinSet::new();
    for info in sentinels.hosts.clone() {
        let (sentinels, options) = (sentinels.clone(), options.clone());
        listeners.spawn(async move {
            let mut pauses = dial::pauses();
            loop {
                let listening = listen(&sentinels, &info, &options, timeout, &mut pauses);
                let Err(fault) = listening.await;
                let sentinel = info.addr().to_string();
                logged!(debug, sentinel, reason = %fault, "not listening to a sentinel");
                clock::sleep(pauses.pause()).await;
            }
        });
    }
    let _ = closed.wait_for(|closed| *closed).await;
}

async fn listen(
    sentinels: &Arc<Sentinels>,
    info: &ConnectionInfo,
    options: &DialOptions,
    timeout: Duration,
    pauses: &mut Backoff,
) -> Result<std::convert::Infallible, Fault> {
    let signal = Arc::new(Notify::new());
    let (on_switch, about) = (signal.clone(), sentinels.clone());
    let on_push = move |push: PushInfo| {
        if push.kind == PushKind::Message && is_switch(&push, &about.service) {
            on_switch.notify_one();
        }
    };
    let (info, part) = (info.clone(), ServerPart::Sentinel);
    let mut connection = dial::connect(info, part, options, timeout, Arc::new(on_push)).await?;
    match tokio::time::timeout(timeout, connection.subscribe(SWITCH)).await {
        Ok(Ok(())) => {}
        // The user may not subscribe. The sentinel may still be asked at intervals.
        Ok(Err(error)) if faults::is_from_server(&error) => {}
        Ok(Err(error)) => return Err(faults::of_call(&error).of_a_question()),
        Err(_) => return Err(Fault::not_done("no answer to SUBSCRIBE")),
    }
    let mut certain = false;
    loop {
        let answer = ask::again(sentinels, &mut connection, timeout).await?;
        if let Some(report) = answer {
            // Without an epoch, only a message about a switch is certain to be newer than the known master.
            let certain = certain && report.epoch.is_none();
            sentinels.learn(report.address, report.epoch, certain);
        }
        pauses.reset();
        tokio::select! {
            () = connection.cut() => {
                return Err(Fault::not_done("the connection was cut"));
            }
            () = signal.notified() => certain = true,
            () = clock::sleep(ASK_EVERY) => certain = false,
        }
    }
}

/// Returns `true` for the message `service old-host old-port new-host new-port` of this service. The sentinel is then
/// asked for the new address, with its epoch.
fn is_switch(push: &PushInfo, service: &str) -> bool {
    let [Value::BulkString(channel), Value::BulkString(payload)] = push.data.as_slice() else {
        return false;
    };
    let mut words = payload.split(|byte| *byte == b' ');
    channel.as_slice() == SWITCH.as_bytes() && words.next() == Some(service.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(channel: &str, payload: &str) -> PushInfo {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        PushInfo {
            kind: PushKind::Message,
            data: vec![bulk(channel), bulk(payload)],
        }
    }

    #[test]
    fn only_a_switch_of_the_own_service_counts() {
        let moved = push(SWITCH, "mine 10.0.0.1 6379 10.0.0.2 6380");
        assert!(is_switch(&moved, "mine"));
        assert!(!is_switch(&moved, "min"));
        assert!(!is_switch(&push("+sdown", "mine 1 2 3 4"), "mine"));
    }
}
