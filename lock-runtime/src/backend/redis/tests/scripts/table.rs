//! Tests of the script table against the script files, and against replies that make no sense.

use super::directory::{introduce, who, withdraw};
use super::fair::{fair_acquire, fair_release};
use super::spare::{acquire_ahead, listed_acquire_ahead, listed_release_after, release_after};
use super::*;
use crate::backend::AcquiredAll;
use crate::backend::redis::kinds::acquire_all::AcquireAll;
use crate::backend::redis::kinds::clash::KindOf;
use crate::backend::redis::kinds::permits::RenewPermits;
use crate::backend::redis::scripting::rights::Rights;

/// Returns the text of a script without its shortcut.
pub(super) fn without_shortcut(text: &str) -> String {
    let Some(from) = text.find("-- Shortcut of ") else {
        return text.to_owned();
    };
    let rest = text[from..].find("-- Fragment ").unwrap();
    [&text[..from], &text[from + rest..]].concat()
}

/// Checks the fragments of a script. `before` has the fragments, each with its own header.
fn check_fragments(script: &str, before: &str, own: &str, uses: &str) {
    let label = |text: &'static str| move |line: &&str| line.starts_with(text);
    let names: Vec<_> = before.lines().filter(label("-- Fragment ")).collect();
    let named: Vec<_> = uses.split(", ").filter(|name| !name.is_empty()).collect();
    assert_eq!(names.len(), named.len(), "{script}: Uses");
    let mut above = Vec::new();
    let mut rest = before;
    for (line, name) in names.into_iter().zip(named) {
        let what = line.strip_prefix(&format!("-- Fragment {name}: "));
        assert!(what.is_some(), "{script}: {name} is not where Uses has it");
        let (_, text) = rest.split_once(line).unwrap();
        rest = text;
        let text = text.split("-- Fragment ").next().unwrap();
        let after = text.lines().find_map(|line| line.strip_prefix("-- After:"));
        let after = after.unwrap_or_else(|| panic!("{name}: no After"));
        for needed in after
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            assert!(
                above.contains(&needed),
                "{script}: {name} is before {needed}"
            );
        }
        above.push(name);
        let offered = text
            .lines()
            .find_map(|line| line.strip_prefix("-- Offers: "));
        assert!(offered.is_some(), "{name}: no Offers");
        assert!(
            !text.contains("KEYS") && !text.contains("ARGV"),
            "{name}: what a script is given is read where its header tells of it"
        );
        let mut definitions = text.lines().filter_map(|line| {
            let function = line.strip_prefix("local function ")?;
            function.split('(').next()
        });
        assert!(
            definitions.any(|function| {
                let call = format!("{function}(");
                own.contains(&call) || rest.contains(&call)
            }),
            "{script}: {name} is not used"
        );
    }
}

/// The scripts that a full server may refuse. All others end or renew what there is, or only read.
const NEED_ROOM: [&str; 13] = [
    "acquire",
    "acquire_all",
    "acquire_each",
    "acquire_permits",
    "draw_ids",
    "fair_acquire",
    "introduce",
    "listed_acquire",
    "next_token",
    "read_acquire",
    "set_counter",
    "take_permits",
    "write_acquire",
];

#[test]
fn every_header_names_the_keys_and_arguments() {
    fn check<S: Script>(example: &S, repeated: usize) {
        let source = S::source();
        let text = without_shortcut(source.text);
        let mut shortcut = "";
        if let Some((before, rest)) = source.text.split_once("-- Shortcut of ") {
            shortcut = rest.split("-- Fragment ").next().unwrap();
            let uses = shortcut
                .lines()
                .find_map(|line| line.strip_prefix("-- Uses:"));
            check_fragments(source.name, before, shortcut, uses.unwrap().trim());
        }
        let (fragments, own) = text.split_at(text.find("-- Flags:").unwrap());
        let line = |label: &str| {
            let prefix = format!("-- {label}:");
            let mut lines = own.lines().filter_map(|line| line.strip_prefix(&prefix));
            let text = lines
                .next()
                .unwrap_or_else(|| panic!("{}: no {label}", source.name));
            assert!(
                lines.next().is_none(),
                "{}: {label} given twice",
                source.name
            );
            text.trim().to_owned()
        };
        assert_eq!([line("Keys"), line("Args")], S::shape(), "{}", source.name);
        line("Returns");
        line("Why");
        let first = match line("Flags").as_str() {
            "" => "#!lua".to_owned(),
            flags => format!("#!lua flags={flags}"),
        };
        assert_eq!(source.text.lines().next(), Some(&*first), "{}", source.name);
        let needs_room = NEED_ROOM.contains(&source.name);
        assert_eq!(first == "#!lua", needs_room, "{}", source.name);
        let all = [shortcut, own].concat();
        check_fragments(source.name, fragments, &all, &line("Uses"));
        let names = |list: &str| list.split(',').filter(|name| !name.is_empty()).count();
        let [keys, arguments] = S::shape().map(|list| names(&list));
        assert_eq!(example.keys(), keys * repeated, "{}: keys", source.name);
        let mut command = redis::Cmd::new();
        example.write(&mut command);
        assert_eq!(
            command.args_iter().count(),
            (keys + arguments) * repeated,
            "{}: keys and arguments",
            source.name
        );
        // The script reads exactly the keys and arguments that its header names.
        let reads = |what: &str| {
            let mut indices = (1..10).filter(|i| source.text.contains(&format!("{what}[{i}]")));
            indices.next_back().unwrap_or(0)
        };
        if !S::shape().concat().contains("...") {
            assert_eq!(reads("KEYS"), keys, "{}: KEYS", source.name);
            assert_eq!(reads("ARGV"), arguments, "{}: ARGV", source.name);
        }
    }
    check(&acquire_ahead("a"), 1);
    check(&next_token(), 1);
    check(&release_after("a", 1, 2), 1);
    check(&hand_over("a", "b"), 1);
    check(
        &Renew {
            items: &renewals(&[(LOCK, "a", 1), (LOCK, "b", 0)]),
        },
        2,
    );
    let key = key("k");
    let requests = [request(
        &key,
        crate::values::holder::HolderIds::new().fresh(),
        LEASE,
    )];
    check(
        &AcquireAll {
            requests: &requests,
            sent_at: clock::now(),
            not_after_us: 1,
        },
        1,
    );
    check(&each::acquires(&["k"]), 1);
    check(&each::releases(&["k"]), 1);
    check(&force(), 1);
    check(&listed_acquire_ahead("a"), 1);
    check(&listed_release_after("a", 1, 2), 1);
    check(&fair_acquire("a"), 1);
    check(&fair_release("a"), 1);
    check(&inspect(), 1);
    check(&introduce("a"), 1);
    check(&withdraw(), 1);
    check(&who(), 1);
    check(&Rights::of_all(&withdraw(), &[], None), 1);
    let leases = "leases";
    check(&KindOf { key: LOCK, leases }, 1);
    check(&permits::lease_of(1, &[1; 16]), 1);
    check(&permits::give(&[1; 16]), 1);
    let sets = [
        (LOCK.to_owned(), vec![1; 16], 1),
        (LOCK.to_owned(), vec![2; 16], 0),
    ];
    check(&RenewPermits { items: &sets }, 2);
    check(&permits::force(), 1);
    check(&ids::shuffled(1, crate::values::IdSecret::new()), 1);
    check(&permits::set(1), 1);
    check(&permits::add(1), 1);
    check(&permits::delete(), 1);
    check(&permits::take(1), 1);
    check(&permits::count_down(), 1);
    check(&permits::read_counter(), 1);
    let rw = read_write::ReadWriteKeys::of("a");
    check(&rw.read(), 1);
    check(&rw.write(), 1);
    check(&rw.release(), 1);
    check(&rw.downgrade(), 1);
    let items = [rw.renewal(1), rw.renewal(0)];
    check(&ReadRenew { items: &items }, 2);
}

/// The question about the rights of a refused script reads the names of its commands from its text.
#[test]
fn the_rights_of_every_command_of_the_scripts_are_looked_up() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/backend/redis/scripting/lua"
    );
    for folder in ["", "/lib", "/shortcut"].map(|within| format!("{folder}{within}")) {
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // The one function that passes on what it is called with.
            let text = text.replace("function try(...)\n  local reply = redis.pcall(...)", "");
            for call in ["redis.call(", "redis.pcall(", "try("] {
                for command in text.split(call).skip(1) {
                    assert!(
                        command.starts_with('\''),
                        "{}: {call}{command:.40}",
                        path.display()
                    );
                }
            }
        }
    }
}

fn next_token() -> NextToken<'static> {
    NextToken {
        fence: FENCE,
        not_after_us: 1,
        counted: true,
    }
}

#[test]
fn the_forms_of_a_script_differ_only_in_publishing_and_counting() {
    use crate::backend::redis::scripting::Form::{Both, Classic, Moving, Sharded};
    for source in [
        Release::source(),
        HandOver::source(),
        ForceRelease::source(),
        Acquire::source(),
        ReleaseEach::source(),
    ] {
        let [classic, sharded, both, moving] =
            [Classic, Sharded, Both, Moving].map(|form| source.text(form));
        assert_eq!(classic, source.text, "{}", source.name);
        let calls = |text: &str, what: &str| text.matches(what).count();
        for (old, new) in [("'PUBLISH'", "'SPUBLISH'"), ("'NUMSUB'", "'SHARDNUMSUB'")] {
            // The holders of a forced release, and the keepers that are asked, are named to the whole cluster.
            let to_all = matches!(source.name, "force_release" | "acquire");
            let kept = usize::from(to_all && old == "'PUBLISH'");
            let found = calls(classic, old);
            assert_eq!(calls(sharded, old), kept, "{}", source.name);
            assert_eq!(calls(sharded, new), found - kept, "{}", source.name);
            assert_eq!(calls(both, old), found, "{}", source.name);
            assert_eq!(calls(both, new), found - kept, "{}", source.name);
            assert_eq!(calls(moving, old), kept, "{}", source.name);
            assert_eq!(calls(moving, new), 0, "{}", source.name);
        }
        if calls(classic, "'PUBLISH'") + calls(classic, "'NUMSUB'") == 0 {
            assert_eq!(sharded, classic, "{}", source.name);
        }
    }
}

#[tokio::test]
async fn a_token_by_itself_rises_and_comes_in_time_or_not_at_all() {
    let bench = ScriptBench::new().await;
    let before = bench.token("a").await;
    let token = |not_after, counted| {
        bench.call(NextToken {
            fence: FENCE,
            not_after_us: not_after,
            counted,
        })
    };
    let late = token(1, false).await.unwrap();
    assert!(late.done.is_none(), "{late:?}");
    let in_time = token(FAR, false).await.unwrap();
    let first = in_time.done.expect("it was in time");
    assert!(first.get() > before);
    let in_time = token(FAR, true).await.unwrap();
    let next = in_time.done.expect("it was in time");
    assert_eq!(next.get(), first.get() + 1, "counted by one");
    bench.run("SET lock:fence:{1} junk").await;
    assert!(is_foreign(token(FAR, false).await, FENCE));
}

#[test]
fn a_malformed_reply_is_an_error_and_never_a_panic() {
    let text = |text: &str| Value::BulkString(text.into());
    let mut replies = vec![
        Value::Nil,
        Value::Okay,
        Value::Int(-7),
        text("OK"),
        Value::Array(vec![]),
        Value::Array(vec![Value::Nil; 1_000]),
        Value::Map(vec![(text("OK"), text("1"))]),
        Value::BulkString(vec![0xff; 1 << 20]),
    ];
    for word in [
        "OK", "BUSY", "STALE", "FENCE", "LOST", "FREE", "HELD", "SHORT", "NONE", "COUNT", "x",
        "FOREIGN",
    ] {
        for rest in [
            Value::Nil,
            Value::Int(-7),
            text("1.5"),
            text("-1"),
            text("lock"),
            text("fence"),
        ] {
            for length in 0..5 {
                let mut items = vec![text(word)];
                items.extend(std::iter::repeat_n(rest.clone(), length));
                replies.push(Value::Array(items));
            }
        }
    }
    let renewals = renewals(&[(LOCK, "a", 1), (LOCK, "b", 0)]);
    let key = key("k");
    let requests = [request(
        &key,
        crate::values::holder::HolderIds::new().fresh(),
        LEASE,
    )];
    for reply in replies {
        let said = format!("{reply:.200?}");
        let _ = reply::foreign(&reply);
        // Whatever the reply is, no caller gets a grant from it.
        let granted = acquire("a").read(reply.clone());
        assert!(
            !matches!(granted, Some(Ok(AcquireReply::Granted { .. }))),
            "{said}"
        );
        let all = AcquireAll {
            requests: &requests,
            sent_at: clock::now(),
            not_after_us: 1,
        }
        .read(reply.clone());
        assert!(
            !matches!(
                all,
                Some(Ok(Dated {
                    done: Some(AcquiredAll::Granted(_)),
                    ..
                }))
            ),
            "{said}"
        );
        let each = each::acquires(&["k"]).read(reply.clone());
        assert!(!matches!(each, Some(Ok(_))), "{said}");
        let each = each::releases(&["k"]).read(reply.clone());
        assert!(!matches!(each, Some(Ok(_))), "{said}");
        let token = next_token().read(reply.clone());
        assert!(
            !matches!(token, Some(Ok(Dated { done: Some(_), .. }))),
            "{said}"
        );
        let handed = hand_over("a", "b").read(reply.clone());
        assert!(!matches!(handed, Some(Ok(Some(_)))), "{said}");
        assert!(
            !matches!(release("a").read(reply.clone()), Some(Ok(_))),
            "{said}"
        );
        assert!(
            !matches!(Renew { items: &renewals }.read(reply.clone()), Some(Ok(_))),
            "{said}"
        );
        let forced = force().read(reply.clone());
        assert!(!matches!(forced, Some(Ok(reply)) if reply.done.0), "{said}");
        let leased = permits::lease(&[1; 16]).read(reply.clone());
        assert!(
            !matches!(leased, Some(Ok(AcquireReply::Granted { .. }))),
            "{said}"
        );
        let given = permits::give(&[1; 16]).read(reply.clone());
        assert!(!matches!(given, Some(Ok(_))), "{said}");
        let sets = [
            (LOCK.to_owned(), vec![1; 16], 1),
            (LOCK.to_owned(), vec![2; 16], 0),
        ];
        let renewed = RenewPermits { items: &sets }.read(reply.clone());
        assert!(!matches!(renewed, Some(Ok(_))), "{said}");
        let forced = permits::force().read(reply.clone());
        assert!(
            !matches!(forced, Some(Ok(reply)) if reply.done.0 > 0),
            "{said}"
        );
        for done in [
            permits::set(1).read(reply.clone()),
            permits::delete().read(reply.clone()),
        ] {
            assert!(!matches!(done, Some(Ok(reply)) if reply.done), "{said}");
        }
        let added = permits::add(1).read(reply.clone());
        assert!(!matches!(added, Some(Ok(_))), "{said}");
        let read = permits::read_counter().read(reply.clone());
        assert!(!matches!(read, Some(Ok(Some(_)))), "{said}");
        let rw = read_write::ReadWriteKeys::of("a");
        for granted in [
            rw.read().read(reply.clone()),
            rw.write().read(reply.clone()),
        ] {
            assert!(
                !matches!(
                    granted,
                    Some(Ok(AcquireReply::Granted { token: Some(_), .. }))
                ),
                "{said}"
            );
        }
        let items = [rw.renewal(1), rw.renewal(0)];
        let renewed = ReadRenew { items: &items }.read(reply.clone());
        assert!(!matches!(renewed, Some(Ok(_))), "{said}");
        let downgraded = rw.downgrade().read(reply.clone());
        assert!(!matches!(downgraded, Some(Ok(_))), "{said}");
        let counted = permits::count_down().read(reply.clone());
        assert!(!matches!(counted, Some(Ok(_))), "{said}");
        // Any five texts are a record, because a record is for people and no lock depends on it.
        let _ = who().read(reply.clone());
        let introduced = introduce("a").read(reply.clone());
        assert!(!matches!(introduced, Some(Ok(()))), "{said}");
        let taken = permits::take(1).read(reply.clone());
        assert!(
            !matches!(
                taken,
                Some(Ok(Dated {
                    done: Some(true),
                    ..
                }))
            ),
            "{said}"
        );
        let _ = inspect().read(reply);
    }
}
