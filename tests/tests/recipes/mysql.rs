//! Tests of the recipes for MySQL and MariaDB, on MariaDB.
//!
//! Its client program does not set `CLIENT_FOUND_ROWS`, so the tests ask for the fence after each 0, which is the
//! page's way.

use std::sync::atomic::{AtomicUsize, Ordering};

use lock_runtime::FencingToken;
use tests::{MariadbServer, documented_recipe};

use crate::meter::{
    Meter, keeps_the_highest_of_many_writes_at_once,
    refuses_a_paused_holder_once_the_next_one_has_read,
};

fn recipe(title: &str) -> &'static str {
    documented_recipe("MySQL and MariaDB", title)
}

/// Returns what the statements answer in a database.
fn query(database: &str, statements: &str) -> String {
    let statements = format!("USE {database}; {statements}");
    MariadbServer::shared().query(&statements).join("\n")
}

/// A database of the process's server, which belongs to one test.
struct Database(String);

impl Database {
    /// Creates a database with the meter in it, which belongs to nobody yet.
    fn new() -> Self {
        static DATABASES: AtomicUsize = AtomicUsize::new(0);
        let name = format!("recipes_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        MariadbServer::shared().query(&format!("CREATE DATABASE {name}"));
        let database = Self(name);
        query(&database.0, recipe("The table"));
        let meter = database.connect();
        meter.execute("The first row", &["'gas'"]);
        meter.execute("The first row", &["'gas'"]);
        database
    }

    fn connect(&self) -> MysqlMeter {
        MysqlMeter(self.0.clone())
    }
}

struct MysqlMeter(String);

impl MysqlMeter {
    /// Executes a prepared statement. Returns what it has selected, or in how many rows it has changed something.
    fn execute(&self, title: &str, parameters: &[&str]) -> i64 {
        let sql = recipe(title);
        // MySQL takes parameters from variables only.
        let name = |at: usize| format!("@p{at}");
        let set = parameters.iter().enumerate();
        let set = set.map(|(at, value)| format!("SET {} = {value};", name(at)));
        let set: String = set.collect();
        let names: Vec<String> = (0..parameters.len()).map(name).collect();
        let names = names.join(", ");
        let count = match title {
            "Read" | "The fence" => "",
            _ => "SELECT ROW_COUNT();",
        };
        let statements = format!("PREPARE s FROM '{sql}'; {set} EXECUTE s USING {names}; {count}");
        query(&self.0, &statements).parse().expect("one number")
    }

    /// Returns whether a statement of this holder was done: it has changed the row, or the row was so already.
    fn is_done(&self, title: &str, parameters: &[&str], token: FencingToken) -> bool {
        self.execute(title, parameters) == 1
            || self.execute("The fence", &["'gas'"]) == i64::from(token)
    }
}

impl Meter for MysqlMeter {
    async fn raise_and_read(&self, token: FencingToken) -> Option<i64> {
        let number = token.to_string();
        self.is_done("Raise the fence", &[&number, "'gas'", &number], token)
            .then(|| self.execute("Read", &["'gas'"]))
    }

    async fn write(&self, token: FencingToken, value: i64) -> bool {
        let (value, number) = (value.to_string(), token.to_string());
        self.is_done("Write", &[&value, &number, "'gas'", &number], token)
    }
}

#[tokio::test]
async fn mysql_refuses_a_paused_holder_once_the_next_one_has_read() {
    let database = Database::new();
    refuses_a_paused_holder_once_the_next_one_has_read(&database.connect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn mysql_keeps_the_highest_of_many_writes_at_once() {
    let database = Database::new();
    let connections = (0..8).map(|_| database.connect());
    keeps_the_highest_of_many_writes_at_once(connections.collect()).await;
}
