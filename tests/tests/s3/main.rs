//! Tests of the recipe for objects in S3, on an imitation of S3. `scripts/test-s3` runs them.

#[path = "../recipes/meter.rs"]
#[allow(dead_code, reason = "the rest of it is for recipes of databases")]
mod meter;

use lock_runtime::FencingToken;
use serde_json::{Value, json};
use tests::{MotoServer, S3Answer, documented_request};

use crate::meter::{Meter, refuses_a_paused_holder_once_the_next_one_has_read};

struct S3Meter(MotoServer);

/// An object as it was read.
struct Read {
    etag: String,
    content: Value,
}

/// The conditions of a write.
enum If {
    /// Nothing has changed since this `ETag` was read.
    Match(String),
    NothingIsThere,
}

impl S3Meter {
    fn new() -> Self {
        let server = MotoServer::start();
        assert_eq!(server.send("PUT /meters HTTP/1.1", "").status, 200);
        Self(server)
    }

    fn read(&self) -> Option<Read> {
        let answer = self.0.send("GET /meters/gas.json HTTP/1.1", "");
        match answer.status {
            404 => None,
            200 => Some(Read {
                etag: answer.etag().unwrap().to_owned(),
                content: serde_json::from_str(&answer.body).unwrap(),
            }),
            _ => panic!("{answer:?}"),
        }
    }

    /// Sends the request of the page, with another `ETag` and other content.
    fn put(&self, condition: &If, content: &Value) -> S3Answer {
        let (head, shown) = documented_request("S3");
        let shown: Value = serde_json::from_str(shown).unwrap();
        let names = |object: &Value| -> Vec<String> {
            object.as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(names(&shown), names(content), "as on the page");
        let (first, header) = head.split_once('\n').unwrap();
        let (name, _) = header.split_once(": ").unwrap();
        let head = match condition {
            If::Match(etag) => format!("{first}\n{name}: {etag}"),
            If::NothingIsThere => format!("{first}\nIf-None-Match: *"),
        };
        self.0.send(&head, &content.to_string())
    }

    /// Writes this token, and this value if there is one, and returns the value that was there. Returns `None` if a
    /// higher token is there.
    fn exchange(&self, token: FencingToken, value: Option<i64>) -> Option<i64> {
        loop {
            let read = self.read();
            let (was, condition) = match read {
                None => (0, If::NothingIsThere),
                Some(read) if read.content["fence"].as_u64() > Some(token.get()) => return None,
                Some(read) => {
                    let was = read.content["value"].as_i64().unwrap();
                    (was, If::Match(read.etag))
                }
            };
            let content = json!({ "fence": token.get(), "value": value.unwrap_or(was) });
            match self.put(&condition, &content).status {
                200 => return Some(was),
                409 | 412 => {} // somebody has written: look again
                status => panic!("{status}"),
            }
        }
    }
}

impl Meter for S3Meter {
    async fn raise_and_read(&self, token: FencingToken) -> Option<i64> {
        self.exchange(token, None)
    }

    async fn write(&self, token: FencingToken, value: i64) -> bool {
        self.exchange(token, Some(value)).is_some()
    }
}

#[tokio::test]
async fn s3_refuses_a_paused_holder_once_the_next_one_has_read() {
    refuses_a_paused_holder_once_the_next_one_has_read(&S3Meter::new()).await;
}

#[test]
fn a_write_with_an_unmet_condition_is_answered_as_documented() {
    let meter = S3Meter::new();
    let content = json!({ "fence": 1, "value": 1 });
    let wrong = If::Match("\"9b2cf535f27731c974343645a3985328\"".to_owned());
    assert_eq!(meter.put(&wrong, &content).status, 404);
    assert_eq!(meter.put(&If::NothingIsThere, &content).status, 200);
    assert_eq!(meter.put(&If::NothingIsThere, &content).status, 412);
    assert_eq!(meter.put(&wrong, &content).status, 412);
}

#[test]
fn a_token_in_metadata_changes_no_etag_so_a_late_write_passes() {
    let meter = S3Meter::new();
    let content = json!({ "fence": 0, "value": 1 }).to_string();
    let put = |condition: &str, token: u64| {
        let head = format!("PUT /meters/gas.json HTTP/1.1\n{condition}\nx-amz-meta-fence: {token}");
        meter.0.send(&head, &content).status
    };
    assert_eq!(put("If-None-Match: *", 33), 200);
    let seen_by_33 = meter.read().unwrap().etag;
    let condition = format!("If-Match: {seen_by_33}");
    assert_eq!(put(&condition, 34), 200, "34 raises the fence");
    assert_eq!(put(&condition, 33), 200, "33 is late, and not refused");
}
