//! Waiting at a store that publishes no releases.

use std::time::Duration;

use crate::backend::{Boxed, Listen};
use crate::values::{Backoff, clock};

/// The first pause. It is short because many holds are short.
const FIRST: Duration = Duration::from_millis(10);
/// The longest pause. The caller's own longest pause is not much longer.
const LONGEST: Duration = Duration::from_millis(750);

/// A listener that receives no messages. It makes its caller ask again after pauses that grow.
pub(crate) struct Polling(Backoff);

impl Polling {
    pub(crate) fn new() -> Polling {
        Polling(Backoff::new(FIRST, LONGEST))
    }
}

impl Listen for Polling {
    fn heard(&mut self) -> Boxed<'_, u64> {
        let pause = self.0.pause();
        Box::pin(async move {
            clock::sleep(pause).await;
            1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_less_than_a_second_and_a_quarter() {
        let (mut polling, mut pauses) = (Polling::new(), Vec::new());
        for _ in 0..12 {
            let began = clock::now();
            polling.heard().await;
            pauses.push(began.elapsed());
        }
        assert!(pauses[0] < FIRST * 2, "{pauses:?}");
        assert!(pauses[11] > LONGEST / 3, "{pauses:?}");
        assert!(
            pauses.iter().all(|pause| *pause < LONGEST * 5 / 3),
            "{pauses:?}"
        );
    }
}
