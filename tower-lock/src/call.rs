//! The inner call, as a future.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::future::take_once;

pin_project! {
    /// The inner call. The service is called at the first poll, not earlier: by then the lock is known to be held,
    /// and locks that the service requests while it is being called are nested in the hold.
    #[project = CallProj]
    pub enum Call<S, Request>
    where
        S: Service<Request>,
    {
        Due {
            due: Option<(S, Request)>,
        },
        Made {
            #[pin]
            response: S::Future,
        },
    }
}

impl<S, Request> Call<S, Request>
where
    S: Service<Request>,
{
    /// Returns the future of a call of `ready`, an instance that has said that it is ready.
    pub(crate) fn new(ready: S, request: Request) -> Self {
        Call::Due {
            due: Some((ready, request)),
        }
    }
}

impl<S, Request> Future for Call<S, Request>
where
    S: Service<Request>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.as_mut().project() {
                CallProj::Due { due } => {
                    let (mut service, request) = take_once(due);
                    let response = service.call(request);
                    self.set(Call::Made { response });
                }
                CallProj::Made { response } => return response.poll(cx),
            }
        }
    }
}
