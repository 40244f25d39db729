//! Options given as expressions: each is evaluated once, and its temporaries end before the call waits.
#![deny(warnings)]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockName, distributed_lock};

struct Settings {
    wait: Duration,
    label: &'static str,
    locked: bool,
}

struct Registry {
    settings: Mutex<Settings>,
    managers: RwLock<Vec<LockManager>>,
    names: Mutex<Vec<String>>,
}

impl Registry {
    // A guard of the standard library is not `Send`: it may not live across an await.
    #[distributed_lock(
        key = LockName::from(self.names.lock().unwrap()[0].as_str()),
        manager = self.managers.read().unwrap()[0],
        wait = self.settings.lock().unwrap().wait,
        lease = self.settings.lock().unwrap().wait,
        max_hold = self.settings.lock().unwrap().wait,
        min_hold = self.settings.lock().unwrap().wait,
        keep_for = self.settings.lock().unwrap().wait,
        auto_renew = self.settings.lock().unwrap().locked,
        when = self.settings.lock().unwrap().locked,
        label = self.settings.lock().unwrap().label
    )]
    async fn behind_locks(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[distributed_lock(
        keys = self.names.lock().unwrap().iter().map(String::as_str),
        manager = self.managers.read().unwrap().first().unwrap()
    )]
    async fn all_names(&self) -> Result<(), LockError> {
        Ok(())
    }
}

struct Entry {
    locks: LockManager,
}

#[distributed_lock(
    key = LockName::from(names.borrow().as_str()),
    manager = entry.borrow().locks,
    wait = Duration::from_secs(names.borrow().len() as u64)
)]
async fn behind_cells(entry: &RefCell<Entry>, names: Rc<RefCell<String>>) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", manager = if primary { &a } else { &b })]
async fn one_of_two(primary: bool, a: LockManager, b: LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", manager = match which { 0 => a, 1 => b, _ => return Ok(()) })]
async fn one_of_several(which: u8, a: &LockManager, b: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", manager = { let first = &all[0]; first })]
async fn from_a_block(all: &[LockManager]) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", manager = shared)]
async fn from_an_arc(shared: Arc<LockManager>) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", manager = *shared)]
async fn from_a_box(shared: Box<LockManager>) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", manager = &mut *shared)]
async fn from_a_mutable_reference(shared: &mut LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", manager = entries.last().ok_or(LockError::NotInstalled)?.locks)]
async fn with_question_mark(entries: &[Entry]) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", manager = named.clone().into())]
async fn converted(named: Named) -> Result<(), LockError> {
    Ok(())
}

#[derive(Clone)]
struct Named(LockManager);

impl From<Named> for LockManager {
    fn from(named: Named) -> LockManager {
        named.0
    }
}

fn needs_send<T: Send>(_: T) {}

pub(crate) fn main() {
    let _ = |registry: &Registry, locks: LockManager| {
        needs_send(registry.behind_locks());
        needs_send(registry.all_names());
        drop(behind_cells(
            &RefCell::new(Entry {
                locks: locks.clone(),
            }),
            Rc::default(),
        ));
        needs_send(one_of_two(true, locks.clone(), locks.clone()));
        needs_send(one_of_several(1, &locks, &locks));
        needs_send(from_a_block(std::slice::from_ref(&locks)));
        needs_send(from_an_arc(Arc::new(locks.clone())));
        needs_send(from_a_box(Box::new(locks.clone())));
        needs_send(from_a_mutable_reference(&mut locks.clone()));
        needs_send(with_question_mark(&[]));
        needs_send(converted(Named(locks)));
    };
}
