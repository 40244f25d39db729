//! The forms in which a request may reach the server: in a script of its own, in a shared script, in a script with the
//! waiting list, or in the script of an older version. One of these had no batches, waiting lists, kept locks, or reserved
//! tokens. A later one had the list, and no grants by messages.

use redis::{Cmd, Value};

use super::{CLIENT, ModelRun};
use crate::backend::redis::scripting::exclusive::*;
use crate::backend::redis::scripting::grouped::{
    AcquireEach, AcquireTerms, OneAcquire, OneRelease, ReleaseEach,
};
use crate::backend::redis::scripting::outcomes::*;
use crate::backend::redis::scripting::{Items, Script, Source};
use crate::backend::redis::tests::scripts::listed::{
    ListedAcquire, ListedRelease, listed_acquire, listed_release,
};
use crate::backend::redis::tests::scripts::{CHANNEL, LOCK};
use crate::backend::redis::tests::{CALL, key, run, run_prolonged};
use crate::backend::{Fault, Released};
use crate::values::HolderId;
use crate::values::fence::SPARE_TOKENS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestForm {
    Alone,
    Batch,
    /// A holder that cannot acquire the lock is put on the waiting list, and a release reserves the lock for the first
    /// holder on it.
    Listed,
    Older,
    OlderListed,
}

impl RequestForm {
    pub(super) const ALL: [RequestForm; 5] = [
        RequestForm::Alone,
        RequestForm::Batch,
        RequestForm::Listed,
        RequestForm::Older,
        RequestForm::OlderListed,
    ];

    pub(super) fn is_listed(self) -> bool {
        matches!(self, RequestForm::Listed | RequestForm::OlderListed)
    }
}

fn holder_id(holder: &str) -> HolderId {
    HolderId::parse(holder).unwrap_or_else(|| panic!("{holder} is none of {CLIENT}"))
}

impl ModelRun {
    async fn run<S: Script>(&self, script: &S) -> Result<S::Reply, String> {
        let reply = run(&mut self.connection.clone(), script).await;
        reply.map_err(|fault| fault.to_string())
    }

    /// Runs a script that may reserve the lock.
    async fn run_prolonged<S: Script>(&self, script: &S) -> Result<S::Reply, String> {
        let reply = run_prolonged(&mut self.connection.clone(), script).await;
        reply.map_or_else(|fault| Err(fault.to_string()), |(reply, _)| Ok(reply))
    }

    /// Checks that a batch that left a lock alone has not changed it.
    async fn is_untouched(&mut self) -> Result<(), String> {
        match self.actual().await? {
            actual if actual == self.state => Ok(()),
            actual => Err(format!("left alone, and {actual:?} all the same")),
        }
    }

    pub(super) async fn acquire(
        &mut self,
        form: RequestForm,
        holder: &str,
        lease_ms: u64,
        not_after_us: u64,
    ) -> Result<AcquireReply, String> {
        let (key, fence) = (key("k"), key("k").fence());
        let acquire = Acquire {
            lock: LOCK,
            fence: Some(&fence),
            holder,
            lease_ms,
            not_after_us,
            counted: false,
            channel: None,
            spare: None,
        };
        let spare = self.random.bool().then_some(SPARE_TOKENS);
        match form {
            RequestForm::Alone => {
                let ahead = Acquire {
                    channel: spare.map(|_| CHANNEL),
                    spare,
                    ..acquire
                };
                self.run(&ahead).await
            }
            RequestForm::Older => self.run(&OlderAcquire(acquire)).await,
            RequestForm::Listed | RequestForm::OlderListed => {
                let listed = ListedAcquire {
                    fence: Some(&fence),
                    lease_ms,
                    not_after_us,
                    spare,
                    ..listed_acquire(holder)
                };
                if form == RequestForm::Listed {
                    return self.run_prolonged(&listed).await;
                }
                let trip_us = self.trip_us();
                self.run_prolonged(&OlderListedAcquire { listed, trip_us })
                    .await
            }
            RequestForm::Batch => {
                let one = || OneAcquire {
                    key: key.as_ref().clone(),
                    holder: holder_id(holder),
                    not_after_us,
                };
                // Sometimes a copy of the request is in the same batch. It must not be granted a second time.
                let all: Vec<_> = (0..self.random.usize(1..=2)).map(|_| one()).collect();
                let terms = AcquireTerms::new(lease_ms, true, CALL);
                let mut answers = self.run(&AcquireEach { terms, all }).await?.into_iter();
                let answer = answers.next().flatten();
                if let Some(Some(AcquireReply::Granted { .. })) = answers.next() {
                    return Err("a copy was granted".to_owned());
                }
                match answer {
                    Some(reply) => Ok(reply),
                    None => {
                        self.is_untouched().await?;
                        self.run(&acquire).await
                    }
                }
            }
        }
    }

    pub(super) async fn release(
        &mut self,
        form: RequestForm,
        holder: &str,
    ) -> Result<Announced<ReleaseReply>, String> {
        if form == RequestForm::Batch {
            let all = vec![OneRelease {
                key: key("k").as_ref().clone(),
                holder: holder_id(holder),
            }];
            let answers = self.run(&ReleaseEach { terms: (), all }).await?;
            match answers.into_iter().next().flatten() {
                Some(reply) => return Ok(reply),
                None => self.is_untouched().await?,
            }
        }
        let range = self
            .ranges
            .get(holder)
            .filter(|_| form != RequestForm::Older);
        let (used, last) = range.copied().unzip();
        let fence = range.map(|_| key("k").fence());
        if form.is_listed() {
            let fence = key("k").fence();
            let release = ListedRelease {
                fence: &fence,
                last,
                used,
                trip_us: self.trip_us(),
                // Half of the messages are grants.
                run_id: if self.random.bool() { "run" } else { "" },
                ..listed_release(holder)
            };
            let reply = match form {
                RequestForm::Listed => self.run_prolonged(&release).await?,
                _ => self.run_prolonged(&OlderListedRelease(release)).await?,
            };
            if reply.done.released == Released::DoneAndListed {
                return Err(format!("no holder is next: {reply:?}"));
            }
            return Ok(reply);
        }
        // The script of an older version does the same, except that it returns no tokens.
        let release = Release {
            fence,
            last,
            used,
            ..Release::of(LOCK, holder, CHANNEL)
        };
        self.run(&release).await
    }

    /// Returns the round trip of a process that is near, or of one that is far from the server.
    fn trip_us(&mut self) -> u64 {
        if self.random.bool() { 100 } else { 30_000 }
    }

    /// Returns the token of the new holder, and the last reserved token. Returns `None` if the old holder did not have
    /// the lock.
    pub(super) async fn hand_over(
        &mut self,
        form: RequestForm,
        from: &str,
        to: &str,
        lease_ms: u64,
    ) -> Result<Option<(u64, u64)>, String> {
        let fence = key("k").fence();
        let hand_over = HandOver {
            lock: LOCK,
            fence: Some(&fence),
            from,
            to,
            lease_ms,
            channel: CHANNEL,
            counted: false,
            spare: SPARE_TOKENS,
        };
        let reply = match form {
            RequestForm::Older => self.run(&OlderHandOver(hand_over)).await?,
            _ => self.run(&hand_over).await?,
        };
        match reply.map(|(token, _, tenure)| Option::zip(token, tenure.last)) {
            Some(Some((token, last))) => Ok(Some((token.get(), last.get()))),
            None => Ok(None),
            Some(None) => Err("handed over without a token".to_owned()),
        }
    }
}

/// The acquire of the version before tokens were reserved, without its comments. It asks no keeper for a lock.
struct OlderAcquire<'a>(Acquire<'a>);

impl Script for OlderAcquire<'_> {
    type Reply = AcquireReply;

    fn source() -> &'static Source {
        static SOURCE: Source = Source::new("acquire", include_str!("older/acquire.lua"));
        &SOURCE
    }

    fn keys(&self) -> usize {
        self.0.keys()
    }

    fn write(&self, command: &mut Cmd) {
        self.0.write(command);
    }

    fn read(&self, reply: Value) -> Option<Result<AcquireReply, Fault>> {
        self.0.read(reply)
    }

    fn shape() -> [String; 2] {
        Acquire::shape()
    }
}

/// The hand-over of the same version as [`OlderAcquire`]. It reserves no tokens.
struct OlderHandOver<'a>(HandOver<'a>);

impl Script for OlderHandOver<'_> {
    type Reply = <HandOver<'static> as Script>::Reply;

    fn source() -> &'static Source {
        static SOURCE: Source = Source::new("handover", include_str!("older/handover.lua"));
        &SOURCE
    }

    fn keys(&self) -> usize {
        self.0.keys()
    }

    fn write(&self, command: &mut Cmd) {
        self.0.write(command);
    }

    fn read(&self, reply: Value) -> Option<Result<Self::Reply, Fault>> {
        let mut items = Items::of(reply)?;
        match items.text()?.as_str() {
            "OK" => {
                let (last, time) = (Some(items.token()??), items.digits()?);
                let subscribers = u64::try_from(items.integer()?).ok();
                items.end(Ok(Some((last, time, TenureReply { last, subscribers }))))
            }
            "LOST" => items.end(Ok(None)),
            _ => None,
        }
    }

    fn shape() -> [String; 2] {
        HandOver::shape()
    }
}

/// The acquire with the waiting list of the version before grants by messages, without its comments. It told how far its
/// process was.
struct OlderListedAcquire<'a> {
    listed: ListedAcquire<'a>,
    trip_us: u64,
}

impl Script for OlderListedAcquire<'_> {
    type Reply = AcquireReply;

    fn source() -> &'static Source {
        static SOURCE: Source =
            Source::new("listed_acquire", include_str!("older/listed_acquire.lua"));
        &SOURCE
    }

    fn keys(&self) -> usize {
        self.listed.keys()
    }

    fn write(&self, command: &mut Cmd) {
        let ListedAcquire {
            lock,
            waiting,
            fence,
            holder,
            lease_ms,
            not_after_us,
            counted,
            channel,
            spare,
        } = &self.listed;
        command.arg(lock).arg(waiting).arg(fence);
        command.arg(holder).arg(lease_ms).arg(not_after_us);
        command.arg(counted).arg(channel);
        command.arg(self.trip_us).arg(spare);
    }

    fn read(&self, reply: Value) -> Option<Result<AcquireReply, Fault>> {
        self.listed.read(reply)
    }

    fn shape() -> [String; 2] {
        ListedAcquire::shape()
    }
}

/// The release of the same version as [`OlderListedAcquire`]. It named the fence only to return tokens, and its message was a
/// hint.
struct OlderListedRelease<'a>(ListedRelease<'a>);

impl Script for OlderListedRelease<'_> {
    type Reply = Announced<ReleaseReply>;

    fn source() -> &'static Source {
        static SOURCE: Source =
            Source::new("listed_release", include_str!("older/listed_release.lua"));
        &SOURCE
    }

    fn keys(&self) -> usize {
        2 + usize::from(self.0.last.is_some())
    }

    fn write(&self, command: &mut Cmd) {
        let release = &self.0;
        command.arg(release.lock).arg(release.waiting);
        command.arg(release.last.map(|_| release.fence));
        command.arg(release.holder).arg(release.channel);
        command.arg(release.trip_us).arg("0");
        command.arg(release.last).arg(release.used);
    }

    fn read(&self, reply: Value) -> Option<Result<Self::Reply, Fault>> {
        self.0.read(reply)
    }

    fn shape() -> [String; 2] {
        ListedRelease::shape()
    }
}
