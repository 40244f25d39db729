//! The page of the review site, clicked through in a browser without a window.

#[expect(dead_code, reason = "the other tests use the rest of it")]
mod served;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{RedisServer, eventually_within};

use served::{PATIENCE, Site};

/// A browser that is told what to do over a pipe, by the Chrome DevTools Protocol.
struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: BufReader<ChildStdout>,
    sent: u64,
    /// The tab.
    session: Value,
    /// What the page's scripts did not catch.
    errors: Vec<Value>,
    _profile: TempDir,
}

fn program() -> String {
    let named = env::var("BROWSER_BIN").ok();
    let usual = ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned);
    let mut programs = named.into_iter().chain(usual);
    let answers = |program: &String| Command::new(program).arg("--version").output().is_ok();
    programs.find(answers).expect(
        "no browser to test with: install Chromium (`apt-get install chromium`), or name its program in BROWSER_BIN",
    )
}

impl Browser {
    fn open(url: &str) -> Browser {
        let profile = tempfile::tempdir().expect("a directory");
        // It reads commands from 3 and writes messages to 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#,
                &program(),
            ])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the browser");
        let mut browser = Browser {
            commands: child.stdin.take().expect("a pipe"),
            messages: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
            sent: 0,
            session: Value::Null,
            errors: vec![],
            _profile: profile,
        };
        let tab = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": tab["targetId"], "flatten": true});
        browser.session = browser.call("Target.attachToTarget", attach)["sessionId"].take();
        browser.call("Runtime.enable", json!({}));
        browser.call("Page.navigate", json!({"url": url}));
        browser
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.sent += 1;
        let mut command = json!({"id": self.sent, "method": method, "params": parameters});
        if self.session.is_string() {
            command["sessionId"] = self.session.clone();
        }
        write!(self.commands, "{command}\0").expect("tell the browser");
        loop {
            let mut message = vec![];
            self.messages.read_until(0, &mut message).expect("read");
            message.pop();
            let mut message: Value = serde_json::from_slice(&message).expect("a message");
            if message["method"] == "Runtime.exceptionThrown" {
                self.errors.push(message["params"].take());
            } else if message["id"] == self.sent {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
        }
    }

    /// Runs a script in the page, and returns its value.
    fn run(&mut self, script: &str) -> Value {
        let script = json!({"expression": script, "returnByValue": true});
        self.call("Runtime.evaluate", script)["result"]["value"].take()
    }

    /// Waits until a text is in an element.
    async fn shows(&mut self, element: &str, text: &str) {
        let mut shown = String::new();
        let script = format!("document.getElementById('{element}')?.textContent ?? ''");
        let what = format!("#{element} shows `{text}`");
        eventually_within(PATIENCE, &what, async || {
            shown = self.run(&script).as_str().unwrap_or_default().to_owned();
            shown.contains(text)
        })
        .await;
    }

    fn click(&mut self, element: &str) {
        self.run(&format!("document.getElementById('{element}').click()"));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn the_page_shows_shops_stock_and_locks_and_sells() {
    let server = RedisServer::start();
    let site = Site::serve(&server.url(), 2);
    let mut browser = Browser::open(&site.client.url());
    browser.shows("shops", "Shop 1").await;
    browser.shows("sales", "stream100").await;
    browser.shows("locks", "site:housekeeper").await;

    browser.click("buy-stream");
    browser.shows("said", "sign in first (401)").await;
    browser.click("ask");
    let line = site.parent.line().expect("the code");
    let (_, code) = line.rsplit_once(' ').expect("a code");
    browser.run(&format!("document.getElementById('code').value = '{code}'"));
    browser.run("document.getElementById('sign-in').requestSubmit()");
    browser.shows("me", "user ").await;

    browser.click("buy-stream");
    browser.shows("said", "Order ").await;
    browser.shows("sales", "stream99").await;
    browser.click("buy-stream");
    browser.shows("said", "one for each user (409)").await;
    browser.click("shop-1");
    browser.shows("shop", "Shop 1: 1 views by 1 visitors").await;
    browser.click("next");
    browser.shows("shops", "Shop 11").await;
    browser.click("check-in");
    browser.shows("said", "Days in a row: 1").await;
    browser.click("out");
    browser.shows("me", "not signed in").await;
    assert_eq!(browser.errors, Vec::<Value>::new());
}
