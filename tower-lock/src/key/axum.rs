//! Parts of a key that axum's router knows.

use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::str::FromStr;
use std::task::{Context, Poll, Waker};

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams};
use http::Request;

use crate::key::path::not_in_route;
use crate::key::request::{Flaw, Form, as_parsed, as_sent, only};
use crate::key::{Head, RequestKey};

impl RequestKey {
    /// Adds a parameter of the matched route, decoded: `id` of `/orders/{id}`. Needs the feature `axum`.
    ///
    /// Only layers that are added to a router (`Router::layer`, `Router::route_layer`) run after the route is known. A
    /// layer around the whole router, or on a route without this parameter, refuses every request with 500 and logs why.
    /// Around a router that is a service of another one (`nest_service`, `fallback_service`), it refuses with 400: such
    /// a request looks as one to a path without a route does.
    ///
    /// A parameter that is there twice (`/{id}/users/{id}`, by `nest`) is refused with 400 as well.
    #[must_use]
    pub fn path_param(self, name: &'static str) -> Self {
        self.path_param_in(name, as_sent)
    }

    /// Adds a parameter of the matched route as a value of type `T`. Needs the feature `axum`. See
    /// [`header_as`](Self::header_as) for what that is good for.
    #[must_use]
    pub fn path_param_as<T: FromStr + Display>(self, name: &'static str) -> Self {
        self.path_param_in(name, as_parsed::<T>)
    }

    fn path_param_in(self, name: &'static str, form: Form) -> Self {
        let what = format!("The path parameter `{name}`");
        self.text(&what, form, move |head| {
            let params = path_params(head)?;
            let mut values = params.iter().filter(|(of, _)| *of == name);
            match only(&mut values) {
                Ok((_, value)) => Ok(value.to_owned().into()),
                Err(Flaw::Missing) => Err(not_in_route(head)),
                Err(flaw) => Err(flaw),
            }
        })
    }

    /// Adds the matched route, such as `/orders/{id}`. Needs the feature `axum`. See
    /// [`path_param`](Self::path_param) for where it is known.
    #[must_use]
    pub fn matched_path(self) -> Self {
        self.part("A path that matches a route", |head, key| {
            let path = head.extensions().get::<MatchedPath>();
            Ok(key.with(path.ok_or_else(|| not_in_route(head))?.as_str()))
        })
    }
}

/// Returns the parameters of the matched route. axum keeps them in a private extension, so that only its extractor can
/// read them, and the extractor needs `Parts` of its own.
fn path_params(head: Head<'_>) -> Result<RawPathParams, Flaw> {
    let mut request = Request::new(());
    *request.extensions_mut() = head.extensions().clone();
    let (mut parts, ()) = request.into_parts();
    let params = pin!(RawPathParams::from_request_parts(&mut parts, &()));
    // The extractor awaits nothing, so one poll is enough.
    match params.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(params)) => Ok(params),
        // One of them is no text, perhaps another one. axum keeps none of them then.
        Poll::Ready(Err(RawPathParamsRejection::InvalidUtf8InPathParam(_))) => Err(Flaw::NoText),
        Poll::Ready(Err(_)) | Poll::Pending => Err(not_in_route(head)),
    }
}
