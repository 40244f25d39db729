//! The statements by which docs/operations.md shows a lock, and frees it.

use lock_runtime::{LostReason, TryAcquire};
use tests::{Sql, Table};
use tokio::time::timeout;

use super::{LONG, manager};

tests::on_each_database!(a_lock_is_shown_and_freed_by_hand_as_the_page_says);

async fn a_lock_is_shown_and_freed_by_hand_as_the_page_says<D: Sql>() {
    let page = include_str!("../../../../docs/operations.md");
    let (_, page) = page.split_once(D::HEADING).expect("the heading");
    let (_, block) = page.split_once("```sql\n").expect("a block");
    let (block, _) = block.split_once("```").expect("its end");
    let table = Table::<D>::new();
    let statements = block.replace("lock_leases", table.name());
    let (show, free) = statements.split_once("\n\n").expect("two statements");

    let locks = manager(&table.url()).await;
    let guard = locks.mutex("order:17").acquire().await.unwrap();
    let shown = table.server().ask(show).await;
    let is_shown = shown.len() == 1 && shown[0].contains(&locks.id());
    assert!(is_shown, "{shown:?}");
    table.server().ask(free).await;
    // By its lease, it would be told later, and with another reason.
    let told = timeout(4 * LONG, guard.lost().wait()).await;
    assert_eq!(told.expect("it is told"), LostReason::ForceReleased);
    let guard = locks.mutex("order:17").acquire().await.unwrap();
    guard.release().await.unwrap();
    drop(locks);
    table.empty();

    // What several have stays theirs: nobody would tell them.
    let locks = manager(&table.url()).await;
    let read = locks.read("order:17").acquire().await.unwrap();
    let shown = table.server().ask(show).await;
    assert!(shown[0].contains(&locks.id()), "{shown:?}");
    table.server().ask(free).await;
    let write = locks.write("order:17").try_acquire().await.unwrap();
    assert!(matches!(write, TryAcquire::Busy { .. }));
    read.release().await.unwrap();
}
