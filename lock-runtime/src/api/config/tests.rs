use std::ffi::OsString;

use super::*;
use crate::acquire::try_acquire::TryAcquire;
use crate::values::duration;
use crate::values::options::Options;

fn from(variables: &[(&str, &str)]) -> Result<LockConfig, LockError> {
    let variables = variables
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    LockConfig::from_variables("LOCK_", variables)
}

fn refusal(variables: &[(&str, &str)]) -> String {
    match from(variables) {
        Err(LockError::InvalidConfig { why }) => why,
        other => panic!("{variables:?}: {other:?}"),
    }
}

/// A value for each setting, none of them its default.
const VALUES: [&str; 22] = [
    "memory://shop",
    "memory://a memory://b memory://c",
    "shop:",
    "orders-api",
    "20s",
    "1m",
    "1500ms",
    "false",
    "250ms",
    "7",
    "5",
    "0s",
    "majority",
    "2s",
    "true",
    "true",
    "true",
    "both",
    "true",
    "/etc/locks/client.pem",
    "/etc/locks/client.key",
    "/etc/locks/ca.pem",
];

/// Returns each setting with its value, as the environment has them.
fn all() -> Vec<(String, &'static str)> {
    LockConfig::NAMES
        .iter()
        .zip(VALUES)
        .map(|(name, value)| (format!("LOCK_{}", name.to_uppercase()), value))
        .collect()
}

fn from_all() -> LockConfig {
    let all = all();
    let all: Vec<_> = all.iter().map(|(name, value)| (&**name, *value)).collect();
    from(&all).unwrap()
}

#[test]
fn every_setting_is_read_and_reaches_the_builder() {
    let settings = from_all();
    let LockManagerBuilder { options, .. } = settings.apply(LockManager::builder());
    let ms = Duration::from_millis;
    assert_eq!(settings.url.as_deref(), Some("memory://shop"));
    let nodes = ["memory://a", "memory://b", "memory://c"].map(str::to_owned);
    assert_eq!(settings.quorum.as_deref(), Some(&nodes[..]));
    // The pattern names all options, because a new option of the builder must become a setting, too.
    let Options {
        namespace,
        app,
        lease,
        longest_lease,
        wait,
        fencing,
        call_timeout,
        shutdown_grace,
        max_waiters,
        max_waiters_per_key,
        replicas,
        strict,
        lazy,
        channels,
        ensure_schema,
        handshake: _,
        longest_nap: _,
    } = options;
    assert_eq!(&*namespace, "shop:");
    assert_eq!(app.as_deref(), Some("orders-api"));
    assert_eq!(lease, ms(20_000));
    assert_eq!(longest_lease, Some(ms(60_000)));
    assert_eq!(wait, Some(ms(1_500)));
    assert_eq!((call_timeout, shutdown_grace), (ms(250), Duration::ZERO));
    assert_eq!((max_waiters, max_waiters_per_key), (7, 5));
    let expected = Replicas::majority().within(ms(2_000)).renewals(true);
    assert_eq!(replicas, expected);
    assert!(!fencing && strict && lazy && ensure_schema);
    assert_eq!(channels, ClusterChannels::Both);
    let files = [
        settings.client_certificate,
        settings.client_key,
        settings.root_certificate,
    ];
    let names = ["client.pem", "client.key", "ca.pem"];
    for (file, name) in files.iter().zip(names) {
        assert_eq!(file.as_deref(), Some(&*Path::new("/etc/locks").join(name)));
    }
}

#[test]
fn the_page_has_every_setting_with_its_form_and_default() {
    let page = include_str!("../../../docs/redis.md");
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `LOCK_"))
        .collect();
    let options = Options::default();
    let duration = |time: Duration| format!("`{}`", duration::display(time));
    assert_eq!(rows.len(), TYPES.len());
    for ((name, of), row) in TYPES.iter().zip(rows) {
        let form = match *of {
            "String" => "text",
            "Vec<String>" => "texts, with spaces between",
            "PathBuf" => "path",
            "Duration" => "duration",
            "bool" => "`true`, `false`",
            "usize" => "number",
            "Replicas" => "`off`, `majority`, number",
            "ClusterChannels" => "`sharded`, `classic`, `both`",
            of => panic!("no form of {of}"),
        };
        let default = match *name {
            "namespace" => format!("`{}`", options.namespace),
            "app" => "the executable's name".to_owned(),
            "lease" => duration(options.lease),
            "longest_lease" => "`24h`; `1m` on a quorum".to_owned(),
            "wait" => duration(options.wait.unwrap()),
            "fencing" => format!("`{}`", options.fencing),
            "call_timeout" => duration(options.call_timeout),
            "max_waiters" => options.max_waiters.to_string(),
            "max_waiters_per_key" => options.max_waiters_per_key.to_string(),
            "shutdown_grace" => duration(options.shutdown_grace),
            "replicas" if !options.replicas.is_on() => "`off`".to_owned(),
            "replicas_within" => duration(options.replicas.within),
            "replicas_renewals" => format!("`{}`", options.replicas.renewals),
            "strict" => format!("`{}`", options.strict),
            "lazy" => format!("`{}`", options.lazy),
            "cluster_channels" => format!("`{:?}`", options.channels).to_lowercase(),
            "ensure_schema" => format!("`{}`", options.ensure_schema),
            _ => "–".to_owned(),
        };
        let variable = name.to_uppercase();
        let expected = format!("| `LOCK_{variable}` | `{name}` | {form} | {default} |");
        assert!(row.starts_with(&expected), "{row}\nis not\n{expected}");
    }
}

#[test]
fn a_mistake_names_its_variable_and_shows_no_password() {
    for (name, value, why) in [
        (
            "LOCK_LAESE",
            "30s",
            "`LOCK_LAESE` is no setting; did you mean `LOCK_LEASE`?",
        ),
        (
            "LOCK_lease",
            "30s",
            "`LOCK_lease` is no setting; did you mean `LOCK_LEASE`?",
        ),
        (
            "LOCK_COLOUR_OF_IT",
            "red",
            "`LOCK_COLOUR_OF_IT` is no setting; there are LOCK_URL",
        ),
        ("LOCK_", "x", "`LOCK_` is no setting"),
        (
            "LOCK_LEASE",
            "30",
            "`LOCK_LEASE`: the duration `30` needs a unit",
        ),
        ("LOCK_LEASE", "10ms", "`LOCK_LEASE`: invalid lease"),
        (
            "LOCK_LONGEST_LEASE",
            "10ms",
            "`LOCK_LONGEST_LEASE`: invalid lease",
        ),
        (
            "LOCK_WAIT",
            "9000h",
            "`LOCK_WAIT`: invalid lock configuration: a wait",
        ),
        ("LOCK_CALL_TIMEOUT", "2m", "`LOCK_CALL_TIMEOUT`: "),
        ("LOCK_NAMESPACE", "shop:\n", "`LOCK_NAMESPACE`: "),
        ("LOCK_STRICT", "yes", "`LOCK_STRICT`: `yes` is neither"),
        (
            "LOCK_MAX_WAITERS",
            "-1",
            "`LOCK_MAX_WAITERS`: `-1` is no whole number",
        ),
        ("LOCK_REPLICAS", "all", "`LOCK_REPLICAS`: `all` is none of"),
        ("LOCK_REPLICAS", "0", "`LOCK_REPLICAS`: "),
        ("LOCK_REPLICAS_WITHIN", "1ms", "`LOCK_REPLICAS_WITHIN`: "),
        (
            "LOCK_CLUSTER_CHANNELS",
            "none",
            "`LOCK_CLUSTER_CHANNELS`: `none` is none",
        ),
    ] {
        let said = refusal(&[("LOCK_URL", "redis://:hunter2@host/"), (name, value)]);
        assert!(said.contains(why), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    let shown = format!("{:?}", from(&[("LOCK_URL", "redis://:hunter2@host/")]));
    assert!(
        shown.contains("url") && !shown.contains("hunter2"),
        "{shown}"
    );
}

#[test]
fn other_variables_and_other_prefixes_are_left_alone() {
    let settings = from(&[("PATH", "/bin"), ("LOCKS", "1"), ("MY_LOCK_URL", "x")]).unwrap();
    assert_eq!(format!("{settings:?}"), "LockConfig");
    let variables = [("SHOP_LEASE", "5s"), ("LOCK_NONSENSE", "1")]
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let settings = LockConfig::from_variables("SHOP_", variables.into_iter()).unwrap();
    assert_eq!(settings.lease, Some(Duration::from_secs(5)));
    assert!(LockConfig::from_env_with_prefix("").is_err());
}

#[test]
fn kubernetes_service_variables_and_empty_ones_are_no_settings() {
    let of_services = [
        ("LOCK_PORT", "tcp://10.0.0.1:6379"),
        ("LOCK_SERVICE_HOST", "10.0.0.1"),
        ("LOCK_SERVICE_PORT", "6379"),
        ("LOCK_SERVICE_PORT_TLS", "6380"),
        ("LOCK_PORT_6379_TCP", "tcp://10.0.0.1:6379"),
        ("LOCK_PORT_6379_TCP_ADDR", "10.0.0.1"),
        ("LOCK_PORT_6379_TCP_PORT", "6379"),
        ("LOCK_PORT_6379_TCP_PROTO", "tcp"),
        ("LOCK_REDIS_SERVICE_HOST", "10.0.0.2"),
        ("LOCK_REDIS_PORT", "tcp://10.0.0.2:6379"),
        ("LOCK_REDIS_PORT_53_UDP_ADDR", "10.0.0.2"),
    ];
    let empty = [("LOCK_LEASE", ""), ("LOCK_URL", ""), ("LOCK_NONSENSE", "")];
    let settings = from(&[&of_services[..], &empty].concat()).unwrap();
    assert_eq!(format!("{settings:?}"), "LockConfig");
    let bare = from(&[("LOCK_NAMESPACE", "")]).unwrap();
    assert_eq!(bare.namespace.as_deref(), Some(""), "bare names");
    for variable in ["LOCK_PORT_6379", "LOCK_SERVICE", "LOCK_PORT_X_TCP"] {
        assert!(refusal(&[(variable, "x")]).contains(variable));
    }
}

#[tokio::test]
async fn a_configuration_connects_to_its_store() {
    let settings = from(&[
        ("LOCK_URL", "memory://from-config"),
        ("LOCK_FENCING", "false"),
    ]);
    let locks = settings.unwrap().connect().await.unwrap();
    let guard = locks.mutex("k").acquire().await.unwrap();
    assert_eq!(guard.fencing_token(), None);
    let same = LockManager::connect("memory://from-config").await.unwrap();
    let busy = same.mutex("k").try_acquire().await.unwrap();
    assert!(matches!(busy, TryAcquire::Busy { .. }));

    let nodes = "memory://config-a memory://config-b memory://config-c";
    let quorum = from(&[("LOCK_QUORUM", nodes)]).unwrap();
    let locks = quorum.connect().await.unwrap();
    assert_eq!(locks.snapshot().store, crate::StoreKind::Quorum);

    let short = from(&[
        ("LOCK_URL", "memory://"),
        ("LOCK_LONGEST_LEASE", "10s"),
        ("LOCK_LEASE", "5s"),
    ]);
    let locks = short.unwrap().connect().await.unwrap();
    let error = locks.mutex("k").lease(Duration::from_secs(20)).acquire();
    assert!(matches!(error.await, Err(LockError::InvalidLease { .. })));

    for (variables, why) in [
        (&[][..], "names no store"),
        (
            &[("LOCK_URL", "memory://"), ("LOCK_LONGEST_LEASE", "10s")],
            "invalid lease 30s for lock `(default)`: it is longer than the manager's longest lease",
        ),
        (
            &[("LOCK_URL", "memory://"), ("LOCK_QUORUM", nodes)],
            "leave one",
        ),
        (
            &[
                ("LOCK_URL", "memory://"),
                ("LOCK_CLIENT_KEY", "/nowhere/key"),
            ],
            "belong together",
        ),
        (
            &[
                ("LOCK_URL", "redis://localhost"),
                ("LOCK_REPLICAS_RENEWALS", "true"),
            ],
            "need `replicas`",
        ),
        (
            &[
                ("LOCK_URL", "memory://"),
                ("LOCK_ROOT_CERTIFICATE", "/nowhere/ca"),
            ],
            "`root_certificate`: /nowhere/ca cannot be read",
        ),
    ] {
        let error = from(variables).unwrap().connect().await.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[cfg(feature = "serde")]
mod files {
    use serde_json::{Value, json};

    use super::*;

    fn parse(text: Value) -> Result<LockConfig, String> {
        serde_json::from_value(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_has_the_settings_of_the_environment() {
        let fields = LockConfig::NAMES.iter().zip(VALUES);
        let fields = fields.map(|(name, value)| ((*name).to_owned(), Value::from(value)));
        let settings = parse(Value::Object(fields.collect())).unwrap();
        assert_eq!(format!("{settings:?}"), format!("{:?}", from_all()));
        assert_eq!(settings.url, from_all().url);
        assert_eq!(settings.quorum, from_all().quorum);
    }

    #[test]
    fn settings_may_be_written_as_values_of_the_format() {
        let settings = parse(json!({
            "quorum": ["memory://a", "memory://b"],
            "max_waiters": 7,
            "replicas": 2,
            "lazy": true,
            "lease": null,
        }));
        let settings = settings.unwrap();
        assert_eq!(settings.quorum.unwrap().len(), 2);
        assert_eq!(settings.max_waiters, Some(7));
        assert_eq!(settings.replicas, Some(Replicas::at_least(2)));
        assert_eq!((settings.lazy, settings.lease), (Some(true), None));
    }

    #[test]
    fn a_mistake_names_its_field() {
        for (text, why) in [
            (
                json!({"laese": "30s"}),
                "unknown field `laese`, expected one of `url`",
            ),
            (
                json!({"lease": 30}),
                "`lease`: the duration `30` needs a unit",
            ),
            (json!({"lease": "10ms"}), "`lease`: invalid lease"),
            (json!({"lease": {}}), "a whole number"),
            (json!([]), "the settings of a lock manager"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let twice: Result<LockConfig, _> = serde_json::from_str(r#"{"lazy": true, "lazy": false}"#);
        assert!(twice.unwrap_err().to_string().contains("duplicate field"));
    }
}
