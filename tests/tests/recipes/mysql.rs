//! The recipes for MySQL and MariaDB, on a server that is there already: `MYSQL_TEST_SOCKET` names its unix socket.
//!
//! `MYSQL_TEST_SOCKET=/run/mysqld/mysqld.sock cargo test -p tests --test recipes mysql -- --ignored`, as a user whom the
//! server lets in without a password and who may make databases. The client program does not set `CLIENT_FOUND_ROWS`,
//! so this is the page's way of asking after each 0.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use lock_runtime::FencingToken;
use tests::documented_recipe;

use crate::meter::{
    Meter, keeps_the_highest_of_many_writes_at_once,
    refuses_a_paused_holder_once_the_next_one_has_read,
};

fn recipe(title: &str) -> &'static str {
    documented_recipe("MySQL and MariaDB", title)
}

/// What the statements answer, without the names of columns.
fn query(database: &str, statements: &str) -> String {
    let socket = std::env::var("MYSQL_TEST_SOCKET").expect("MYSQL_TEST_SOCKET is set");
    let output = Command::new("mysql")
        .args(["--no-defaults", "--batch", "--skip-column-names"])
        .args(["--socket", &socket, "--execute", statements, database])
        .output()
        .expect("the client program `mysql`");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{statements}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A database of its own, which is dropped with this value.
struct Database(String);

impl Database {
    /// With the meter in it, which belongs to nobody yet.
    fn new() -> Self {
        static DATABASES: AtomicUsize = AtomicUsize::new(0);
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        let name = format!("recipes_{}_{number}", std::process::id());
        query("", &format!("CREATE DATABASE {name}"));
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

impl Drop for Database {
    fn drop(&mut self) {
        query("", &format!("DROP DATABASE {}", self.0));
    }
}

struct MysqlMeter(String);

impl MysqlMeter {
    /// Executes a prepared statement; what it has selected, or in how many rows it has changed something.
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

    /// Whether a statement of this holder was done: it has changed the row, or the row was so already.
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
#[ignore = "needs a MySQL or MariaDB server: MYSQL_TEST_SOCKET"]
async fn mysql_refuses_a_paused_holder_once_the_next_one_has_read() {
    let database = Database::new();
    refuses_a_paused_holder_once_the_next_one_has_read(&database.connect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs a MySQL or MariaDB server: MYSQL_TEST_SOCKET"]
async fn mysql_keeps_the_highest_of_many_writes_at_once() {
    let database = Database::new();
    let connections = (0..8).map(|_| database.connect());
    keeps_the_highest_of_many_writes_at_once(connections.collect()).await;
}
