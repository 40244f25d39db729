//! The tables that docs/evidence.md has from this program: what is tortured, and which planted bugs are caught by which
//! checks. A test compares them with the page.

use std::fmt::Write as _;

use crate::faults;
use crate::keys::Workload;
use crate::planted;
use crate::site::Topology;

/// Returns the tables as Markdown.
pub(crate) fn tables() -> String {
    let mut text = String::from("| topology | kinds of locks | faults |\n| --- | --- | --- |\n");
    for topology in Topology::ALL {
        let faults = faults::all(topology);
        let names: Vec<String> = faults.iter().map(|it| format!("`{}`", it.name())).collect();
        let kinds = Workload::all_of(topology).kinds().join(", ");
        let name = topology.name();
        let _ = writeln!(text, "| {name} | {kinds} | {} |", names.join(", "));
    }
    text += "\n| planted bug | its fault | caught by |\n| --- | --- | --- |\n";
    for bug in planted::all() {
        let fault = match bug.faults {
            [] => "none".to_owned(),
            faults => faults.join(", "),
        };
        let _ = writeln!(
            text,
            "| {} | {fault} | {} |",
            bug.name,
            bug.caught_by.join(", ")
        );
    }
    text
}
