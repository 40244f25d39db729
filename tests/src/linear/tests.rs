use super::What::{End, MayEnd, MayTake, Refused, Take};
use super::*;
use crate::history::{Hold, Violation, violations};

const BUDGET: usize = 100_000;

fn op(owner: usize, what: What, from: u64, until: u64) -> Op {
    Op {
        owner,
        what,
        token: None,
        from,
        until,
    }
}

fn is_possible(history: &[Op]) -> bool {
    match search(history, BUDGET) {
        Verdict::Possible => true,
        Verdict::Impossible(..) => false,
        Verdict::Undecided => panic!("undecided"),
    }
}

/// Returns whether the sweep line finds an overlap in the same history, whose holds last from the grant to the moment
/// before the end was asked for.
fn overlap_in(holds: &[(u64, u64)]) -> bool {
    let hold = |(number, (from, until)): (usize, &(u64, u64))| Hold {
        key: "k".to_owned(),
        holder: number.to_string(),
        token: None,
        from: *from,
        until: *until,
    };
    let found = violations(holds.iter().enumerate().map(hold).collect());
    found.iter().any(|it| matches!(it, Violation::Overlap(..)))
}

#[test]
fn turns_are_possible_however_their_calls_overlap() {
    let history = [
        op(1, Take, 0, 10),
        op(2, Take, 5, 40),
        op(3, Refused, 12, 13),
        op(1, End, 20, 35),
        op(4, Take, 6, 80),
        op(2, End, 45, 60),
        op(4, End, 90, 95),
    ];
    assert!(is_possible(&history));
}

#[test]
fn what_the_sweep_line_finds_is_found() {
    // Both certainly hold from 20 to 30.
    let history = [
        op(1, Take, 0, 10),
        op(2, Take, 5, 20),
        op(1, End, 30, 35),
        op(2, End, 40, 45),
    ];
    assert!(overlap_in(&[(10, 30), (20, 40)]));
    assert!(!is_possible(&history));
}

#[test]
fn a_refusal_of_a_free_lock_is_found_where_a_sweep_line_fails() {
    let history = [
        op(1, Take, 0, 10),
        op(1, End, 20, 25),
        op(2, Refused, 30, 40),
        op(3, Take, 50, 60),
        op(3, End, 70, 75),
    ];
    assert!(!overlap_in(&[(10, 20), (60, 70)]));
    let verdict = search(&history, BUDGET);
    assert_eq!(verdict, Verdict::Impossible(2, op(2, Refused, 30, 40)));
}

#[test]
fn a_confirmed_release_after_somebody_elses_whole_turn_is_found() {
    // The first one stopped being certain at 12, and yet its release at 40 found its hold in the store.
    let history = [
        op(1, Take, 0, 10),
        op(2, Take, 15, 20),
        op(2, End, 25, 30),
        op(1, End, 40, 45),
    ];
    assert!(!overlap_in(&[(10, 12), (20, 25)]));
    assert!(!is_possible(&history));
}

#[test]
fn a_lease_that_may_have_run_out_makes_room_from_then_on() {
    let expires = |from| {
        [
            op(1, Take, 0, 10),
            op(1, End, from, OPEN),
            op(2, Take, 30, 40),
            op(2, End, 50, 55),
        ]
    };
    assert!(is_possible(&expires(35)));
    assert!(!is_possible(&expires(41)));
}

#[test]
fn an_unknown_outcome_explains_a_refusal_and_blocks_no_grant() {
    let history = |with_unknown: bool| {
        let mut history = vec![
            op(2, Refused, 10, 20),
            op(3, Take, 30, 40),
            op(3, End, 50, 55),
        ];
        if with_unknown {
            history.extend([op(1, MayTake, 0, OPEN), op(1, MayEnd, 0, OPEN)]);
        }
        history
    };
    assert!(!is_possible(&history(false)));
    assert!(is_possible(&history(true)));
}

#[test]
fn thousands_of_turns_and_refusals_are_judged_fast() {
    let mut history = Vec::new();
    for turn in 0..3_000_u64 {
        let at = turn * 100;
        let owner = turn as usize;
        history.push(op(owner, Take, at, at + 30));
        history.push(op(owner, End, at + 60, at + 110));
        history.push(op(10_000 + owner, Refused, at + 35, at + 50));
    }
    assert!(is_possible(&history));
    history.push(op(99_999, Take, 150_035, 150_050));
    history.push(op(99_999, End, 150_052, 150_055));
    assert!(!is_possible(&history));
}

#[test]
fn a_token_that_falls_has_no_explanation() {
    let take = |owner, token, from, until| Op {
        token: Some(token),
        ..op(owner, Take, from, until)
    };
    let turns = |second| {
        [
            take(1, 7, 0, 10),
            op(1, End, 20, 25),
            take(2, second, 22, 30),
            op(2, End, 40, 45),
        ]
    };
    assert!(is_possible(&turns(8)));
    assert!(!is_possible(&turns(7)));
    assert!(!is_possible(&turns(6)));
    // Calls that overlap may have happened in the order of their tokens.
    let at_once = [
        take(1, 8, 0, 30),
        op(1, End, 31, 40),
        take(2, 7, 0, 30),
        op(2, End, 5, 30),
    ];
    assert!(is_possible(&at_once));
}
