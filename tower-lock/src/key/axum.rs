//! Parts of a key that axum's router knows.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::extract::{FromRequestParts, MatchedPath, RawPathParams};
use http::Request;

use crate::key::request::Flaw;
use crate::key::{Head, RequestKey};

impl RequestKey {
    /// Adds a parameter of the matched route, decoded: `id` of `/orders/{id}`. Needs the feature `axum`.
    ///
    /// Only layers that are added to a router (`Router::layer`, `Router::route_layer`) run after the route is known; a
    /// layer around the whole router finds no parameter.
    #[must_use]
    pub fn path_param(self, name: &'static str) -> Self {
        let what = format!("The path parameter `{name}`");
        self.part(&what, move |head, key| {
            let params = path_params(head).ok_or(Flaw::Missing)?;
            let found = params.iter().find(|(of, _)| *of == name);
            Ok(key.with(found.ok_or(Flaw::Missing)?.1))
        })
    }

    /// Adds the matched route, such as `/orders/{id}`. Needs the feature `axum`. See
    /// [`path_param`](Self::path_param) for where it is known.
    #[must_use]
    pub fn matched_path(self) -> Self {
        self.part("A path that matches a route", |head, key| {
            let path = head.extensions().get::<MatchedPath>();
            Ok(key.with(path.ok_or(Flaw::Missing)?.as_str()))
        })
    }
}

/// Returns the parameters of the matched route. axum keeps them in a private extension, so that only its extractor can
/// read them, and the extractor needs `Parts` of its own.
fn path_params(head: Head<'_>) -> Option<RawPathParams> {
    let mut request = Request::new(());
    *request.extensions_mut() = head.extensions().clone();
    let (mut parts, ()) = request.into_parts();
    let params = pin!(RawPathParams::from_request_parts(&mut parts, &()));
    // The extractor awaits nothing, so one poll is enough.
    match params.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(params) => params.ok(),
        Poll::Pending => None,
    }
}
