use super::*;

#[tokio::test(start_paused = true)]
async fn a_pod_is_removed_with_its_containers_whatever_they_do() {
    let bench = running().await;
    bench.add("in/more").await.unwrap();
    bench.tasks.start(&name("in/more")).await.unwrap();
    bench.create("waits", What::Container(id("pod"), parts())).await.unwrap();
    bench.create("paused", What::Container(id("pod"), parts())).await.unwrap();
    bench.tasks.start(&name("paused")).await.unwrap();
    bench.tasks.pause(&name("paused")).await.unwrap();
    soon(bench.tasks.remove(&name("pod"))).await;
    assert!(bench.tasks.is_empty());
    assert_eq!((bench.vm.left(), bench.host.holders()), ((0, 0), 0));
    assert_eq!(bench.host.released(), [id("pod")]);
    // Again, and what never came, of which there may be a place.
    soon(bench.tasks.remove(&name("pod"))).await;
    soon(bench.tasks.remove(&name("other"))).await;
    assert_eq!(bench.host.released(), [id("pod"), id("pod"), id("other")]);
}

#[tokio::test(start_paused = true)]
async fn a_container_is_removed_without_its_pod() {
    let bench = running().await;
    soon(bench.tasks.remove(&name("in"))).await;
    assert_eq!(bench.vm.left(), (1, 0));
    assert_eq!(bench.tasks.snapshot(&name("pod")).unwrap().phase, Phase::Running);
}

#[tokio::test(start_paused = true)]
async fn what_is_being_created_is_removed_when_it_is_made() {
    for (script, what) in [
        // Calls to the VM, the first last: to make a pod, and a container.
        (vec![(600_000, false)], What::Pod(pod())),
        (vec![(600_000, true)], What::Pod(pod())),
        (vec![(300_000, false), (60_000, false)], What::Single(pod(), parts())),
    ] {
        let bench = Arc::new(Bench::new());
        bench.vm.follow(script);
        let creating = {
            let bench = bench.clone();
            tokio::spawn(async move { bench.create("new", what).await })
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
        timeout(Duration::from_secs(700), bench.tasks.remove(&name("new"))).await.expect("it ends");
        let _ = creating.await.unwrap();
        assert!(bench.tasks.is_empty());
        assert_eq!((bench.vm.left(), bench.host.holders()), ((0, 0), 0));
        assert_eq!(bench.host.released(), [id("new")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_removal_goes_on_until_the_vm_has_done_it_or_ended() {
    let bench = running().await;
    // The next calls fail, of which some delete something.
    bench.vm.follow(vec![(0, true); 8]);
    soon(bench.tasks.remove(&name("pod"))).await;
    assert_eq!((bench.tasks.is_empty(), bench.vm.left()), (true, (0, 0)));

    let bench = Arc::new(running().await);
    let ending = {
        let bench = bench.clone();
        tokio::spawn(async move { bench.tasks.end_with_vm(async {}).await })
    };
    tokio::task::yield_now().await;
    bench.vm.end();
    soon(bench.tasks.remove(&name("pod"))).await;
    ending.await.unwrap();
    assert!(bench.tasks.is_empty());
}
