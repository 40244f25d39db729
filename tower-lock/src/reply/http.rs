//! Replies for HTTP.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response};

use crate::refusal::Refusal;
use crate::reply::Reply;

/// A reply with the kind's status, `Retry-After`, and a problem document (RFC 9457) that names neither the lock nor
/// what went wrong inside.
///
/// See the example of [`Reply`](crate::Reply).
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemJson;

impl<B, E> Reply<Response<B>, E> for ProblemJson
where
    B: From<String>,
{
    fn reply(&self, refusal: Refusal) -> Result<Response<B>, E> {
        let mut response = bare(&refusal, B::from(problem(&refusal)));
        response.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        Ok(response)
    }
}

/// A reply with the kind's status and `Retry-After`, and no body.
///
/// See the example of [`Reply`](crate::Reply).
#[derive(Clone, Copy, Debug, Default)]
pub struct EmptyBody;

impl<B, E> Reply<Response<B>, E> for EmptyBody
where
    B: Default,
{
    fn reply(&self, refusal: Refusal) -> Result<Response<B>, E> {
        Ok(bare(&refusal, B::default()))
    }
}

fn bare<B>(refusal: &Refusal, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = refusal.kind().status();
    if let Some(pause) = refusal.retry_after() {
        // Whole seconds, rounded up: 1 to 5.
        let seconds = pause.as_millis().div_ceil(1_000) as u64;
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// Returns the problem document.
fn problem(refusal: &Refusal) -> String {
    let status = refusal.kind().status();
    let mut detail = String::new();
    for character in refusal.detail().chars() {
        match character {
            '"' | '\\' => detail.extend(['\\', character]),
            '\u{0}'..='\u{1f}' => detail += &format!("\\u{:04x}", u32::from(character)),
            _ => detail.push(character),
        }
    }
    format!(
        r#"{{"type":"about:blank","title":"{}","status":{},"detail":"{detail}"}}"#,
        status.canonical_reason().unwrap_or_default(),
        status.as_u16(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_quotes_is_still_a_json_document() {
        let refusal = Refusal::bad_key("The query parameter `a\"b\\c\n` is missing.".to_owned());
        let problem = problem(&refusal);
        assert!(
            problem.ends_with(r#""detail":"The query parameter `a\"b\\c\u000a` is missing."}"#),
            "{problem}"
        );
    }
}
