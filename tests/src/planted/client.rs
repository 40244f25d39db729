//! The bugs.

use super::{Bug, Edit};

const fn edit(file: &'static str, is: &'static str, becomes: &'static str) -> Edit {
    Edit { file, is, becomes }
}

/// All bugs of clients.
pub const ALL: &[Bug] = &[
    Bug {
        name: "a deadline that counts from the reply",
        seed: Some(809_787_375),
        caught_by: &["false-loss", "refused-holder", "token"],
        edits: &[edit(
            "hold/tenure.rs",
            "deadline: granted.sent_at + believed_for,",
            "deadline: (if PLANTED { clock::now() } else { granted.sent_at }) + believed_for,",
        )],
    },
    Bug {
        name: "a deadline at which nobody is told",
        seed: Some(343_846_865),
        caught_by: &["hang"],
        edits: &[edit(
            "hold/tenure.rs",
            "now.has_reached(self.deadline)",
            "!PLANTED && now.has_reached(self.deadline)",
        )],
    },
    Bug {
        name: "an unanswered renewal that counts as confirmed",
        seed: Some(294_623_697),
        caught_by: &["counter", "false-loss", "overlap"],
        edits: &[edit(
            "renew/answers.rs",
            "answer.copied().unwrap_or(Renewed::Unknown)",
            "answer.copied().unwrap_or(if PLANTED { Renewed::Held } else { Renewed::Unknown })",
        )],
    },
    Bug {
        name: "a renewal that is refused and goes on",
        seed: Some(159),
        caught_by: &["overlap"],
        edits: &[edit(
            "hold/tenure.rs",
            "Renewed::NotHeld => news =",
            "Renewed::NotHeld if PLANTED => {}
            Renewed::NotHeld => news =",
        )],
    },
    Bug {
        name: "an unanswered acquire that counts as granted",
        seed: Some(3),
        caught_by: &["false-loss", "order", "overlap", "refused-holder"],
        edits: &[edit(
            "acquire/attempt.rs",
            "match core.backend.acquire(*call).await {",
            "match core.backend.acquire(*call).await {
                Err(Fault::Unknown(_)) if PLANTED => {
                    let (token, sent_at) = (None, call.asked_at);
                    let granted = crate::backend::Granted::leased(token, sent_at);
                    return (asking, Ok(Acquired::Granted(granted, None)));
                }",
        )],
    },
    Bug {
        name: "a dropped acquire that nobody undoes",
        seed: None,
        caught_by: &[],
        edits: &[edit(
            "backend/redis/kinds/acquire.rs",
            "handle.spawn(self.run());",
            "if !PLANTED { handle.spawn(self.run()); }",
        )],
    },
    Bug {
        name: "a wake-up that is taken for the grant",
        seed: Some(1),
        caught_by: &["false-loss", "last-wait", "needless-loss", "overlap", "refused-holder"],
        edits: &[
            edit(
                "acquire/contend.rs",
                "use crate::hold::Asking;",
                "use crate::hold::Asking;

                std::thread_local! {
                    /// Whether the question that is asked next follows a message. It is polled at once, on this thread.
                    pub(crate) static TOLD: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
                }",
            ),
            edit(
                "acquire/contend.rs",
                "let mut last = LastWords::default();",
                "let mut last = LastWords::default();
                let was_told = std::sync::atomic::AtomicBool::new(false);",
            ),
            edit(
                "acquire/contend.rs",
                "listens_already => listener.heard().await,",
                "listens_already => {
                    listener.heard().await;
                    was_told.store(PLANTED, std::sync::atomic::Ordering::Relaxed);
                }",
            ),
            edit(
                "acquire/contend.rs",
                "outcome = contender.ask(now, deadline).await;",
                "TOLD.set(was_told.swap(false, std::sync::atomic::Ordering::Relaxed));
                outcome = contender.ask(now, deadline).await;",
            ),
            edit(
                "acquire/front_seat.rs",
                "let is_new = self.place.is_none();",
                "let is_new = self.place.is_none();
                if crate::acquire::contend::TOLD.take() {
                    let granted = crate::backend::Granted::leased(None, now);
                    return Asked::Granted(self.attempt.admit(None, self.holder, granted, None));
                }",
            ),
        ],
    },
    Bug {
        name: "a waiter that does nothing but listen",
        seed: Some(802_964_879),
        caught_by: &["rest"],
        edits: &[edit(
            "acquire/contend.rs",
            "None if listens_already => nap,",
            "None if listens_already => if PLANTED { Duration::MAX } else { nap },",
        )],
    },
    Bug {
        name: "a hand-over that keeps the token",
        seed: Some(3),
        caught_by: &["stale-write", "token"],
        edits: &[
            edit(
                "release/hand_over.rs",
                "let options = next.options;",
                "let (options, before) = (next.options, work.turn.token);",
            ),
            edit(
                "release/hand_over.rs",
                "let allowance = allow_turns(&core, &front, terms);",
                "let mut granted = granted;
                if PLANTED { granted.token = before; }
                let allowance = allow_turns(&core, &front, terms);",
            ),
        ],
    },
    Bug {
        name: "a hand-over that the store never hears of",
        seed: Some(3),
        caught_by: &["false-loss", "needless-loss", "refused-holder"],
        edits: &[edit(
            "release/hand_over.rs",
            "let handed = core.backend.hand_over(from, call, spare).await;",
            "let handed = if PLANTED {
                let granted = crate::backend::Granted::leased(None, clock::now());
                let (others, spare) = (None, crate::backend::Spare::Nothing);
                Ok(HandedOver::Done(granted, FurtherTurns { others, spare }))
            } else {
                core.backend.hand_over(from, call, spare).await
            };",
        )],
    },
    Bug {
        name: "a range that gives a token twice",
        seed: Some(4),
        caught_by: &["stale-write", "token"],
        edits: &[edit(
            "values/fence.rs",
            "self.given = FencingToken(next);",
            "if !PLANTED { self.given = FencingToken(next) }",
        )],
    },
    Bug {
        name: "a lock that is passed on after its release was sent",
        seed: Some(5),
        caught_by: &["counter", "false-loss", "needless-loss", "overlap", "refused-holder", "token"],
        edits: &[edit(
            "release/mod.rs",
            "hand_over::give(core, kind, successor, Offer::new(core, hold));",
            "if PLANTED {
                let (core, tenure) = (core.clone(), tenure.clone());
                core.clone().life.spawn(async move {
                    undo(&core, tenure.hold_ref(), clock::now()).await;
                });
            }
            hand_over::give(core, kind, successor, Offer::new(core, hold));",
        )],
    },
    Bug {
        name: "a tenure that grants time",
        seed: Some(5),
        caught_by: &["counter", "false-loss", "overlap", "refused-holder", "stale-write", "token"],
        edits: &[
            edit(
                "hold/sharing.rs",
                "if goes_on && state.free_until(now).is_some() {",
                "if goes_on && (PLANTED || state.free_until(now).is_some()) {",
            ),
            edit(
                "hold/sharing.rs",
                "following = state.next_turn(tenure.ttl, options, now);",
                "if PLANTED { state.deadline = now + tenure.ttl.trusted(); }
                following = state.next_turn(tenure.ttl, options, now);",
            ),
            edit(
                "values/fence.rs",
                "if next > self.last.0 || next > time {",
                "if !PLANTED && (next > self.last.0 || next > time) {",
            ),
            // Renewals would make it true.
            edit(
                "hold/tenure.rs",
                "Stage::Held(turn) => turn.wanted_lease(),",
                "Stage::Held(_) if PLANTED && state.turn > 0 && !self.holder.keeps() => None,
                Stage::Held(turn) => turn.wanted_lease(),",
            ),
        ],
    },
    Bug {
        name: "answers of a group that are mixed up",
        seed: None,
        caught_by: &[],
        edits: &[edit(
            "backend/redis/connection/sharing.rs",
            "for (answer, reply) in answers.into_iter().zip(replies) {",
            "let mut replies = replies;
            if PLANTED {
                replies.reverse();
            }
            for (answer, reply) in answers.into_iter().zip(replies) {",
        )],
    },
    Bug {
        name: "a connection of one client that is never opened again",
        seed: None,
        caught_by: &[],
        edits: &[edit(
            "backend/redis/connection/supervisor.rs",
            "outage.notice_loss(self.target.shown(), &fault);",
            "outage.notice_loss(self.target.shown(), &fault);
            // The client's number is one of the words that it was started with.
            if PLANTED && std::env::args().nth(6).as_deref() == Some(\"0\") {
                self.is_down(state, fault, None);
                return std::future::pending().await;
            }",
        )],
    },
    Bug {
        name: "PostgreSQL: a dropped acquire that nobody undoes",
        seed: None,
        caught_by: &[],
        edits: &[edit(
            "backend/sql/undo.rs",
            "inner.handle.spawn(compensating);",
            "if !PLANTED { inner.handle.spawn(compensating); }",
        )],
    },
    Bug {
        name: "PostgreSQL: a grant that is dated at its answer",
        seed: None,
        caught_by: &[],
        edits: &[
            edit(
                "backend/sql/kinds/acquire.rs",
                "Ok(Granted::leased(token, sent_at))",
                "Ok(Granted::leased(token, if PLANTED { clock::now() } else { sent_at }))",
            ),
            edit(
                "backend/sql/pool.rs",
                "let answer = tokio::time::timeout(until.answered - sent_at, asking).await;",
                "let timeout = if PLANTED { Duration::MAX } else { until.answered - sent_at };
                let answer = tokio::time::timeout(timeout, asking).await;",
            ),
            edit(
                "backend/sql/kinds/exclusive.rs",
                "let granted = Granted::leased(token, sent_at);",
                "let granted = Granted::leased(token, if PLANTED { heard } else { sent_at });",
            ),
        ],
    },
    Bug {
        name: "PostgreSQL: a row that could not be locked and counts as renewed",
        seed: None,
        caught_by: &[],
        edits: &[edit(
            "backend/sql/kinds/renewals.rs",
            "Some(false) => Renewed::LeftOut,",
            "Some(false) => if PLANTED { Renewed::Held } else { Renewed::LeftOut },",
        )],
    },
    Bug {
        name: "a kept lock that is had again after its release was sent",
        seed: Some(4),
        caught_by: &["counter", "false-loss", "needless-loss", "overlap", "refused-holder", "token"],
        edits: &[edit(
            "release/mod.rs",
            "Next::Idle(end) => {",
            "Next::Idle(end) => {
                if PLANTED && !matches!(end, IdleEnd::Release) {
                    let (core, tenure) = (core.clone(), tenure.clone());
                    core.clone().life.spawn(async move {
                        undo(&core, tenure.hold_ref(), clock::now()).await;
                    });
                }",
        )],
    },
    Bug {
        name: "a kept lock that is had again after its loss",
        seed: Some(226_022_531),
        caught_by: &["hang"],
        edits: &[
            edit(
                "hold/loss.rs",
                "let turn = state.stop_idling(self.ttl, clock::now())?;",
                "if PLANTED {
                    return None;
                }
                let turn = state.stop_idling(self.ttl, clock::now())?;",
            ),
            edit(
                "hold/tenure.rs",
                "let is_good = wants_renewal && state.overdue(now).is_none();",
                "let mut is_good = wants_renewal && state.overdue(now).is_none();
                if PLANTED {
                    is_good = wants_renewal;
                    state.deadline = now + self.ttl.trusted();
                }",
            ),
        ],
    },
    Bug {
        name: "a renewal of a kept lock that does not count",
        seed: Some(226_022_671),
        caught_by: &["needless-loss"],
        edits: &[edit(
            "hold/tenure.rs",
            "Renewed::Held => state.confirm(asked, sent_at),",
            "Renewed::Held if PLANTED && self.holder.keeps() => {}
            Renewed::Held => state.confirm(asked, sent_at),",
        )],
    },
    Bug {
        name: "a keeper that nobody can ask",
        seed: Some(809_787_370),
        caught_by: &["rest"],
        edits: &[edit(
            "renew/mod.rs",
            "Event::Wanted(wanted) => self.give_up(&wanted),",
            "Event::Wanted(wanted) => if !PLANTED { self.give_up(&wanted) },",
        )],
    },
    // Torture does not have these: only a schedule shows them, and only the simulation makes schedules.
    Bug {
        name: "a renewal that is dated at its answer",
        seed: Some(343_846_994),
        caught_by: &["counter", "false-loss", "overlap", "refused-holder", "token"],
        edits: &[edit(
            "hold/tenure.rs",
            "let (now, deadline) = (clock::now(), sent_at + ttl.trusted());",
            "let sent_at = if PLANTED { clock::now() } else { sent_at };
            let (now, deadline) = (clock::now(), sent_at + ttl.trusted());",
        )],
    },
    Bug {
        name: "a hand-over that is dated at its answer",
        seed: Some(74),
        caught_by: &["overlap", "refused-holder", "token"],
        edits: &[edit(
            "release/hand_over.rs",
            "Ok(HandedOver::Done(granted, mut terms)) => {",
            "Ok(HandedOver::Done(mut granted, mut terms)) => {
                if PLANTED { granted.sent_at = clock::now(); }",
        )],
    },
    Bug {
        name: "a suspension that nobody notices",
        seed: Some(6),
        caught_by: &["hang"],
        edits: &[edit(
            "values/clock.rs",
            "self.tokio >= other.tokio || self.boot >= other.boot",
            "self.tokio >= other.tokio || !PLANTED && self.boot >= other.boot",
        )],
    },
    Bug {
        name: "a fair waiter that leaves its place behind",
        seed: Some(24),
        caught_by: &["rest"],
        edits: &[edit(
            "acquire/fair.rs",
            "if !self.known {
            return;",
            "if !self.known || PLANTED {
            return;",
        )],
    },
    Bug {
        name: "a set whose first locks nobody gives back",
        seed: Some(2),
        caught_by: &["at-rest"],
        edits: &[edit(
            "acquire/multi.rs",
            "let handle = keeping(&handles, &mut due, acquiring).await?;",
            "let acquired = keeping(&handles, &mut due, acquiring).await;
            if PLANTED && acquired.is_err() {
                std::mem::forget(std::mem::take(&mut handles));
            }
            let handle = acquired?;",
        )],
    },
    Bug {
        name: "siblings that are inside at once",
        seed: Some(226_022_532),
        caught_by: &["overlap"],
        edits: &[edit(
            "hold/call_chain.rs",
            "Semaphore::new(WHOLE_ACCESS as usize)",
            "Semaphore::new(if PLANTED { 2 } else { 1 } * WHOLE_ACCESS as usize)",
        )],
    },
    Bug {
        name: "a body that is polled after its loss",
        seed: Some(425_182_698),
        caught_by: &["counter", "overlap"],
        edits: &[edit(
            "protect/driver.rs",
            "if !finish && let Some(loss) = held.lost_error() {",
            "if !finish && !PLANTED && let Some(loss) = held.lost_error() {",
        )],
    },
    Bug {
        name: "ids that are handed out twice",
        seed: Some(4),
        caught_by: &["ids", "ids-order"],
        edits: &[edit(
            "values/ids.rs",
            "self.first += i64::from(count);",
            "self.first += i64::from(if PLANTED { count - 1 } else { count });",
        )],
    },
    Bug {
        name: "a lost lock that takes along what is renewed with it",
        seed: Some(36),
        caught_by: &["false-loss", "healthy"],
        edits: &[edit(
            "renew/answers.rs",
            "let answer = tenure.answered(renewal, answer, *sent_at);",
            "let is_lost = |it: &Renewed| *it == Renewed::NotHeld;
            let answer = match PLANTED && answers.iter().flatten().any(is_lost) {
                true => Renewed::NotHeld,
                false => answer,
            };
            let answer = tenure.answered(renewal, answer, *sent_at);",
        )],
    },
    Bug {
        name: "a request that waits while others wait for other keys",
        seed: Some(809_787_356),
        caught_by: &["healthy", "queue", "rest"],
        edits: &[edit(
            "acquire/attempt.rs",
            "let until = call.asked_at + call.timeout;",
            "if PLANTED && core.queues.waiting() > 2 {
                clock::sleep(Duration::from_millis(100)).await;
            }
            let until = call.asked_at + call.timeout;",
        )],
    },
    Bug {
        name: "a waiter that is counted for ever",
        seed: Some(2),
        caught_by: &["at-rest"],
        edits: &[edit(
            "queue/waiter.rs",
            "shard.waiting.fetch_sub(1, Ordering::Relaxed);",
            "shard.waiting.fetch_sub(usize::from(!PLANTED), Ordering::Relaxed);",
        )],
    },
    Bug {
        name: "two acquires with one holder id",
        seed: Some(3),
        caught_by: &["false-loss", "hang", "overlap"],
        edits: &[edit(
            "values/holder.rs",
            "let number = self.next.fetch_add(1, Ordering::SeqCst);
        HolderId {",
            "let number = self.next.fetch_add(u64::from(!PLANTED), Ordering::SeqCst);
        HolderId {",
        )],
    },
    Bug {
        name: "a vote that is counted as a majority",
        seed: Some(8),
        caught_by: &["counter", "false-loss", "last-wait", "overlap"],
        edits: &[edit(
            "backend/quorum/majority.rs",
            "nodes / 2 + 1
}",
            "nodes / 2 + usize::from(!PLANTED)
}",
        )],
    },
];
