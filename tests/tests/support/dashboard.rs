//! Tests of the dashboard for Grafana against the table of metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

fn document(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    fs::read_to_string(docs.join(name)).unwrap()
}

/// Returns the series that Prometheus has of each metric, with their labels.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let mut series = BTreeMap::new();
    for line in document("metrics.md").lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, kind, _, _, labels, _] = cells[..] else {
            continue;
        };
        let suffixes: &[&str] = match kind {
            "counter" | "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => continue,
        };
        let labels: BTreeSet<String> = labels.split(", ").map(bare).collect();
        for suffix in suffixes {
            let mut labels = labels.clone();
            labels.extend((*suffix == "_bucket").then(|| "le".to_owned()));
            series.insert(bare(name) + suffix, labels);
        }
    }
    assert!(series.len() > 15, "{series:?}");
    series
}

fn bare(quoted: &str) -> String {
    quoted.trim_matches('`').to_owned()
}

/// Collects every text below a value that stands under the key.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if name == key => found.push(text),
                    _ => texts(value, key, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

/// Returns the identifiers of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// Returns what stands between an opening and the next closing text.
fn between<'a>(text: &'a str, open: &str, close: char) -> Vec<&'a str> {
    let rest = text.split(open).skip(1);
    rest.filter_map(|rest| Some(rest.split_once(close)?.0))
        .collect()
}

#[test]
fn the_dashboard_shows_all_metrics_and_only_existing_labels() {
    let series = documented();
    let text = document("grafana-dashboard.json");
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut queries = Vec::new();
    texts(&dashboard["panels"], "expr", &mut queries);
    assert!(queries.len() > 20, "{queries:?}");
    // `label_values(series, label)` is read as `label_values(series{…}) by (label)`.
    let mut variables = Vec::new();
    texts(&dashboard["templating"], "definition", &mut variables);
    let variables: Vec<String> = variables
        .iter()
        .map(|text| {
            let (asked, label) = text.trim_end_matches(')').rsplit_once(", ").unwrap();
            format!("{asked}) by ({label})")
        })
        .collect();
    queries.extend(variables.iter().map(String::as_str));

    let mut shown = BTreeSet::new();
    for query in queries {
        let mut labels = BTreeSet::new();
        for matchers in between(query, "{", '}') {
            for matcher in matchers.split(", ") {
                labels.insert(matcher.split(['=', '!']).next().unwrap());
            }
        }
        for names in between(query, "by (", ')') {
            labels.extend(names.split(", "));
        }
        labels.remove("instance"); // which process: Prometheus adds it
        let asked: Vec<&str> = words(query)
            .filter(|word| word.starts_with("lock_"))
            .collect();
        assert!(!asked.is_empty(), "{query} asks for no metric");
        for name in asked {
            let known = series.get(name);
            let known = known.unwrap_or_else(|| panic!("there is no {name}: {query}"));
            for label in &labels {
                assert!(known.contains(*label), "{name} has no {label}: {query}");
            }
            shown.insert(name.trim_end_matches("_bucket").to_owned());
        }
    }
    for name in series.keys().filter(|name| {
        !["_bucket", "_sum", "_count"]
            .iter()
            .any(|end| name.ends_with(end))
    }) {
        assert!(shown.contains(name), "the dashboard does not show {name}");
    }
    for name in ["lock_wait_seconds", "lock_hold_seconds"] {
        assert!(shown.contains(name), "the dashboard does not show {name}");
    }
}

#[test]
fn the_dashboard_uses_only_its_own_variables_and_data_source() {
    let text = document("grafana-dashboard.json");
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let defined: Vec<&str> = dashboard["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(defined, ["datasource", "store", "kind", "lock"]);
    for rest in text.split('$').skip(1) {
        let name = words(rest).next().unwrap();
        let is_known =
            defined.contains(&name) || ["__rate_interval", "__range", "__all"].contains(&name);
        assert!(is_known, "there is no variable {name}");
    }
    let mut sources = Vec::new();
    texts(&dashboard, "uid", &mut sources);
    sources.retain(|uid| *uid != "lock-runtime"); // the dashboard's own
    assert!(
        sources.iter().all(|uid| *uid == "${datasource}"),
        "{sources:?}"
    );
}

#[test]
fn no_two_panels_of_the_dashboard_have_one_id_or_one_place() {
    let dashboard: Value = serde_json::from_str(&document("grafana-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut taken = BTreeSet::new();
    for panel in panels {
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{}", panel["title"]);
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(taken.insert((x, y)), "{} is over another", panel["title"]);
            }
        }
    }
}
