//! Guests that lack memory.

use super::{script::Exceptions, *};
use tokio::time::sleep;

const MOMENT: Duration = Duration::from_millis(50);

#[tokio::test(start_paused = true)]
async fn a_guest_that_asks_is_lent_what_is_free_and_that_is_accounted_for() {
    let scene = Scene::of(Exceptions::default(), Setup::default()).await;
    scene.call(0).await.unwrap();
    let machine = scene.worlds[0].machines()[0].clone();
    for bytes in [4, 3] {
        machine.ask(bytes);
        sleep(MOMENT).await;
    }
    assert_eq!(machine.lent(), [4, 3]);
    let committed_bytes = scene.node.status().await.unwrap().committed_bytes;
    assert_eq!(committed_bytes, BASE_BYTES + INSTANCE_BYTES + 7);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_guest_is_not_lent_after_all_is_not_accounted_for() {
    let scene = Scene::of(Exceptions::default(), Setup::default()).await;
    scene.call(0).await.unwrap();
    let machine = scene.worlds[0].machines()[0].clone();
    for (most, committed) in [(0, 0), (0, 0), (3, 3), (0, 3), (9, 7)] {
        machine.lends_at_most(most);
        machine.ask(4);
        sleep(MOMENT).await;
        let committed_bytes = scene.node.status().await.unwrap().committed_bytes;
        assert_eq!(committed_bytes, BASE_BYTES + INSTANCE_BYTES + committed);
    }
    assert_eq!(machine.lent(), [0, 0, 3, 0, 4]);
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_asks_without_end_gets_no_more_than_its_bound_and_delays_nobody() {
    let limit_bytes = BASE_BYTES + 3 * INSTANCE_BYTES;
    let setup = Setup { limit_bytes, ..Setup::default() };
    let scene = Scene::of(Exceptions::default(), setup).await;
    scene.call(0).await.unwrap();
    let machine = scene.worlds[0].machines()[0].clone();
    for _ in 0..100 {
        machine.ask(u64::MAX);
        sleep(MOMENT).await;
        scene.call(0).await.unwrap();
    }
    assert_eq!(machine.lent(), [INSTANCE_BYTES]);
    // The rest is for instances.
    let (one, two) = tokio::join!(scene.call(0), scene.call(0));
    one.and(two).unwrap();
    let committed_bytes = scene.node.status().await.unwrap().committed_bytes;
    assert_eq!(committed_bytes, limit_bytes);
    scene.end().await;
}
