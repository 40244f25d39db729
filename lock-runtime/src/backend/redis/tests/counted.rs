//! Tests of the metrics of connections and scripts.

use super::*;
use crate::backend::Backend;
use crate::observe::sums::Sums;
use crate::values::holder::HolderIds;

#[tokio::test]
async fn connections_and_calls_are_counted() {
    let sums = Sums::default();
    let _recording = metrics::set_default_local_recorder(&sums);
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let (ids, key) = (HolderIds::new(), key("k"));
    let connected = || sums.of("lock_store_connected redis");
    until("it is connected", async || connected() == 1).await;
    let holder = ids.fresh();
    granted(backend.acquire(request(&key, holder, 5_000)).await.unwrap());
    backend.release(hold_ref(&key, holder), CALL).await.unwrap();
    assert_eq!(sums.of("lock_store_reconnections_total redis"), 0);
    for script in ["acquire", "release"] {
        let calls = sums.of(&format!("lock_store_calls_total redis {script} answered"));
        assert!(calls >= 1, "{script}: {calls}");
    }
    server.run("CLIENT PAUSE 60000 WRITE").await;
    let unanswered = || sums.of("lock_store_calls_total redis release unanswered");
    assert_eq!(unanswered(), 0);
    let release = backend.release(hold_ref(&key, holder), Duration::from_secs(1));
    assert!(matches!(release.await, Err(Fault::Unknown(_))));
    assert_eq!(unanswered(), 1);
    server.run("CLIENT UNPAUSE").await;
    server.run("CLIENT KILL TYPE normal").await;
    until("it is connected again", async || {
        sums.of("lock_store_reconnections_total redis") >= 1 && connected() == 1
    })
    .await;
    backend.close();
    until("it is closed", async || connected() == 0).await;
}
