//! The one pub/sub connection of a backend: the channels of the locks that somebody waits for, and the control
//! channel, on which the victims of forced releases are named.
//!
//! A connection of its own, so that a flood of messages never delays a renewal's reply, and so that the server can
//! cut a slow subscriber without cutting the commands. It speaks RESP3: messages reach the topics in the callback
//! of the connection's task and are counted there, so no queue can grow.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::{Notify, watch};

use super::topics::{News, Topics};
use crate::backend::kit::{closed::until_closed, outage::Outage};
use crate::backend::redis::CONTROL;
use crate::backend::redis::connection::dial::{self, Dialed, STABLE};
use crate::backend::redis::connection::{Relogin, Target, Wire};
use crate::backend::redis::kinds::replies::{PASSED_ON, RELEASED_TO_CROWD, RELEASED_TO_FEW};
use crate::backend::redis::scripting::faults;
use crate::backend::redis::sentinel::Address;
use crate::backend::{Event, EventSink, Fault, Holders};
use crate::values::{StoreError, clock};

/// The interval at which a quiet connection is asked for a sign of life.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(10);
/// The prefix of a message that names the holders that were released by force.
const NAMES: &[u8] = b"holders:";
/// The prefix of a message that names a holder whose lock somebody wants. The script fragment `keeper` sends it.
const WANTED: &[u8] = b"wanted:";
/// Channels in one SUBSCRIBE.
const BATCH: usize = 512;

/// The task that keeps the subscriptions alive.
pub(crate) struct Subscriber {
    pub(crate) target: Arc<Target>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) events: EventSink,
    /// The timeout of each request.
    pub(crate) timeout: Duration,
    /// Set once it is known how the first attempt went.
    pub(crate) tried: watch::Sender<FirstTry>,
    pub(crate) closed: watch::Receiver<bool>,
}

/// The outcome of the first attempt to subscribe.
#[derive(Clone, Debug)]
pub(crate) enum FirstTry {
    UnderWay,
    /// Well; or not, as it happens to any connection.
    Over,
    /// Everything but SUBSCRIBE works.
    NoPubSub(Fault),
}

/// The number of connections that have to be cut, each when SUBSCRIBE is sent on it, before this no longer counts as
/// an accident.
const CUTS: u32 = 3;

impl Subscriber {
    pub(crate) async fn run(self) {
        until_closed(&self.closed, self.keep_alive()).await;
        self.topics.unreachable();
    }

    async fn keep_alive(&self) {
        let mut outage = Outage::new("the subscription to the lock store");
        let mut pauses = dial::pauses();
        let mut refusals = Refusals::default();
        let (mut renewed, mut cuts) = (false, 0);
        loop {
            let mut first_try = FirstTry::Over;
            let fault = match self.connect().await {
                Ok((dialed, cut)) => {
                    let mut subscribed = Subscribed {
                        subscriber: self,
                        connection: dialed.connection,
                        master: dialed.master,
                        _relogin: dialed.relogin,
                        refusals: &mut refusals,
                    };
                    let asked_at = clock::now();
                    match subscribed.begin(renewed).await {
                        Ok(()) => {
                            self.tried.send_replace(FirstTry::Over);
                            outage.is_over(self.target.shown());
                            let since = clock::now();
                            let Err(fault) = subscribed.serve(&cut).await;
                            // A server that accepts and cuts at once is not to be asked without a pause.
                            if since.elapsed() > STABLE {
                                pauses.reset();
                            }
                            fault
                        }
                        Err(fault) => {
                            cuts += 1;
                            first_try = self.judge(&fault, asked_at.elapsed(), cuts);
                            fault
                        }
                    }
                }
                Err(fault) => fault,
            };
            // The listeners have been deaf, or will have been, when the next connection is subscribed.
            renewed = true;
            self.topics.unreachable();
            self.tried.send_if_modified(|tried| {
                let is_first = matches!(tried, FirstTry::UnderWay);
                if is_first {
                    *tried = first_try;
                }
                is_first
            });
            outage.is_on(self.target.shown(), &fault);
            dial::pause(&mut pauses, &self.target).await;
        }
    }

    /// Judges a SUBSCRIBE that failed on a connection that was just opened: the server may lack pub/sub.
    fn judge(&self, fault: &Fault, waited: Duration, cuts: u32) -> FirstTry {
        let without = || {
            format!(
                "everything but SUBSCRIBE works there ({fault}): a proxy without pub/sub seems to be in between. \
                 Connect to Redis directly"
            )
        };
        let shown = self.target.shown();
        match fault {
            Fault::NotDone(said) if said.to_string().starts_with("ERR") => {
                FirstTry::NoPubSub(Fault::Impossible(without()).at(shown))
            }
            // It may be a slow network.
            Fault::Unknown(_) if waited >= self.timeout => {
                FirstTry::NoPubSub(Fault::not_done(without()))
            }
            Fault::Unknown(_) if cuts < CUTS => FirstTry::UnderWay,
            Fault::Unknown(_) => FirstTry::NoPubSub(Fault::Impossible(without()).at(shown)),
            _ => FirstTry::Over,
        }
    }

    async fn connect(&self) -> Result<(Dialed, Arc<Notify>), Fault> {
        let cut = Arc::new(Notify::new());
        let (signal, topics) = (cut.clone(), self.topics.clone());
        let events = self.events.clone();
        let dialed = dial::open(&self.target, self.timeout, move |push| match push.kind {
            PushKind::Message => deliver(&push, &topics, &events),
            PushKind::Disconnection => signal.notify_one(),
            _ => {}
        })
        .await?;
        Ok((dialed, cut))
    }
}

/// Runs on the connection's task: it only counts.
pub(crate) fn deliver(push: &PushInfo, topics: &Topics, events: &EventSink) {
    let [Value::BulkString(channel), Value::BulkString(payload)] = push.data.as_slice() else {
        return;
    };
    let Ok(channel) = std::str::from_utf8(channel) else {
        return;
    };
    if channel != CONTROL {
        topics.heard(channel, news(payload));
    } else if let Some(event) = event(payload) {
        events(event);
    }
}

/// The meaning of a message on a lock's channel. Other clients say the first one alone.
fn news(payload: &[u8]) -> News {
    match payload {
        payload if payload == RELEASED_TO_CROWD.as_bytes() => News::ReleasedToCrowd,
        payload if payload == RELEASED_TO_FEW.as_bytes() => News::ReleasedToFew,
        payload if payload == PASSED_ON.as_bytes() => News::PassedOn,
        _ => News::Released,
    }
}

/// The largest number of holders in one message, as the script fragment `tell` limits it.
const MOST_NAMED: usize = 256;

/// Parses a message on the control channel.
pub(crate) fn event(payload: &[u8]) -> Option<Event> {
    match payload.first()? {
        b'w' => Some(Event::Wanted(named(payload, WANTED)?)),
        _ => Some(Event::ForceReleased(named(payload, NAMES)?)),
    }
}

/// Parses the prefix `what`, followed by the alias of each holder in 32 hex digits. Any other message on the control
/// channel is not ours. Its length is checked before its content, because others may publish anything there.
fn named(payload: &[u8], what: &[u8]) -> Option<Holders> {
    const DIGITS: usize = 32;
    let length = payload.len().checked_sub(what.len())?;
    if !length.is_multiple_of(DIGITS) || !(1..=MOST_NAMED).contains(&(length / DIGITS)) {
        return None;
    }
    let alias = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits).ok()?;
        let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u128::from_str_radix(digits, 16).ok()?;
        plain.then(|| number.to_be_bytes())
    };
    let names = payload.strip_prefix(what)?;
    let aliases: Option<HashSet<_>> = names.chunks(DIGITS).map(alias).collect();
    Some(Holders::Aliases(Arc::new(aliases?)))
}

/// Warned once of each, however many channels and connections it concerns.
#[derive(Default)]
pub(crate) struct Refusals {
    locks: bool,
    control: bool,
}

impl Refusals {
    pub(crate) fn of_control(&mut self, reason: &StoreError) {
        if !std::mem::replace(&mut self.control, true) {
            tracing::warn!(
                %reason,
                channel = CONTROL,
                "the lock store refuses the control channel: holders learn of a forced release only at their next renewal"
            );
        }
    }

    pub(crate) fn of_locks(&mut self, channel: &str, reason: &StoreError) {
        if !std::mem::replace(&mut self.locks, true) {
            tracing::warn!(
                %reason,
                channel,
                "the lock store refuses lock channels: waiters are not woken by releases of other processes, but look \
                 again about once a second"
            );
        }
    }
}

/// A connection whose channels are subscribed to, from its opening to its end.
struct Subscribed<'a> {
    subscriber: &'a Subscriber,
    connection: Wire,
    /// Only the master's messages are heard of in time.
    master: Option<Address>,
    _relogin: Option<Relogin>,
    refusals: &'a mut Refusals,
}

impl Subscribed<'_> {
    async fn begin(&mut self, renewed: bool) -> Result<(), Fault> {
        let subscriber = self.subscriber;
        let channels = subscriber.topics.reachable();
        match self.subscribe(&[CONTROL.into()]).await {
            Ok(()) => {}
            Err(Fault::Denied(reason)) => self.refusals.of_control(&reason),
            Err(fault) => return Err(fault),
        }
        self.open(&channels, renewed).await
    }

    async fn serve(&mut self, cut: &Notify) -> Result<Infallible, Fault> {
        let topics = &self.subscriber.topics;
        let mut next_ping = clock::now() + PING_EVERY;
        loop {
            let (ended, next_idle) = topics.take_idle();
            for batch in ended.chunks(BATCH) {
                self.unsubscribe(batch).await?;
            }
            let fresh = topics.take_fresh();
            self.open(&fresh, false).await?;
            let wake = next_idle.map_or(next_ping, |idle| idle.earlier(next_ping));
            tokio::select! {
                () = cut.notified() => {
                    return Err(Fault::unknown("the connection was cut"));
                }
                () = self.subscriber.target.superseded(&self.master) => {
                    return Err(Fault::unknown("the master has moved"));
                }
                () = topics.changed.notified() => {}
                () = clock::sleep_until(wake) => {
                    if next_ping.has_passed() {
                        self.ping().await?;
                        next_ping = clock::now() + PING_EVERY;
                    }
                }
            }
        }
    }

    /// Subscribes and tells the listeners. Channels that are refused stay deaf.
    async fn open(&mut self, channels: &[Arc<str>], renewed: bool) -> Result<(), Fault> {
        let topics = &self.subscriber.topics;
        for batch in channels.chunks(BATCH) {
            match self.subscribe(batch).await {
                Ok(()) => topics.opened(batch, renewed),
                // One channel that is refused refuses its whole batch.
                Err(Fault::Denied(_)) => {
                    for channel in batch {
                        self.open_alone(channel, renewed).await?;
                    }
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    async fn open_alone(&mut self, channel: &Arc<str>, renewed: bool) -> Result<(), Fault> {
        let topics = &self.subscriber.topics;
        let one = std::slice::from_ref(channel);
        match self.subscribe(one).await {
            Ok(()) => topics.opened(one, renewed),
            Err(Fault::Denied(reason)) => {
                topics.refused(channel);
                self.refusals.of_locks(channel, &reason);
            }
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    async fn subscribe(&mut self, channels: &[Arc<str>]) -> Result<(), Fault> {
        let names: Vec<&str> = channels.iter().map(|channel| &**channel).collect();
        within(self.subscriber.timeout, self.connection.subscribe(names)).await
    }

    async fn unsubscribe(&mut self, channels: &[Arc<str>]) -> Result<(), Fault> {
        let names: Vec<&str> = channels.iter().map(|channel| &**channel).collect();
        within(self.subscriber.timeout, self.connection.unsubscribe(names)).await
    }

    async fn ping(&mut self) -> Result<(), Fault> {
        let Subscriber {
            target, timeout, ..
        } = self.subscriber;
        dial::sign_of_life(&mut self.connection, target, *timeout).await
    }
}

pub(crate) async fn within<T>(
    timeout: Duration,
    request: impl Future<Output = redis::RedisResult<T>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(timeout, request).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => Err(faults::of_call(&error)),
        Err(_) => Err(Fault::unknown(format!("no answer within {timeout:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(payload: &str) -> Option<Arc<HashSet<[u8; 16]>>> {
        match event(payload.as_bytes())? {
            Event::ForceReleased(Holders::Aliases(aliases)) => Some(aliases),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_holder_whose_lock_is_wanted_is_named_as_those_that_were_released_by_force() {
        let one = "0f".repeat(16);
        let wanted = event(format!("wanted:{one}").as_bytes());
        let Some(Event::Wanted(Holders::Aliases(aliases))) = wanted else {
            panic!("{wanted:?}");
        };
        assert_eq!(*aliases, [[0x0f; 16]].into());
        for bad in [
            "wanted:",
            "wanted:1",
            "w",
            &format!("wanted{one}"),
            &format!("wanted:{one}0"),
        ] {
            assert!(event(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_script_asks_keepers_on_the_control_channel() {
        let fragment = include_str!("../scripting/lua/lib/keeper.lua");
        let words = std::str::from_utf8(WANTED).unwrap();
        assert!(fragment.contains(&format!("'PUBLISH', '{CONTROL}', '{words}'")));
    }

    #[test]
    fn holders_are_named_by_thirty_two_hex_digits_each() {
        let (one, other) = ("0f".repeat(16), "Ab".repeat(16));
        assert_eq!(
            *named(&format!("holders:{one}")).unwrap(),
            [[0x0f; 16]].into()
        );
        let two = named(&format!("holders:{one}{other}")).unwrap();
        assert_eq!(*two, [[0x0f; 16], [0xab; 16]].into());
        for bad in [
            "",
            "0",
            "holders:",
            "holders:1",
            &one,
            &format!("permits:{one}"),
            &format!("holders:{}", &one[1..]),
            &format!("holders:{one}0"),
            &format!("holders:{}", "+1".repeat(16)),
            &format!("holders:{}", "g".repeat(32)),
        ] {
            assert!(named(bad).is_none(), "{bad}");
        }
        assert!(event(&[0xff; 40]).is_none() && event(b"").is_none());
    }

    #[test]
    fn a_message_that_our_script_cannot_have_sent_is_refused_by_its_length() {
        let names = |count| format!("holders:{}", "0".repeat(32 * count));
        assert!(named(&names(MOST_NAMED)).is_some());
        for count in [MOST_NAMED + 1, 900_000] {
            assert!(named(&names(count)).is_none(), "{count}");
        }
    }
}
