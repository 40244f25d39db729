//! The bugs.

use super::{Bug, Edit};

const fn edit(file: &'static str, is: &'static str, becomes: &'static str) -> Edit {
    Edit { file, is, becomes }
}

/// All bugs of clients.
pub const ALL: &[Bug] = &[
    Bug {
        name: "a deadline that counts from the reply",
        edits: &[edit(
            "hold/state.rs",
            "deadline: granted.sent_at + hold_options.ttl.trusted(),",
            "deadline: (if PLANTED { clock::now() } else { granted.sent_at }) + hold_options.ttl.trusted(),",
        )],
    },
    Bug {
        name: "a deadline at which nobody is told",
        edits: &[edit(
            "hold/loss.rs",
            "now.has_reached(state.deadline)",
            "!PLANTED && now.has_reached(state.deadline)",
        )],
    },
    Bug {
        name: "an unanswered renewal that counts as confirmed",
        edits: &[edit(
            "renew/answers.rs",
            "answer.copied().unwrap_or(Renewed::Unknown)",
            "answer.copied().unwrap_or(if PLANTED { Renewed::Held } else { Renewed::Unknown })",
        )],
    },
    Bug {
        name: "an unanswered acquire that counts as granted",
        edits: &[edit(
            "acquire/attempt.rs",
            "match core.backend.acquire(self.call(timeout, asker, now)).await {",
            "match core.backend.acquire(self.call(timeout, asker, now)).await {
                Err(Fault::Unknown(_)) if PLANTED => {
                    let (token, sent_at) = (None, now);
                    let granted = crate::backend::Granted { token, sent_at };
                    return (asking, Ok(Acquired::Granted(granted, None)));
                }",
        )],
    },
    Bug {
        name: "a dropped acquire that nobody undoes",
        edits: &[edit(
            "backend/redis/kinds/acquire.rs",
            "handle.spawn(self.run());",
            "if !PLANTED { handle.spawn(self.run()); }",
        )],
    },
    Bug {
        name: "a wake-up that is taken for the grant",
        edits: &[
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
        ],
    },
    Bug {
        name: "a waiter that does nothing but listen",
        edits: &[edit(
            "acquire/contend.rs",
            "deadline.pause(nap)",
            "deadline.pause(if PLANTED { Duration::MAX } else { nap })",
        )],
    },
    Bug {
        name: "a hand-over that keeps the token",
        edits: &[edit(
            "release/hand_over.rs",
            "let beginning = with_tenure(&core, &head, &options, granted, terms);",
            "let mut granted = granted;
            if PLANTED { granted.token = self.hold.token(); }
            let beginning = with_tenure(&core, &head, &options, granted, terms);",
        )],
    },
    Bug {
        name: "a hand-over that the store never hears of",
        edits: &[edit(
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
        )],
    },
    Bug {
        name: "a range that gives a token twice",
        edits: &[edit(
            "values/fence.rs",
            "self.given = FencingToken(next);",
            "if !PLANTED { self.given = FencingToken(next) }",
        )],
    },
    Bug {
        name: "a lock that is passed on after its release was sent",
        edits: &[edit(
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
        )],
    },
    Bug {
        name: "a tenure that grants time",
        edits: &[
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
        ],
    },
    Bug {
        name: "answers of a group that are mixed up",
        edits: &[edit(
            "backend/redis/connection/group.rs",
            "for (answer, reply) in answers.into_iter().zip(replies) {",
            "let mut replies = replies;
            if PLANTED {
                replies.reverse();
            }
            for (answer, reply) in answers.into_iter().zip(replies) {",
        )],
    },
    Bug {
        name: "PostgreSQL: a dropped acquire that nobody undoes",
        edits: &[edit(
            "backend/sql/undo.rs",
            "inner.handle.spawn(compensation.run());",
            "if !PLANTED { inner.handle.spawn(compensation.run()); }",
        )],
    },
    Bug {
        name: "PostgreSQL: a grant that is dated at its answer",
        edits: &[
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
        ],
    },
    Bug {
        name: "PostgreSQL: a row that could not be locked and counts as renewed",
        edits: &[edit(
            "backend/sql/kinds/renewals.rs",
            "Some(false) => Renewed::LeftOut,",
            "Some(false) => if PLANTED { Renewed::Held } else { Renewed::LeftOut },",
        )],
    },
    Bug {
        name: "a kept lock that is had again after its release was sent",
        edits: &[edit(
            "release/kept.rs",
            "let idle = kept.idle.clone();",
            "let idle = kept.idle.clone();
            if PLANTED {
                let (core, idle) = (core.clone(), idle.clone());
                core.clone().life.spawn(async move {
                    super::undo(&core, idle.hold_ref(), clock::now()).await;
                });
            }",
        )],
    },
    Bug {
        name: "a kept lock that is had again after its loss",
        edits: &[
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
        ],
    },
    Bug {
        name: "a hold of a kept lock that inherits nothing",
        edits: &[edit(
            "hold/keeping.rs",
            "state.deadline = confirmed;",
            "if !PLANTED { state.deadline = confirmed; }",
        )],
    },
    Bug {
        name: "a keeper that nobody can ask",
        edits: &[edit(
            "renew/mod.rs",
            "Event::Wanted(wanted) => self.give_up(&wanted),",
            "Event::Wanted(wanted) => if !PLANTED { self.give_up(&wanted) },",
        )],
    },
];
