//! A model check of the rules for reservations that are believed.
//!
//! The model has one mutex, two servers and two or three processes. The search visits all states that they can reach
//! within the bounds of a [`Scenario`], breadth first, so the trace to a violation is a shortest one. In every state,
//! at most one process has the lock by its own belief, and each new hold has a larger token than the hold before.
//!
//! **Servers.** The server [`OLD`] is the master until a failover makes [`NEW`] the master. Each server has its own
//! clock. The lock, the list and the last token are copied with every write. A key expires when the clock of the master
//! reaches its expiry. Messages reach the subscribers of both servers, because servers replicate PUBLISH. But a script
//! counts only the subscribers of the master, and passes over a holder without a subscriber there.
//!
//! **Processes.** Each process has a command connection. Its requests and answers are delivered in order, after any
//! time. Requests that were under way when the connection was cut may still be executed, in any order. The process does
//! not know their outcome, and undoes them. Each process has a subscription. Its messages are delivered in any order,
//! after any time. A process takes one place after the other, and asks up to [`REQUESTS`] times for a place. It extends
//! and releases its holds, also after they are lost, and gives up places. No step ever has to be taken, so the search
//! contains processes that are killed or stopped. A hint of an older version only makes a process ask again, which it
//! may do at any time, so there are no hints. A release that puts the next holder of its process on the list is two
//! requests here, and the server may execute one directly after the other. Local clocks show the real time.
//!
//! **Left out**, because they concern every lease and not only reservations:
//! - A failover loses no writes, and a server that is no longer the master executes nothing.
//! - A failover translates the expiry of the lock to the clock of the new master. Messages keep their ends.
//! - A step forward of the clock moves the expiry of the lock, too. Messages keep their ends.
//!
//! A step forward that is not longer than [`AGE`] can hide behind the delays of the request and the message. The
//! documentation accepts it. So the steps forward of the model are longer. A longer step cannot hide, because of
//! [`Rule::Age`] and [`Rule::NoStepForward`]. Steps back may have any length.
//!
//! The search finds a violation without each of the rules in [`NEEDS`]. There is no rule about subscriptions that were cut:
//! a request puts the holder on the list once, so there is one message at most until the next request, and
//! [`Rule::CountedFirst`] sends none about a reservation that does not last. The time in the message is checked by itself,
//! so a lost message makes no other message wrong.
//!
//! The least rest of a reservation is left out: the deadline alone keeps out two holders. So is the margin for the drift of
//! clocks, which do not drift here.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// The server that is the master at first.
const OLD: u8 = 0;
/// The server that a failover makes the master.
const NEW: u8 = 1;
/// The time for which a release reserves the lock.
const RESERVED: i8 = 2;
/// The longest time between the request and the use of its message.
const AGE: i8 = 2;
const LEASE: i8 = 4;
/// The most requests for one place.
const REQUESTS: u8 = 2;
const PROCESSES: usize = 3;

/// A rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A second request for the place ends the belief. Otherwise its answer counts as that of the first.
    FirstRequest,
    /// No message is used while a request for its place is under way.
    NothingInFlight,
    /// The message was written by the server that the command connection leads to.
    ServerOfMessage,
    /// The command connection is the one that carried the request.
    SameConnection,
    /// The script counts the subscribers first, and publishes no message for a holder that it passes over. Subscribers
    /// of replicas would get that message, but the master does not count them.
    CountedFirst,
    /// The time is before the end of the reservation.
    InTime,
    /// The reading comes from the answer to the request for this place. Otherwise it is the newest one of any answer.
    OwnReading,
    /// The request is not older than [`AGE`].
    Age,
    /// By the clock of the reading, the reservation has begun.
    NoStepForward,
    /// The belief ends when a message is used, even if it is not believed. Otherwise the message may come again.
    Once,
    /// To give up the place ends the belief.
    Undo,
    /// The release draws a token for the reservation. Otherwise the next holder has the token of the holder before.
    DrawnToken,
}

/// All rules but one, or all.
#[derive(Clone, Copy, Debug)]
struct Rules {
    without: Option<Rule>,
}

impl Rules {
    const ALL: Rules = Rules { without: None };

    fn without(rule: Rule) -> Rules {
        Rules {
            without: Some(rule),
        }
    }

    fn keep(self, rule: Rule) -> bool {
        self.without != Some(rule)
    }
}

/// What may go wrong in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    CommandCut,
    SubscriptionCut,
    Failover,
    /// A message is used, and stays in the socket as well.
    Repeat,
    /// A process gets a message about an id that no holder has.
    Forgery,
    /// The clock of the master is set, once.
    Step(i8),
}

/// The bounds of one search.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    name: &'static str,
    processes: usize,
    /// The number of places that each process takes. The first process begins as the holder, with one place used up.
    places: [u8; PROCESSES],
    /// A process that uses an older version: it believes nothing, and its releases publish hints.
    older: Option<usize>,
    /// The server that the subscriptions lead to at first.
    subscribed: u8,
    /// The end of time.
    until: i8,
    /// How far the clock of the new server is ahead.
    ahead: i8,
    faults: &'static [Fault],
    most_faults: u8,
    extends: bool,
    gives_up: bool,
    asks_again: bool,
}

/// A list of at most `N` items without an allocation, because the search copies and hashes it often.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Few<T, const N: usize>([Option<T>; N]);

impl<T: Copy + PartialEq, const N: usize> Few<T, N> {
    const EMPTY: Few<T, N> = Few([None; N]);

    fn len(&self) -> usize {
        self.0.iter().position(Option::is_none).unwrap_or(N)
    }

    fn first(&self) -> Option<T> {
        self.0[0]
    }

    fn push(&mut self, item: T) {
        let end = self.len();
        self.0[end] = Some(item);
    }

    fn take(&mut self, index: usize) -> T {
        let item = self.0[index].take();
        self.0[index..].rotate_left(1);
        item.unwrap()
    }

    fn remove(&mut self, item: T) {
        if let Some(index) = self.0.iter().position(|other| *other == Some(item)) {
            self.take(index);
        }
    }

    fn contains(&self, item: T) -> bool {
        self.0.contains(&Some(item))
    }

    fn items(&self) -> impl Iterator<Item = T> {
        self.0.iter().map_while(|item| *item)
    }
}

/// The id of a holder. Each place has a fresh one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    process: u8,
    number: u8,
}

impl Holder {
    fn process(self) -> usize {
        usize::from(self.process)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Lock {
    holder: Holder,
    /// The time of the master's clock at which the lock is free.
    expiry: i8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Verb {
    Ask,
    Extend,
    Release,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Request {
    verb: Verb,
    holder: Holder,
    sent_at: i8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Reply {
    Granted { token: i8 },
    Busy { reading: i8 },
    Extended,
    NotHeld,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Answer {
    holder: Holder,
    sent_at: i8,
    reply: Reply,
}

/// A message that the lock is reserved.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Message {
    holder: Holder,
    server: u8,
    /// The end of the reservation by the clock of that server.
    end: i8,
    token: i8,
}

/// A place on the list.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    holder: Holder,
    requests: u8,
    under_way: bool,
}

/// What a process knows of a place for which a message may come.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Expected {
    holder: Holder,
    /// The number of the command connection that carried the request.
    connection: u8,
    sent_at: i8,
    /// The time of the server in the answer. `None` before the answer.
    reading: Option<i8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Hold {
    holder: Holder,
    /// The local time from which on the hold is lost.
    deadline: i8,
    /// Whether an extension was sent.
    extended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Process {
    places_left: u8,
    place: Option<Place>,
    expected: Option<Expected>,
    hold: Option<Hold>,
    /// The number of the command connection, and the server that it leads to.
    connection: u8,
    server: u8,
    /// The server that the subscription leads to.
    subscription: u8,
    requests: Few<Request, 4>,
    answers: Few<Answer, 3>,
    /// Requests on a connection that was cut. They may still be executed.
    strays: Few<Request, 5>,
    messages: Few<Message, 3>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    time: i8,
    /// How far the clocks of the servers are ahead of the real time.
    offsets: [i8; 2],
    master: u8,
    lock: Option<Lock>,
    list: Few<Holder, 6>,
    /// The last token. All tokens are counted from that of the last hold that a process began.
    last_token: i8,
    /// Whether a hold began with a token that was not larger.
    fell: bool,
    stepped: bool,
    faults_left: u8,
    processes: [Process; PROCESSES],
}

/// One step. The number is that of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Ask(usize),
    AskAgain(usize),
    GiveUp(usize),
    Extend(usize),
    Release(usize),
    /// The server executes the next request of the process.
    Execute(usize),
    /// The server executes a request of a connection that was cut.
    ExecuteStray(usize, usize),
    /// The process gets the next answer.
    Answer(usize),
    /// The process gets a message, and uses it.
    Use(usize, usize),
    UseAndKeep(usize, usize),
    GetForged(usize),
    /// The process gets the server's time in an answer to a request about another lock.
    ReadTime(usize),
    /// The command connection is cut. The next one leads to the master.
    CutCommands(usize),
    /// The subscription is cut. The messages that have not arrived are lost. The next one leads to that server.
    CutSubscription(usize, u8),
    /// As above, but all messages have arrived and were not used yet.
    CutSubscriptionAfterArrival(usize, u8),
    Failover,
    SetClock(i8),
    /// As above, but the key that has expired by then is already deleted.
    ExpireAndSetClock(i8),
}

/// A violation.
#[derive(Debug, PartialEq, Eq)]
enum Violation {
    TwoHolders,
    TokenFell,
}

impl Process {
    fn new(places: u8, subscription: u8) -> Process {
        Process {
            places_left: places,
            place: None,
            expected: None,
            hold: None,
            connection: 0,
            server: OLD,
            subscription,
            requests: Few::EMPTY,
            answers: Few::EMPTY,
            strays: Few::EMPTY,
            messages: Few::EMPTY,
        }
    }

    fn send(&mut self, verb: Verb, holder: Holder, now: i8) {
        self.requests.push(Request {
            verb,
            holder,
            sent_at: now,
        });
    }

    fn holds(&self, now: i8) -> bool {
        self.hold.is_some_and(|hold| now < hold.deadline)
    }

    /// Expects a message for a request that is sent now.
    fn expect(&mut self, holder: Holder, now: i8) {
        self.expected = Some(Expected {
            holder,
            connection: self.connection,
            sent_at: now,
            reading: None,
        });
    }

    fn forget(&mut self, holder: Holder) {
        if self.expects(holder) {
            self.expected = None;
        }
    }

    fn expects(&self, holder: Holder) -> bool {
        self.expected
            .is_some_and(|expected| expected.holder == holder)
    }

    /// Returns `true` if a request for the place of the holder is not answered.
    fn asks_for(&self, holder: Holder) -> bool {
        self.place
            .is_some_and(|place| place.holder == holder && place.under_way)
    }

    /// Returns the holders of the requests whose answers are lost if the connection is cut.
    fn unanswered(&self) -> Few<Holder, 4> {
        let mut holders = Few::EMPTY;
        let asks = self
            .requests
            .items()
            .filter(|request| request.verb == Verb::Ask);
        let replies = self.answers.items().filter(|answer| answer.is_to_ask());
        let asked = asks.map(|request| request.holder);
        for holder in asked.chain(replies.map(|answer| answer.holder)) {
            if !holders.contains(holder) {
                holders.push(holder);
            }
        }
        holders
    }

    /// Makes all lost holds equal, and drops the messages that nobody expects.
    fn tidy(&mut self, now: i8) {
        let hold = self.hold.as_mut();
        if let Some(hold) = hold.filter(|hold| hold.deadline <= now) {
            hold.deadline = i8::MIN;
            hold.extended = true;
        }
        if self.messages.first().is_none() {
            return;
        }
        let messages = std::mem::replace(&mut self.messages, Few::EMPTY);
        for message in messages.items() {
            if self.expects(message.holder) {
                self.messages.push(message);
            }
        }
    }

    /// Puts the answer on its way. An answer that nobody waits for any more is left out.
    fn note_answer(&mut self, answer: Option<Answer>) {
        let Some(answer) = answer else {
            return;
        };
        let holder = answer.holder;
        let is_wanted = if answer.is_to_ask() {
            self.place.is_some_and(|place| place.holder == holder) || self.expects(holder)
        } else {
            self.hold.is_some_and(|hold| hold.holder == holder)
        };
        if is_wanted {
            self.answers.push(answer);
        }
    }
}

impl Answer {
    fn is_to_ask(self) -> bool {
        matches!(self.reply, Reply::Granted { .. } | Reply::Busy { .. })
    }
}

/// The protocol, in one scenario and with some of the rules.
#[derive(Clone, Copy)]
struct Model {
    scenario: Scenario,
    rules: Rules,
}

impl Model {
    /// Returns the first state: the first process has the lock.
    fn first_state(&self) -> State {
        let holder = Holder {
            process: 0,
            number: self.scenario.places[0],
        };
        let subscribed = self.scenario.subscribed;
        let mut processes = self
            .scenario
            .places
            .map(|places| Process::new(places, subscribed));
        processes[0].hold = Some(Hold {
            holder,
            deadline: LEASE,
            extended: true,
        });
        State {
            time: 0,
            offsets: [0, self.scenario.ahead],
            master: OLD,
            lock: Some(Lock {
                holder,
                expiry: LEASE,
            }),
            list: Few::EMPTY,
            last_token: 0,
            fell: false,
            stepped: false,
            faults_left: self.scenario.most_faults,
            processes,
        }
    }

    /// Collects the steps that are possible in a state.
    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        if state.time < self.scenario.until {
            steps.push(Step::Tick);
        }
        for index in 0..self.scenario.processes {
            self.own_steps(state, index, steps);
            self.network_steps(state, index, steps);
            self.cuts(state, index, steps);
        }
        self.faults_of_servers(state, steps);
    }

    /// Collects the steps that a process takes by itself.
    fn own_steps(&self, state: &State, index: usize, steps: &mut Vec<Step>) {
        let process = &state.processes[index];
        if let Some(hold) = process.hold {
            steps.push(Step::Release(index));
            if self.scenario.extends && !hold.extended && process.holds(state.time) {
                steps.push(Step::Extend(index));
            }
        }
        let Some(place) = process.place else {
            if process.places_left > 0 && process.hold.is_none() {
                steps.push(Step::Ask(index));
            }
            return;
        };
        if self.scenario.gives_up {
            steps.push(Step::GiveUp(index));
        }
        if self.scenario.asks_again && !place.under_way && place.requests < REQUESTS {
            steps.push(Step::AskAgain(index));
        }
    }

    fn network_steps(&self, state: &State, index: usize, steps: &mut Vec<Step>) {
        let process = &state.processes[index];
        if process.server == state.master && process.requests.first().is_some() {
            steps.push(Step::Execute(index));
        }
        for stray in 0..process.strays.len() {
            steps.push(Step::ExecuteStray(index, stray));
        }
        if process.answers.first().is_some() {
            steps.push(Step::Answer(index));
        }
        for (position, message) in process.messages.items().enumerate() {
            if self.may_use(process, message) {
                steps.push(Step::Use(index, position));
                if self.may_fail(state, Fault::Repeat) {
                    steps.push(Step::UseAndKeep(index, position));
                }
            }
        }
        // Anybody may forge at any time, so it is not counted as a fault.
        if self.scenario.faults.contains(&Fault::Forgery) {
            steps.push(Step::GetForged(index));
        }
        let is_answered = process
            .expected
            .is_some_and(|expected| expected.reading.is_some());
        if !self.rules.keep(Rule::OwnReading) && is_answered && process.server == state.master {
            steps.push(Step::ReadTime(index));
        }
    }

    /// Returns `true` if the process looks at the message now. Before the answer, it waits.
    fn may_use(&self, process: &Process, message: Message) -> bool {
        let is_answered = process.expected.is_some_and(|expected| {
            expected.holder == message.holder && expected.reading.is_some()
        });
        let is_free = !self.rules.keep(Rule::NothingInFlight) || !process.asks_for(message.holder);
        is_answered && is_free
    }

    fn cuts(&self, state: &State, index: usize, steps: &mut Vec<Step>) {
        let process = &state.processes[index];
        // A server that is no longer the master answers nothing more, so a cut follows by itself.
        if self.may_fail(state, Fault::CommandCut) || process.server != state.master {
            steps.push(Step::CutCommands(index));
        }
        if self.may_fail(state, Fault::SubscriptionCut) {
            for server in [OLD, NEW] {
                steps.push(Step::CutSubscription(index, server));
                if process.messages.first().is_some() {
                    steps.push(Step::CutSubscriptionAfterArrival(index, server));
                }
            }
        }
    }

    fn faults_of_servers(&self, state: &State, steps: &mut Vec<Step>) {
        if state.master == OLD && self.may_fail(state, Fault::Failover) {
            steps.push(Step::Failover);
        }
        for fault in self.scenario.faults {
            let Fault::Step(length) = *fault else {
                continue;
            };
            if !state.stepped && state.faults_left > 0 {
                steps.push(Step::SetClock(length));
                if length < 0 && state.lock.is_some() && state.unexpired().is_none() {
                    steps.push(Step::ExpireAndSetClock(length));
                }
            }
        }
    }

    fn may_fail(&self, state: &State, fault: Fault) -> bool {
        state.faults_left > 0 && self.scenario.faults.contains(&fault)
    }

    /// Takes a step.
    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Tick => state.time += 1,
            Step::Ask(index) => self.ask_first(state, index),
            Step::AskAgain(index) => self.ask_again(state, index),
            Step::GiveUp(index) => self.give_up(state, index),
            Step::Extend(index) => extend(state, index),
            Step::Release(index) => release(state, index),
            Step::Execute(index) => {
                let request = state.processes[index].requests.take(0);
                let answer = self.execute(state, request);
                state.processes[index].note_answer(answer);
            }
            Step::ExecuteStray(index, stray) => {
                let request = state.processes[index].strays.take(stray);
                self.execute(state, request);
            }
            Step::Answer(index) => self.get_answer(state, index),
            Step::Use(index, position) => self.use_message(state, index, position, false),
            Step::UseAndKeep(index, position) => {
                state.faults_left -= 1;
                self.use_message(state, index, position, true);
            }
            Step::GetForged(index) => get_forged(state, index),
            Step::ReadTime(index) => read_time(state, index),
            Step::CutCommands(index) => cut_commands(state, index),
            Step::CutSubscription(index, server) => {
                state.processes[index].messages = Few::EMPTY;
                cut_subscription(state, index, server);
            }
            Step::CutSubscriptionAfterArrival(index, server) => {
                cut_subscription(state, index, server);
            }
            Step::Failover => fail_over(state),
            Step::SetClock(length) => set_clock(state, length),
            Step::ExpireAndSetClock(length) => {
                state.lock = None;
                set_clock(state, length);
            }
        }
        self.tidy(state);
    }

    /// Forgets what can have no effect any more, so that equal states look equal.
    fn tidy(&self, state: &mut State) {
        // Only a step back can bring back a key that has expired and is not deleted.
        let may_step_back = !state.stepped && state.faults_left > 0 && self.has_steps_back();
        if !may_step_back {
            state.lock = state.unexpired();
        }
        for process in &mut state.processes {
            let expected = process.expected;
            if expected.is_some_and(|expected| self.is_hopeless(state.time, process, expected)) {
                process.expected = None;
            }
            process.tidy(state.time);
        }
    }

    /// Returns `true` if no message can be believed any more: to use one would only end the belief.
    fn is_hopeless(&self, now: i8, process: &Process, expected: Expected) -> bool {
        let keep = |rule| self.rules.keep(rule);
        let is_broken = keep(Rule::Age) && now - expected.sent_at > AGE
            || keep(Rule::SameConnection) && expected.connection != process.connection;
        is_broken && keep(Rule::Once) && keep(Rule::OwnReading)
    }

    fn has_steps_back(&self) -> bool {
        let faults = self.scenario.faults;
        faults
            .iter()
            .any(|fault| matches!(fault, Fault::Step(length) if *length < 0))
    }

    fn ask_first(&self, state: &mut State, index: usize) {
        let process = &mut state.processes[index];
        process.places_left -= 1;
        let holder = Holder {
            process: u8::try_from(index).unwrap(),
            number: process.places_left,
        };
        process.place = Some(Place {
            holder,
            requests: 1,
            under_way: true,
        });
        if self.scenario.older != Some(index) {
            process.expect(holder, state.time);
        }
        process.send(Verb::Ask, holder, state.time);
    }

    fn ask_again(&self, state: &mut State, index: usize) {
        let process = &mut state.processes[index];
        let place = process.place.as_mut().unwrap();
        place.requests += 1;
        place.under_way = true;
        let holder = place.holder;
        if !self.rules.keep(Rule::FirstRequest) {
            process.expect(holder, state.time);
        } else if self.rules.keep(Rule::NothingInFlight) {
            process.forget(holder);
        }
        process.send(Verb::Ask, holder, state.time);
    }

    fn give_up(&self, state: &mut State, index: usize) {
        let process = &mut state.processes[index];
        let holder = process.place.take().unwrap().holder;
        if self.rules.keep(Rule::Undo) {
            process.forget(holder);
        }
        process.send(Verb::Release, holder, state.time);
    }

    /// Executes a request at the master.
    fn execute(&self, state: &mut State, request: Request) -> Option<Answer> {
        state.lock = state.unexpired();
        let holder = request.holder;
        let reply = match request.verb {
            Verb::Ask => self.acquire(state, holder),
            Verb::Extend => lengthen(state, holder),
            Verb::Release => {
                self.end(state, holder);
                return None;
            }
        };
        Some(Answer {
            holder,
            sent_at: request.sent_at,
            reply,
        })
    }

    /// The script `listed_acquire`.
    fn acquire(&self, state: &mut State, holder: Holder) -> Reply {
        let reading = state.clock();
        if let Some(lock) = state.lock {
            if lock.holder == holder {
                lengthen(state, holder);
                return state.grant();
            }
            state.enlist(holder);
            return Reply::Busy { reading };
        }
        if state.list.first().is_some_and(|first| first != holder) {
            state.enlist(holder);
            if self.reserve_first(state, Some(holder), None) {
                return Reply::Busy { reading };
            }
        }
        state.list.remove(holder);
        state.lock = Some(Lock {
            holder,
            expiry: reading + LEASE,
        });
        state.grant()
    }

    /// The script `listed_release`.
    fn end(&self, state: &mut State, holder: Holder) {
        state.list.remove(holder);
        if state.lock.is_none_or(|lock| lock.holder != holder) {
            return;
        }
        state.lock = None;
        if state.list.first().is_none() {
            return;
        }
        let mut token = None;
        if self.scenario.older != Some(holder.process()) {
            state.last_token += i8::from(self.rules.keep(Rule::DrawnToken));
            token = Some(state.last_token);
        }
        self.reserve_first(state, None, token);
    }

    /// Reserves the lock for the first holder on the list, and publishes a message if there is a token. Passes over the
    /// holders that the master counts no subscriber for. Returns `false` if nobody is left but `but`.
    fn reserve_first(&self, state: &mut State, but: Option<Holder>, token: Option<i8>) -> bool {
        while let Some(first) = state.list.first().filter(|first| Some(*first) != but) {
            state.list.take(0);
            let end = state.clock() + RESERVED;
            let (master, receiver) = (state.master, &mut state.processes[first.process()]);
            let is_counted = receiver.subscription == master;
            let is_published = is_counted || !self.rules.keep(Rule::CountedFirst);
            if let Some(token) = token.filter(|_| is_published && receiver.expects(first)) {
                receiver.messages.push(Message {
                    holder: first,
                    server: master,
                    end,
                    token,
                });
            }
            if is_counted {
                state.lock = Some(Lock {
                    holder: first,
                    expiry: end,
                });
                return true;
            }
        }
        false
    }

    fn get_answer(&self, state: &mut State, index: usize) {
        let now = state.time;
        let process = &mut state.processes[index];
        let Answer {
            holder,
            sent_at,
            reply,
        } = process.answers.take(0);
        match reply {
            Reply::Granted { token } => {
                let place = process.place.take_if(|place| place.holder == holder);
                process.forget(holder);
                // The caller of a place that is over has sent a release already.
                if place.is_none() {
                    return;
                }
                if now < sent_at + LEASE {
                    state.begin(index, holder, sent_at + LEASE, token);
                } else {
                    process.send(Verb::Release, holder, now);
                }
            }
            Reply::Busy { reading } => self.get_busy(process, holder, reading),
            Reply::Extended => {
                let hold = process.hold.as_mut().filter(|hold| hold.holder == holder);
                if let Some(hold) = hold.filter(|hold| now < hold.deadline) {
                    hold.deadline = hold.deadline.max(sent_at + LEASE);
                }
            }
            Reply::NotHeld => _ = process.hold.take_if(|hold| hold.holder == holder),
        }
    }

    fn get_busy(&self, process: &mut Process, holder: Holder, reading: i8) {
        let Some(place) = process
            .place
            .as_mut()
            .filter(|place| place.holder == holder)
        else {
            return;
        };
        place.under_way = false;
        let counts = place.requests == 1 || !self.rules.keep(Rule::FirstRequest);
        if !counts {
            process.forget(holder);
        } else if let Some(expected) = &mut process.expected
            && expected.holder == holder
        {
            expected.reading = Some(reading);
        }
    }

    /// Uses a message that has arrived.
    fn use_message(&self, state: &mut State, index: usize, position: usize, stays: bool) {
        let process = &mut state.processes[index];
        let message = process.messages.0[position].unwrap();
        if !stays {
            process.messages.take(position);
        }
        let expected = process.expected.unwrap();
        let deadline = self.believed_until(state.time, process, expected, message);
        if self.rules.keep(Rule::Once) {
            process.forget(message.holder);
        }
        let Some(deadline) = deadline.filter(|_| process.hold.is_none()) else {
            return;
        };
        process
            .place
            .take_if(|place| place.holder == message.holder);
        state.begin(index, message.holder, deadline, message.token);
    }

    /// Returns the deadline of a hold that begins now with a message, if the message is believed.
    fn believed_until(
        &self,
        now: i8,
        process: &Process,
        expected: Expected,
        message: Message,
    ) -> Option<i8> {
        let keep = |rule| self.rules.keep(rule);
        let reading = expected.reading?;
        let age = now - expected.sent_at;
        let end = expected.sent_at + (message.end - reading);
        let breaks = [
            (Rule::ServerOfMessage, message.server != process.server),
            (
                Rule::SameConnection,
                expected.connection != process.connection,
            ),
            (Rule::InTime, now >= end),
            (Rule::Age, age > AGE),
            (Rule::NoStepForward, message.end - RESERVED > reading + age),
        ];
        if breaks
            .iter()
            .any(|(rule, is_broken)| *is_broken && keep(*rule))
        {
            return None;
        }
        Some(if keep(Rule::InTime) {
            end
        } else {
            now + RESERVED
        })
    }
}

impl State {
    /// Returns the time of the master's clock.
    fn clock(&self) -> i8 {
        self.time + self.offsets[usize::from(self.master)]
    }

    fn unexpired(&self) -> Option<Lock> {
        self.lock.filter(|lock| self.clock() < lock.expiry)
    }

    fn enlist(&mut self, holder: Holder) {
        if !self.list.contains(holder) {
            self.list.push(holder);
        }
    }

    fn grant(&mut self) -> Reply {
        self.last_token += 1;
        Reply::Granted {
            token: self.last_token,
        }
    }

    /// Begins a hold of a process.
    fn begin(&mut self, index: usize, holder: Holder, deadline: i8, token: i8) {
        self.fell |= token <= 0;
        self.count_tokens_from(token);
        self.processes[index].hold = Some(Hold {
            holder,
            deadline,
            extended: false,
        });
    }

    /// Counts all tokens from that of the newest hold, so that equal states look equal.
    fn count_tokens_from(&mut self, token: i8) {
        self.last_token -= token;
        for process in &mut self.processes {
            for message in process.messages.0.iter_mut().flatten() {
                message.token -= token;
            }
            for answer in process.answers.0.iter_mut().flatten() {
                if let Reply::Granted { token: granted } = &mut answer.reply {
                    *granted -= token;
                }
            }
        }
    }

    fn violation(&self) -> Option<Violation> {
        let holders = self
            .processes
            .iter()
            .filter(|process| process.holds(self.time));
        if holders.count() > 1 {
            return Some(Violation::TwoHolders);
        }
        self.fell.then_some(Violation::TokenFell)
    }
}

/// Extends the lease of the lock at the master, if the holder has it. A lease is never shortened.
fn lengthen(state: &mut State, holder: Holder) -> Reply {
    let expiry = state.clock() + LEASE;
    match &mut state.lock {
        Some(lock) if lock.holder == holder => {
            lock.expiry = lock.expiry.max(expiry);
            Reply::Extended
        }
        _ => Reply::NotHeld,
    }
}

fn extend(state: &mut State, index: usize) {
    let process = &mut state.processes[index];
    let hold = process.hold.as_mut().unwrap();
    hold.extended = true;
    let holder = hold.holder;
    process.send(Verb::Extend, holder, state.time);
}

/// Ends a hold, which may be lost already.
fn release(state: &mut State, index: usize) {
    let process = &mut state.processes[index];
    let holder = process.hold.take().unwrap().holder;
    process.send(Verb::Release, holder, state.time);
}

fn read_time(state: &mut State, index: usize) {
    let (now, clock) = (state.time, state.clock());
    let expected = state.processes[index].expected.as_mut().unwrap();
    expected.sent_at = now;
    expected.reading = Some(clock);
}

/// Puts a message in the socket whose holder is unknown. Everything else of it would be believed.
fn get_forged(state: &mut State, index: usize) {
    let end = state.clock() + RESERVED;
    let process = &mut state.processes[index];
    process.messages.push(Message {
        holder: Holder {
            process: u8::try_from(index).unwrap(),
            number: u8::MAX,
        },
        server: process.server,
        end,
        token: state.last_token + 1,
    });
}

/// Cuts the command connection. The process does not know the outcome of its requests, so it undoes them.
fn cut_commands(state: &mut State, index: usize) {
    let (now, master) = (state.time, state.master);
    let process = &mut state.processes[index];
    // The cut follows by itself from a failover, and is not counted again.
    if process.server == master {
        state.faults_left -= 1;
    }
    let unknown = process.unanswered();
    // A server that is no longer the master executes nothing.
    if process.server == master {
        for request in process.requests.items() {
            process.strays.push(request);
        }
    }
    process.requests = Few::EMPTY;
    process.answers = Few::EMPTY;
    process.connection += 1;
    process.server = master;
    for holder in unknown.items() {
        process.place.take_if(|place| place.holder == holder);
        process.forget(holder);
        process.send(Verb::Release, holder, now);
    }
}

fn cut_subscription(state: &mut State, index: usize, server: u8) {
    state.faults_left -= 1;
    let process = &mut state.processes[index];
    process.subscription = server;
}

/// Makes the new server the master.
fn fail_over(state: &mut State) {
    state.faults_left -= 1;
    let ahead = state.offsets[usize::from(NEW)] - state.offsets[usize::from(OLD)];
    state.master = NEW;
    if let Some(lock) = &mut state.lock {
        lock.expiry += ahead;
    }
    for process in &mut state.processes {
        process.strays = Few::EMPTY;
    }
}

/// Sets the clock of the master.
fn set_clock(state: &mut State, length: i8) {
    state.faults_left -= 1;
    state.stepped = true;
    state.offsets[usize::from(state.master)] += length;
    if let Some(lock) = &mut state.lock {
        lock.expiry += length.max(0);
    }
}

/// A hasher that is fast without optimisation, too.
#[derive(Default)]
struct QuickHasher(u64);

impl QuickHasher {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.mix(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.mix(u64::from(byte));
    }

    fn write_i8(&mut self, byte: i8) {
        self.mix(u64::from(byte.cast_unsigned()));
    }

    fn write_isize(&mut self, word: isize) {
        self.mix(u64::try_from(word).unwrap_or(u64::MAX));
    }
}

type Seen = HashSet<State, BuildHasherDefault<QuickHasher>>;

/// The result of a search.
struct Outcome {
    states: usize,
    /// The steps to a violation.
    violation: Option<(Violation, Vec<Step>)>,
}

/// Visits all states, or those up to the first violation.
fn search(model: &Model) -> Outcome {
    let first = model.first_state();
    let mut states = vec![first];
    let mut origins = vec![(0, Step::Tick)];
    let mut seen = Seen::from_iter([first]);
    let (mut current, mut steps) = (0, Vec::new());
    while current < states.len() {
        steps.clear();
        model.steps(&states[current], &mut steps);
        for step in &steps {
            let mut next = states[current];
            model.take(&mut next, *step);
            if !seen.insert(next) {
                continue;
            }
            states.push(next);
            origins.push((current, *step));
            if let Some(violation) = next.violation() {
                return Outcome {
                    states: states.len(),
                    violation: Some((violation, trace(&origins))),
                };
            }
        }
        current += 1;
    }
    Outcome {
        states: states.len(),
        violation: None,
    }
}

/// Returns the steps to the last state.
fn trace(origins: &[(usize, Step)]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut at = origins.len() - 1;
    while at > 0 {
        let (before, step) = origins[at];
        steps.push(step);
        at = before;
    }
    steps.reverse();
    steps
}

/// Two processes that each take one place more. Nothing goes wrong.
const PLAIN: Scenario = Scenario {
    name: "plain",
    processes: 2,
    places: [1, 1, 1],
    older: None,
    subscribed: OLD,
    until: 4,
    ahead: 0,
    faults: &[],
    most_faults: 0,
    extends: false,
    gives_up: false,
    asks_again: false,
};

const AGAIN: Scenario = Scenario {
    name: "a process asks again",
    until: 6,
    faults: &[Fault::Forgery],
    asks_again: true,
    ..PLAIN
};

const THREE: Scenario = Scenario {
    name: "three processes",
    processes: 3,
    places: [0, 1, 1],
    asks_again: true,
    ..PLAIN
};

const OLDER_RELEASE: Scenario = Scenario {
    name: "an older version releases",
    older: Some(0),
    ..THREE
};

const OLDER_WAITER: Scenario = Scenario {
    name: "an older version waits",
    older: Some(1),
    ..THREE
};

const GIVES_UP: Scenario = Scenario {
    name: "a process gives up",
    gives_up: true,
    ..PLAIN
};

const EXTENDS: Scenario = Scenario {
    name: "a process extends its hold",
    until: 5,
    extends: true,
    ..PLAIN
};

const COMMAND_CUT: Scenario = Scenario {
    name: "a command connection is cut",
    faults: &[Fault::CommandCut],
    most_faults: 1,
    asks_again: true,
    until: 3,
    ..PLAIN
};

const SUBSCRIPTION_CUTS: Scenario = Scenario {
    name: "two subscriptions are cut",
    faults: &[Fault::SubscriptionCut],
    most_faults: 2,
    until: 3,
    ..PLAIN
};

const FAILOVER: Scenario = Scenario {
    name: "a failover to a clock ahead",
    faults: &[Fault::Failover],
    most_faults: 1,
    ahead: 1,
    ..PLAIN
};

const FAILOVER_BEHIND: Scenario = Scenario {
    name: "a failover to a clock behind",
    ahead: -1,
    ..FAILOVER
};

const FAILOVER_OF_SUBSCRIBED: Scenario = Scenario {
    name: "a failover to the server of the subscriptions",
    subscribed: NEW,
    ..FAILOVER
};

const FAILOVER_AND_CUT: Scenario = Scenario {
    name: "a failover, and a subscription is cut",
    faults: &[Fault::Failover, Fault::SubscriptionCut],
    most_faults: 2,
    until: 2,
    ..FAILOVER
};

const REPEATS: Scenario = Scenario {
    name: "messages are repeated",
    faults: &[Fault::Repeat],
    most_faults: 2,
    until: 6,
    ..PLAIN
};

const STEP_BACK: Scenario = Scenario {
    name: "a step back",
    faults: &[Fault::Step(-RESERVED)],
    most_faults: 1,
    asks_again: true,
    ..PLAIN
};

const LONG_STEP_BACK: Scenario = Scenario {
    name: "a long step back",
    faults: &[Fault::Step(-LEASE)],
    ..STEP_BACK
};

const STEP_FORWARD: Scenario = Scenario {
    name: "a step forward",
    faults: &[Fault::Step(AGE + 1)],
    most_faults: 1,
    ..PLAIN
};

const SCENARIOS: [Scenario; 17] = [
    PLAIN,
    AGAIN,
    THREE,
    OLDER_RELEASE,
    OLDER_WAITER,
    GIVES_UP,
    EXTENDS,
    COMMAND_CUT,
    SUBSCRIPTION_CUTS,
    FAILOVER,
    FAILOVER_BEHIND,
    FAILOVER_OF_SUBSCRIBED,
    FAILOVER_AND_CUT,
    REPEATS,
    STEP_BACK,
    LONG_STEP_BACK,
    STEP_FORWARD,
];

/// Each rule, a scenario that needs it, and what happens there without it.
const NEEDS: [(Rule, Scenario, Violation); 12] = [
    (Rule::FirstRequest, STEP_BACK, Violation::TwoHolders),
    (Rule::NothingInFlight, COMMAND_CUT, Violation::TwoHolders),
    (
        Rule::ServerOfMessage,
        FAILOVER_OF_SUBSCRIBED,
        Violation::TwoHolders,
    ),
    (
        Rule::SameConnection,
        FAILOVER_OF_SUBSCRIBED,
        Violation::TwoHolders,
    ),
    (Rule::CountedFirst, FAILOVER, Violation::TwoHolders),
    (Rule::InTime, PLAIN, Violation::TwoHolders),
    (Rule::OwnReading, STEP_BACK, Violation::TwoHolders),
    (Rule::Age, STEP_FORWARD, Violation::TwoHolders),
    (Rule::NoStepForward, STEP_FORWARD, Violation::TwoHolders),
    (Rule::Once, REPEATS, Violation::TokenFell),
    (Rule::Undo, GIVES_UP, Violation::TwoHolders),
    (Rule::DrawnToken, PLAIN, Violation::TokenFell),
];

/// Searches a scenario, which must have no violation.
fn check(scenario: Scenario, rules: Rules) {
    let outcome = search(&Model { scenario, rules });
    println!("{}: {} states", scenario.name, outcome.states);
    if let Some((violation, steps)) = outcome.violation {
        panic!("{}: {violation:?} after {steps:?}", scenario.name);
    }
}

#[test]
fn with_all_rules_one_process_has_the_lock() {
    for scenario in SCENARIOS {
        check(scenario, Rules::ALL);
    }
}

#[test]
fn each_rule_keeps_out_a_violation() {
    for (rule, scenario, expected) in NEEDS {
        let rules = Rules::without(rule);
        let outcome = search(&Model { scenario, rules });
        println!(
            "without {rule:?}: {} states, {:?}",
            outcome.states, outcome.violation
        );
        let found = outcome.violation.map(|(violation, _)| violation);
        assert_eq!(
            found,
            Some(expected),
            "without {rule:?} in {}",
            scenario.name
        );
    }
}
