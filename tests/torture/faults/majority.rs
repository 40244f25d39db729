//! Faults of two nodes of three at a time: nothing can be locked, and nothing may be lost.

use std::ops::Range;

use super::{Fault, Scene, Side, named};
use crate::site::Topology;

pub(super) fn all() -> Vec<Box<dyn Fault>> {
    vec![
        twice("majority-killed", "server-killed"),
        twice("majority-frozen", "server-frozen"),
        twice("majority-forgets", "server-forgets"),
        twice("majority-cut-off", "network-down"),
        twice("majority-slow", "delay"),
    ]
}

fn twice(name: &'static str, one: &'static str) -> Box<dyn Fault> {
    Box::new(Twice {
        name,
        one,
        both: Vec::new(),
    })
}

/// The same fault at two nodes.
struct Twice {
    name: &'static str,
    one: &'static str,
    /// The two faults, which are made when this one begins.
    both: Vec<Box<dyn Fault>>,
}

impl Twice {
    fn each<T>(
        &mut self,
        scene: &mut Scene<'_>,
        mut act: impl FnMut(&mut dyn Fault, &mut Scene<'_>) -> T,
    ) -> Vec<T> {
        let (first, nodes) = (scene.at, scene.site.nodes.len());
        let mut done = Vec::new();
        for (number, fault) in self.both.iter_mut().enumerate() {
            scene.at = (first + number) % nodes;
            done.push(act(fault.as_mut(), scene));
        }
        scene.at = first;
        done
    }

    fn model(&self) -> Box<dyn Fault> {
        named(self.one, Topology::Single).expect("a fault of one server")
    }
}

impl Fault for Twice {
    fn name(&self) -> &'static str {
        self.name
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn needs_disk(&self) -> bool {
        self.model().needs_disk()
    }

    fn forgets(&self) -> bool {
        self.model().forgets()
    }

    fn lasts(&self) -> Range<u64> {
        self.model().lasts()
    }

    fn begin(&mut self, scene: &mut Scene<'_>) {
        self.both = vec![self.model(), self.model()];
        self.each(scene, |fault, scene| fault.begin(scene));
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        self.each(scene, |fault, scene| fault.tick(scene));
    }

    fn end(&mut self, scene: &mut Scene<'_>) -> Result<String, String> {
        let proofs = self.each(scene, |fault, scene| fault.end(scene));
        let proofs: Result<Vec<String>, String> = proofs.into_iter().collect();
        proofs.map(|both| both.join(", "))
    }
}
