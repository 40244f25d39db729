//! A picture of one round: who held which key when, where the fault was, and who was told of a loss.

use std::fmt::Write as _;

use crate::round::{Outcome, Strike};
use tests::judge::names::client_of;

const LEFT: f64 = 80.0;
const WIDTH: f64 = 1_100.0;
const LANE: f64 = 46.0;
const TOP: f64 = 56.0;
const COLOURS: [&str; 5] = ["#1b7f9e", "#d98c21", "#5b8c3a", "#8a5aa8", "#7a6a5a"];

/// Draws the picture as SVG.
pub(crate) fn draw(outcome: &Outcome) -> String {
    // The time after the last hold is the wait for leases of the dead.
    let (from, until) = outcome.span;
    let last = outcome.log.all_holds().map(|hold| hold.until).max();
    let until = last.map_or(until, |last| last.min(until));
    let keys = outcome.workload.keys();
    let length = (until.saturating_sub(from)).max(1) as f64;
    let x = |at: u64| LEFT + WIDTH * (at.saturating_sub(from) as f64 / length);
    let height = TOP + LANE * keys.len() as f64 + 40.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"8\" y=\"20\" font-size=\"15\">Round {}: {}, {} — {} holds, {} losses signalled, {} overlaps</text>\n\
         <text x=\"8\" y=\"40\" fill=\"#666\">Bars: certain holds, one line per process, readers and permits of one process together. Red: the fault. ×: a holder learns of its loss.</text>\n",
        LEFT + WIDTH + 20.0,
        outcome.number,
        outcome.workload.topology.name(),
        outcome.name,
        outcome.log.all_holds().count(),
        outcome.log.losses.len(),
        outcome.overlaps.len(),
    );
    for Strike { begun, healed, .. } in &outcome.strikes {
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{}\" fill=\"#d33\" opacity=\"0.15\"/>",
            x(*begun),
            (x(*healed) - x(*begun)).max(1.5),
            height - TOP - 40.0
        );
    }
    for (lane, key) in keys.iter().enumerate() {
        let top = TOP + LANE * lane as f64;
        let _ = writeln!(
            svg,
            "<text x=\"8\" y=\"{:.1}\">{key}</text><line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{top}\" y2=\"{top}\" stroke=\"#ddd\"/>",
            top + LANE / 2.0 + 4.0,
            LEFT + WIDTH
        );
        draw_holds(&mut svg, outcome, key, top, &x);
        for loss in outcome.log.losses.iter().filter(|loss| loss.key == *key) {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#c00\">×</text>",
                x(loss.at),
                top + 6.0 + 9.0 * process(&loss.holder) as f64 % (LANE - 10.0) + 6.0
            );
        }
    }
    for second in 0..=(length / 1e9) as u64 {
        let at = x(from + second * 1_000_000_000);
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{second} s</text>",
            height - 20.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Draws the holds of one key. Neighbours of one process that are closer than a pixel are one bar, because a round has
/// thousands of holds.
fn draw_holds(svg: &mut String, outcome: &Outcome, key: &str, top: f64, x: &impl Fn(u64) -> f64) {
    let mut holds: Vec<_> = outcome
        .log
        .all_holds()
        .filter(|hold| hold.key == key)
        .collect();
    holds.sort_by_key(|hold| (process(&hold.holder), hold.from));
    let mut bars: Vec<(usize, f64, f64)> = Vec::new();
    for hold in holds {
        let (who, from, until) = (process(&hold.holder), x(hold.from), x(hold.until));
        match bars.last_mut() {
            Some((last, _, end)) if *last == who && from < *end + 1.0 => *end = until.max(*end),
            _ => bars.push((who, from, until)),
        }
    }
    for (who, from, until) in bars {
        let _ = writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"7\" fill=\"{}\"/>",
            top + 6.0 + 9.0 * who as f64 % (LANE - 10.0),
            (until - from).max(0.7),
            COLOURS[who % COLOURS.len()]
        );
    }
}

/// Returns the number of the process in a holder's name, such as `c1.0.27`.
fn process(holder: &str) -> usize {
    client_of(holder)
        .trim_start_matches('c')
        .parse()
        .unwrap_or(0)
}
