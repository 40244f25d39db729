use super::*;

fn hold(key: &str, token: u64, from: u64, until: u64) -> Hold {
    Hold {
        key: key.into(),
        holder: "h".into(),
        token: Some(token),
        from,
        until,
    }
}

#[test]
fn successive_holds_and_holds_of_two_keys_at_once_are_allowed() {
    let holds = vec![
        hold("a", 1, 0, 10),
        hold("a", 2, 10, 20),
        hold("b", 1, 5, 15),
    ];
    assert_eq!(violations(holds), []);
}

#[test]
fn a_planted_overlap_is_found_whatever_the_order_of_recording() {
    let (a, b) = (hold("a", 1, 0, 10), hold("a", 2, 9, 20));
    assert_eq!(
        violations(vec![b.clone(), a.clone()]),
        [Violation::Overlap(a, b)]
    );
}

#[test]
fn an_overlap_with_a_hold_further_back_is_found() {
    let long = hold("a", 1, 0, 100);
    let holds = vec![long.clone(), hold("a", 2, 10, 20), hold("a", 3, 50, 60)];
    let found = violations(holds.clone());
    let expected: Vec<_> = holds[1..]
        .iter()
        .map(|inner| Violation::Overlap(long.clone(), inner.clone()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn a_repeated_token_is_found() {
    let (a, b) = (hold("a", 7, 0, 10), hold("a", 7, 20, 30));
    assert_eq!(
        violations(vec![a.clone(), b.clone()]),
        [Violation::Token(a, b)]
    );
}

#[test]
fn a_token_repeated_by_overlapping_holds_is_found() {
    let (a, b) = (hold("a", 7, 0, 10), hold("a", 7, 5, 30));
    let found = violations(vec![a.clone(), b.clone()]);
    assert_eq!(
        found,
        [
            Violation::Overlap(a.clone(), b.clone()),
            Violation::Token(a, b)
        ]
    );
}

#[test]
fn a_token_that_goes_backwards_is_found_even_some_holds_later() {
    let (a, b) = (hold("a", 9, 0, 10), hold("a", 8, 40, 50));
    let holds = vec![a.clone(), hold("a", 10, 20, 30), b];
    assert_eq!(violations(holds).len(), 1);
}

#[test]
fn an_open_hold_is_recorded_when_dropped() {
    let history = History::new();
    let open = history.begin("a", "task-1", Some(4));
    assert!(history.is_empty());
    drop(open);
    history.begin("a", "task-2", Some(5)).end();
    assert_eq!(history.len(), 2);
    history.assert_exclusive();
}

#[test]
fn a_hold_that_was_lost_ends_where_it_was_last_seen() {
    let history = History::new();
    let mut open = history.begin("a", "task-1", None);
    assert!(open.seen(|| true));
    let between = now_ns();
    assert!(!open.seen(|| false));
    open.end_as_seen();
    assert!(history.holds()[0].until <= between);
}

#[test]
#[should_panic(expected = "1 violations in 2 holds:\noverlap:")]
fn the_assertion_names_what_it_found() {
    let history = History::new();
    history.add(hold("a", 1, 0, 10));
    history.add(hold("a", 2, 5, 15));
    history.assert_exclusive();
}

#[test]
fn a_hold_survives_the_way_through_a_line_of_text() {
    for token in [Some(1_790_000_000_000_001), None] {
        let hold = Hold {
            token,
            ..hold("order:1", 1, 3, u64::MAX)
        };
        assert_eq!(hold.to_string().parse(), Ok(hold));
    }
    assert!("hold a b".parse::<Hold>().is_err());
}
