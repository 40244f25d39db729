//! A refusal as axum's response.

use std::convert::Infallible;

use axum::body::Body;
use axum::response::{IntoResponse, Response};

use crate::refusal::{self, Refusal};
use crate::reply::{ProblemJson, Reply};

/// Converts a refusal into the response that [`ProblemJson`] answers with. A refusal whose cause only the operator can
/// fix is logged as an error. Needs the feature `axum`.
impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        refusal::log(&self);
        let response: Result<Response<Body>, Infallible> = ProblemJson.reply(self);
        match response {
            Ok(response) => response,
        }
    }
}
