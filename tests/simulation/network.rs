//! What becomes of each message.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use lock_runtime::simulation::{Fate, Message, Network, Passing};

use crate::plan::Weather;

/// The network of a simulation. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Roads(Arc<Mutex<State>>);

struct State {
    rng: Rng,
    weather: Weather,
    /// Nothing passes between a process and the stores until then.
    cut_off: HashMap<usize, Duration>,
    /// A process cannot send until then, and knows it.
    refused: HashMap<usize, Duration>,
    /// What is sent to a process comes so much later until then.
    late: HashMap<usize, (Duration, Duration)>,
    /// A store does not hear or answer until then.
    silent: HashMap<usize, Duration>,
    /// No push arrives until then.
    mute: Duration,
    /// When the last message between a process and a store arrives, there and back: none overtakes it on a connection that
    /// keeps the order.
    last: HashMap<(usize, usize), (Duration, Duration)>,
    messages: u64,
}

impl Roads {
    pub(crate) fn new(weather: Weather, rng: Rng) -> Self {
        Self(Arc::new(Mutex::new(State {
            rng,
            weather,
            cut_off: HashMap::new(),
            refused: HashMap::new(),
            late: HashMap::new(),
            silent: HashMap::new(),
            mute: Duration::ZERO,
            last: HashMap::new(),
            messages: 0,
        })))
    }

    fn with<T>(&self, does: impl FnOnce(&mut State) -> T) -> T {
        does(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn passing(&self) -> Passing {
        Passing::by(self.clone())
    }

    pub(crate) fn cut_off(&self, process: usize, until: Duration) {
        self.with(|state| state.cut_off.insert(process, until));
    }

    pub(crate) fn refuse(&self, process: usize, until: Duration) {
        self.with(|state| state.refused.insert(process, until));
    }

    pub(crate) fn delay(&self, process: usize, by: Duration, until: Duration) {
        self.with(|state| state.late.insert(process, (by, until)));
    }

    pub(crate) fn silence(&self, store: usize, until: Duration) {
        self.with(|state| state.silent.insert(store, until));
    }

    pub(crate) fn mute(&self, until: Duration) {
        self.with(|state| state.mute = until);
    }

    /// From now on, all goes well.
    pub(crate) fn calm_down(&self) {
        self.with(|state| {
            state.cut_off.clear();
            state.refused.clear();
            state.late.clear();
            state.silent.clear();
            state.mute = Duration::ZERO;
            state.weather = Weather {
                lost_there: 0,
                lost_back: 0,
                lost_push: 0,
                twice: 0,
                spikes: 0,
                ..state.weather
            };
        });
    }

    pub(crate) fn messages(&self) -> u64 {
        self.with(|state| state.messages)
    }
}

impl Network for Roads {
    fn fate(&mut self, at: Duration, process: usize, store: usize, message: Message) -> Fate {
        self.with(|state| state.fate(at, process, store, message))
    }
}

impl State {
    fn is_struck(&mut self, share: u32) -> bool {
        share > 0 && self.rng.u32(..1_000) < share
    }

    fn delay(&mut self) -> Duration {
        let (least, most) = (self.weather.least, self.weather.most);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let delay = Duration::from_micros(self.rng.u64(micros(least)..=micros(most)));
        if self.is_struck(self.weather.spikes) {
            return delay + self.weather.spike.mul_f64(self.rng.f64());
        }
        delay
    }

    fn fate(&mut self, at: Duration, process: usize, store: usize, message: Message) -> Fate {
        self.messages += 1;
        let until = |places: &HashMap<usize, Duration>, place: usize| {
            places.get(&place).is_some_and(|until| at < *until)
        };
        let is_cut = until(&self.cut_off, process) || until(&self.silent, store);
        let refused = until(&self.refused, process);
        let (mut there, mut back) = (self.delay(), self.delay());
        if let Some((by, until)) = self.late.get(&process)
            && at < *until
        {
            match message {
                Message::Push => there += *by,
                Message::Request { .. } => back += *by,
            }
        }
        let weather = self.weather;
        let (lost_there, lost_back, repeats) = match message {
            Message::Push => (weather.lost_push, 0, true),
            Message::Request { repeatable, .. } => {
                (weather.lost_there, weather.lost_back, repeatable)
            }
        };
        let is_lost = self.is_struck(lost_there)
            || is_cut
            || message == Message::Push && (at < self.mute || refused);
        let no_answer = self.is_struck(lost_back);
        let again = (repeats && self.is_struck(weather.twice)).then(|| self.delay());
        if !weather.reorders {
            let (last_there, last_back) = self.last.entry((process, store)).or_default();
            if message == Message::Push {
                *last_back = (at + there).max(*last_back);
                there = *last_back - at;
            } else {
                *last_there = (at + there + again.unwrap_or_default()).max(*last_there);
                there = *last_there - at - again.unwrap_or_default();
                let answered = *last_there;
                *last_back = (answered + back).max(*last_back);
                back = *last_back - answered;
            }
        }
        Fate {
            there: (!is_lost).then_some(there),
            back: (!no_answer).then_some(back),
            again,
            refused: refused && message != Message::Push,
        }
    }
}
