//! Bugs in what a client does.
//!
//! Each is one line of the library, or a few, that reads another way in a copy of it (`copy.rs`). The library itself
//! has no trace of that.

use super::{Broken, Planted};
use crate::keys::Tasks;

/// A text that differs in the copy.
pub(crate) struct Edit {
    /// The path below `lock-runtime/src/`.
    pub(super) file: &'static str,
    /// The text that stands there, once.
    pub(super) is: &'static str,
    /// The text that stands there in the copy. `PLANTED` is true in a process for which this bug is chosen. In others,
    /// the line does what it did before.
    pub(super) becomes: &'static str,
}

const fn edit(file: &'static str, is: &'static str, becomes: &'static str) -> Edit {
    Edit { file, is, becomes }
}

/// All bugs of clients.
pub(super) const ALL: &[Planted] = &[
    Planted {
        name: "a deadline that counts from the reply",
        tasks: Tasks::All,
        // The process is granted the lock, and then does not run until the lease is over. Late answers are nearly
        // always under way.
        faults: &["delay", "process-frozen"],
        caught_by: &["overlap", "refused-holder"],
        broken: Broken::Client(&[edit(
            "hold/state.rs",
            "deadline: granted.sent_at + hold_options.ttl.trusted(),",
            "deadline: (if PLANTED { clock::now() } else { granted.sent_at }) + hold_options.ttl.trusted(),",
        )]),
    },
    Planted {
        name: "a deadline at which nobody is told",
        tasks: Tasks::All,
        faults: &["process-frozen"],
        caught_by: &["overlap", "refused-holder"],
        broken: Broken::Client(&[edit(
            "hold/loss.rs",
            "now.has_reached(state.deadline)",
            "!PLANTED && now.has_reached(state.deadline)",
        )]),
    },
    Planted {
        name: "an unanswered renewal that counts as confirmed",
        tasks: Tasks::All,
        // Renewals are refused for longer than a lease. Then others ask sooner than the holder asks again.
        faults: &["rights-revoked"],
        caught_by: &["overlap", "refused-holder"],
        broken: Broken::Client(&[edit(
            "renew/answers.rs",
            "answer.copied().unwrap_or(Renewed::Unknown)",
            "answer.copied().unwrap_or(if PLANTED { Renewed::Held } else { Renewed::Unknown })",
        )]),
    },
    Planted {
        name: "an unanswered acquire that counts as granted",
        tasks: Tasks::All,
        faults: &["reply-lost"],
        caught_by: &["overlap", "refused-holder"],
        broken: Broken::Client(&[edit(
            "acquire/attempt.rs",
            "match core.backend.acquire(self.call(timeout, asker, now)).await {",
            "match core.backend.acquire(self.call(timeout, asker, now)).await {
                Err(Fault::Unknown(_)) if PLANTED => {
                    let (token, sent_at) = (None, now);
                    let granted = crate::backend::Granted { token, sent_at };
                    return (asking, Ok(Acquired::Granted(granted, None)));
                }",
        )]),
    },
    Planted {
        name: "a dropped acquire that nobody undoes",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["gap"],
        broken: Broken::Client(&[edit(
            "backend/redis/kinds/acquire.rs",
            "handle.spawn(self.run());",
            "if !PLANTED { handle.spawn(self.run()); }",
        )]),
    },
    Planted {
        name: "a wake-up that is taken for the grant",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Client(&[
            edit(
                "acquire/contend.rs",
                "use crate::queue;",
                "use crate::queue;

                std::thread_local! {
                    /// Whether the question that is asked next follows a message. It is polled at once, on this thread.
                    pub(crate) static TOLD: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
                }",
            ),
            edit(
                "acquire/contend.rs",
                "let mut listener = contender.first_listener();",
                "let mut listener = contender.first_listener();
                let told = std::sync::atomic::AtomicBool::new(false);",
            ),
            edit(
                "acquire/contend.rs",
                "_ = listener.heard() => {}",
                "_ = listener.heard() => told.store(PLANTED, std::sync::atomic::Ordering::Relaxed),",
            ),
            edit(
                "acquire/contend.rs",
                "outcome = contender.ask(now).await;",
                "TOLD.set(told.swap(false, std::sync::atomic::Ordering::Relaxed));
                outcome = contender.ask(now).await;",
            ),
            edit(
                "acquire/head_seat.rs",
                "let known_left = self.known_left(now);",
                "let known_left = self.known_left(now);
                if crate::acquire::contend::TOLD.take() {
                    let granted = crate::backend::Granted { token: None, sent_at: now };
                    return Asked::Granted(self.attempt.admit(None, self.holder, granted));
                }",
            ),
        ]),
    },
    Planted {
        name: "a waiter that does nothing but listen",
        tasks: Tasks::All,
        faults: &["process-killed"],
        caught_by: &["takeover"],
        broken: Broken::Client(&[edit(
            "acquire/contend.rs",
            "deadline.pause(nap)",
            "deadline.pause(if PLANTED { Duration::MAX } else { nap })",
        )]),
    },
    Planted {
        name: "a hand-over that keeps the token",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["token"],
        broken: Broken::Client(&[edit(
            "release/hand_over.rs",
            "let beginning = with_tenure(&core, &head, &options, granted, terms);",
            "let mut granted = granted;
            if PLANTED { granted.token = self.hold.token(); }
            let beginning = with_tenure(&core, &head, &options, granted, terms);",
        )]),
    },
    Planted {
        name: "a hand-over that the store never hears of",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["needless-loss", "overlap"],
        broken: Broken::Client(&[edit(
            "release/hand_over.rs",
            "let fault = match store.hand_over(from, call, spare).await {",
            "let handed_over = if PLANTED {
                let granted = crate::backend::Granted { token: None, sent_at: clock::now() };
                let (strangers, spare) = (None, crate::backend::Spare::Nothing);
                Ok(HandedOver::Done(granted, TenureTerms { strangers, spare }))
            } else {
                store.hand_over(from, call, spare).await
            };
            let fault = match handed_over {",
        )]),
    },
    Planted {
        name: "a range that gives a token twice",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["token"],
        broken: Broken::Client(&[edit(
            "values/fence.rs",
            "self.given = FencingToken(next);",
            "if !PLANTED { self.given = FencingToken(next) }",
        )]),
    },
    Planted {
        name: "a lock that is passed on after its release was sent",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap", "refused-holder", "needless-loss"],
        broken: Broken::Client(&[edit(
            "release/hand_over.rs",
            "let options = unrenewed(&successor);",
            "let options = unrenewed(&successor);
            if PLANTED {
                let (core, key, holder) = (core.clone(), head.key().clone(), hold.holder());
                core.clone().life.spawn(async move {
                    let hold_ref = crate::backend::HoldRef::one(&key, holder);
                    undo(&core, hold_ref, now).await;
                });
            }",
        )]),
    },
    Planted {
        name: "a tenure that grants time",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap", "refused-holder"],
        broken: Broken::Client(&[
            edit(
                "hold/tenure.rs",
                "now.has_reached(self.until) || !is_worth_it",
                "(!PLANTED && (now.has_reached(self.until) || !is_worth_it))",
            ),
            edit(
                "hold/tenure.rs",
                "sent_at: self.sent_at,",
                "sent_at: if PLANTED { now } else { self.sent_at },",
            ),
            edit(
                "values/fence.rs",
                "if next > self.last.0 || next > time {",
                "if !PLANTED && (next > self.last.0 || next > time) {",
            ),
            // Each hold takes over what the store has confirmed, and when to ask again.
            edit(
                "renew/schedule.rs",
                "let end = to.inherits(confirmed);",
                "let end = if PLANTED && !to.holder().keeps() {
                    watched.renew_at = crate::values::clock::now() + to.ttl().cadence();
                    to.end_at()
                } else {
                    to.inherits(confirmed)
                };",
            ),
        ]),
    },
    Planted {
        name: "answers of a group that are mixed up",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap", "refused-holder", "needless-loss"],
        broken: Broken::Client(&[edit(
            "backend/redis/connection/sharing.rs",
            "for (answer, reply) in answers.into_iter().zip(replies) {",
            "let mut replies = replies;
            if PLANTED {
                replies.reverse();
            }
            for (answer, reply) in answers.into_iter().zip(replies) {",
        )]),
    },
    Planted {
        name: "PostgreSQL: a dropped acquire that nobody undoes",
        tasks: Tasks::Lone,
        faults: &[],
        caught_by: &["gap"],
        broken: Broken::Client(&[edit(
            "backend/sql/undo.rs",
            "inner.handle.spawn(compensation.run());",
            "if !PLANTED { inner.handle.spawn(compensation.run()); }",
        )]),
    },
    Planted {
        name: "PostgreSQL: a grant that is dated at its answer",
        tasks: Tasks::Lone,
        // Two things would hide it. An answer that comes after the call's timeout is no grant, so there is no timeout. And
        // the date of the answer itself is right: requests are dated by it, too, and would all come too late.
        faults: &["process-frozen"],
        caught_by: &["overlap", "refused-holder"],
        broken: Broken::Client(&[
            edit(
                "backend/sql/kinds/acquire.rs",
                ".and_then(FencingToken::checked),
            sent_at,",
                ".and_then(FencingToken::checked),
            sent_at: if PLANTED { clock::now() } else { sent_at },",
            ),
            edit(
                "backend/sql/pool.rs",
                "let answer = tokio::time::timeout(until.answered - sent_at, asked).await;",
                "let timeout = if PLANTED { Duration::MAX } else { until.answered - sent_at };
                let answer = tokio::time::timeout(timeout, asked).await;",
            ),
            edit(
                "backend/sql/kinds/exclusive.rs",
                "let granted = Granted { token, sent_at };",
                "let granted = Granted { token, sent_at: if PLANTED { heard } else { sent_at } };",
            ),
        ]),
    },
    Planted {
        name: "PostgreSQL: a row that could not be locked and counts as renewed",
        tasks: Tasks::Long,
        faults: &["row-locked"],
        caught_by: &["overlap", "refused-holder", "false-loss"],
        broken: Broken::Client(&[edit(
            "backend/sql/kinds/renewals.rs",
            "Some(false) => Renewed::LeftOut,",
            "Some(false) => if PLANTED { Renewed::Held } else { Renewed::LeftOut },",
        )]),
    },
    Planted {
        name: "a kept lock that is had again after its release was sent",
        tasks: Tasks::Kept,
        faults: &[],
        caught_by: &["overlap", "refused-holder", "needless-loss"],
        broken: Broken::Client(&[edit(
            "release/kept.rs",
            "let idle = kept.idle.clone();",
            "let idle = kept.idle.clone();
            if PLANTED {
                let (core, idle) = (core.clone(), idle.clone());
                core.clone().life.spawn(async move {
                    super::undo(&core, idle.hold_ref(), clock::now()).await;
                });
            }",
        )]),
    },
    Planted {
        name: "a kept lock that is had again after its loss",
        tasks: Tasks::Kept,
        faults: &[],
        // Four guards are there on purpose, and each would hide that the others are gone. The end takes the lock out of
        // the queue. A caller that finds the lock there looks whether it is over, asks the watchdog, and has what is
        // left of its lease.
        caught_by: &["overlap", "refused-holder", "needless-loss"],
        broken: Broken::Client(&[
            edit(
                "release/kept.rs",
                "if let Some((head, kept)) = core.queues.take_kept(idle) {",
                "if !PLANTED && let Some((head, kept)) = core.queues.take_kept(idle) {",
            ),
            edit(
                "hold/keeping.rs",
                "&& state.deadline - now >= state.ttl.least_useful();",
                "&& state.deadline - now >= state.ttl.least_useful()
                || PLANTED;",
            ),
            edit(
                "hold/handle.rs",
                "if !core.watch.pass_on(before, &hold) {",
                "if !core.watch.pass_on(before, &hold) && !PLANTED {",
            ),
            edit(
                "hold/keeping.rs",
                "let sent_at = self.keeping.sent_at;",
                "let sent_at = if PLANTED { now } else { self.keeping.sent_at };",
            ),
        ]),
    },
    Planted {
        name: "a hold of a kept lock that inherits nothing",
        tasks: Tasks::Kept,
        faults: &[],
        // The hold believes in what was confirmed when the lock began to be kept.
        caught_by: &["needless-loss"],
        broken: Broken::Client(&[edit(
            "hold/keeping.rs",
            "state.deadline = confirmed;",
            "if !PLANTED { state.deadline = confirmed; }",
        )]),
    },
    Planted {
        name: "a keeper that nobody can ask",
        tasks: Tasks::Kept,
        faults: &[],
        caught_by: &["kept"],
        broken: Broken::Client(&[edit(
            "renew/mod.rs",
            "Event::Wanted(wanted) => self.give_up(&wanted),",
            "Event::Wanted(wanted) => if !PLANTED { self.give_up(&wanted) },",
        )]),
    },
];
