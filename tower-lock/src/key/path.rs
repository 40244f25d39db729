//! The path that the client has sent, and what its route can have.

#[cfg(feature = "axum")]
use axum::extract::{MatchedPath, OriginalUri};
use http::Uri;

use crate::key::Head;
use crate::key::request::Flaw;

/// Returns the segments of the path that the client has sent.
pub(crate) fn segments(head: Head<'_>) -> impl Iterator<Item = &str> {
    whole(head).path().split('/').skip(1)
}

/// Returns the URI with the prefix that axum cuts off the request's own URI below `nest`.
#[cfg(feature = "axum")]
fn whole(head: Head<'_>) -> &Uri {
    let original = head.extensions().get::<OriginalUri>();
    original.map_or(head.uri(), |original| &original.0)
}

#[cfg(not(feature = "axum"))]
fn whole(head: Head<'_>) -> &Uri {
    head.uri()
}

/// Whether the handler may take a slash that is encoded within a segment, `%2F`, for one between two. axum decodes the parameter
/// of a wildcard, `{*path}`, as a whole.
#[cfg(feature = "axum")]
pub(crate) fn may_be_split(head: Head<'_>) -> bool {
    let route = head.extensions().get::<MatchedPath>();
    route.is_none_or(|route| route.as_str().contains("{*"))
}

/// The same: of another router, nobody knows.
#[cfg(not(feature = "axum"))]
pub(crate) fn may_be_split(_: Head<'_>) -> bool {
    true
}

/// Returns the flaw of a request whose path has too few segments. A route with a wildcard has as many as the client sends.
pub(crate) fn no_segment(head: Head<'_>) -> Flaw {
    if may_be_split(head) {
        Flaw::Missing
    } else {
        Flaw::NotInRoute
    }
}

/// Returns the flaw of a request whose route lacks what the key asks for. If no route has matched, the client's path is
/// wrong. Outside of a router, no request can have it.
#[cfg(feature = "axum")]
pub(crate) fn not_in_route(head: Head<'_>) -> Flaw {
    let extensions = head.extensions();
    let is_routed = extensions.get::<OriginalUri>().is_some();
    if is_routed && extensions.get::<MatchedPath>().is_none() {
        Flaw::Missing
    } else {
        Flaw::NotInRoute
    }
}
