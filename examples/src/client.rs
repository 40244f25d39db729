//! A client over HTTP.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;

use crate::Failure;

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of one server. Each request has a connection of its own, so none fails because the server that it was sent
/// to on an older connection is ending.
#[derive(Clone, Debug)]
pub struct Client {
    server: SocketAddr,
    http: Http<HttpConnector, Full<Bytes>>,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub text: String,
}

impl Client {
    /// Returns a client of the server that listens there.
    pub fn of(server: SocketAddr) -> Client {
        let http = Http::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build_http();
        Client { server, http }
    }

    /// Returns the server's URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.server)
    }

    /// Sends a POST to each path, all at the same time.
    ///
    /// # Errors
    /// If one of them gets no answer.
    pub async fn post_all(&self, paths: Vec<impl Into<String>>) -> Result<Vec<Answer>, Failure> {
        let mut requests = JoinSet::new();
        for path in paths {
            let (client, path) = (self.clone(), path.into());
            requests.spawn(async move { client.send(Method::POST, &path, &[], "").await });
        }
        let mut answers = vec![];
        while let Some(answer) = requests.join_next().await {
            answers.push(answer??);
        }
        Ok(answers)
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If there is no answer within a minute.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Answer, Failure> {
        let url = self.url() + path;
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.to_owned()))?;
        let response = tokio::time::timeout(PATIENCE, self.http.request(request)).await??;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        Ok(Answer {
            status,
            headers,
            text,
        })
    }
}

impl Answer {
    /// Returns a header's value.
    pub fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if let Some(after) = self.header(header::RETRY_AFTER) {
            write!(f, ", Retry-After: {after}")?;
        }
        write!(f, ", {}", self.text)
    }
}
