//! Faults of a database that keeps locks in a table. Faults of any server are in `server.rs`.

use std::ops::Range;

use super::{Fault, Scene, Side, proven};

pub(super) fn all() -> Vec<Box<dyn Fault>> {
    vec![
        Box::new(Cancels { cancelled: 0 }),
        Box::new(RowLocked::default()),
    ]
}

/// Statements are cancelled, again and again.
struct Cancels {
    cancelled: u64,
}

impl Fault for Cancels {
    fn name(&self) -> &'static str {
        "statements-cancelled"
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn lasts(&self) -> Range<u64> {
        300..1_300
    }

    fn begin(&mut self, _scene: &mut Scene<'_>) {
        self.cancelled = 0;
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        self.cancelled += scene.database().cancel_statements();
    }

    fn end(&mut self, _scene: &mut Scene<'_>) -> Result<String, String> {
        let cancelled = self.cancelled;
        proven(cancelled > 0, format!("{cancelled} cancelled"))
    }
}

/// A stranger's transaction has locked one row, for less than a lease or for more.
#[derive(Default)]
struct RowLocked {
    key: &'static str,
    commit: Option<Box<dyn FnOnce()>>,
}

impl Fault for RowLocked {
    fn name(&self) -> &'static str {
        "row-locked"
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn lasts(&self) -> Range<u64> {
        200..1_500
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        // All of these have a row by now.
        let keys = scene.site.workload.used_from_the_start();
        self.key = keys[scene.rng.usize(..keys.len())];
        self.commit = Some(scene.database().block(self.key));
    }

    fn end(&mut self, _scene: &mut Scene<'_>) -> Result<String, String> {
        let commit = self.commit.take().ok_or("it has not begun")?;
        // This fails if the transaction was not there until now.
        commit();
        Ok(format!("the row of `{}` was locked", self.key))
    }

    fn affected(&self) -> Option<Vec<&'static str>> {
        Some(vec![self.key])
    }

    fn spares_the_others(&self) -> bool {
        true
    }
}
