use super::*;
use std::collections::VecDeque;
use tokio::time::timeout;

pub(super) fn pod() -> PodName {
    PodName {
        namespace: "default".parse().unwrap(),
        name: "web".parse().unwrap(),
        uid: "1".parse().unwrap(),
    }
}

/// Answers as it was told to, then that it is done, and remembers what it was asked.
#[derive(Default)]
struct Script {
    answers: std::sync::Mutex<VecDeque<Result<Answer, Silence>>>,
    asked: std::sync::Mutex<Vec<Option<u64>>>,
    /// How long it takes.
    silence: std::sync::Mutex<Option<Duration>>,
}

impl Cluster for Arc<Script> {
    fn ask<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Answer, Silence>> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(request.occupied_bytes);
            let silence = *self.silence.lock().unwrap();
            if let Some(silence) = silence {
                sleep(silence).await;
            }
            self.answers.lock().unwrap().pop_front().unwrap_or(Ok(Answer::Done))
        })
    }
}

impl Script {
    fn answers(&self, answers: impl IntoIterator<Item = Result<Answer, Silence>>) {
        self.answers.lock().unwrap().extend(answers);
    }

    fn take_asked(&self) -> Vec<Option<u64>> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

fn refused() -> Result<Answer, Silence> {
    Ok(Answer::Refused { why: "it is full".to_owned() })
}

fn failed() -> Result<Answer, Silence> {
    Ok(Answer::Failed { why: "no".to_owned() })
}

fn not_asked() -> Result<Answer, Silence> {
    Err(Silence::NotAsked("no".to_owned()))
}

fn no_answer() -> Result<Answer, Silence> {
    Err(Silence::NoAnswer("no".to_owned()))
}

/// A pod that runs and requests its limit.
async fn running() -> (Arc<MemoryRequest<Arc<Script>>>, Arc<Script>) {
    let script = Arc::new(Script::default());
    let request = MemoryRequest::of_running(pod(), script.clone());
    sleep(Duration::from_millis(1)).await;
    assert_eq!(script.take_asked(), [None], "its server may be the second one");
    assert_eq!(*request.state.lock().await, State::Limit);
    (request, script)
}

#[tokio::test(start_paused = true)]
async fn a_pod_requests_what_it_occupies_while_it_is_frozen() {
    let (request, script) = running().await;
    request.rise().await.unwrap();
    assert_eq!(script.take_asked(), [], "it has not fallen");
    request.fall((20 << 20) + 1).await;
    request.rise().await.unwrap();
    assert_eq!(script.take_asked(), [Some(21 << 20), None]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_stays_frozen_while_its_node_is_full() {
    let (request, script) = running().await;
    request.fall(1).await;
    for _ in 0..100 {
        script.answers([refused()]);
        let error = request.rise().await.unwrap_err();
        assert!(error.to_string().contains("it is full"), "{error}");
        sleep(Duration::from_secs(1)).await;
    }
    request.rise().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_node_says_nothing_runs_after_some_time_and_asks_on() {
    let (request, script) = running().await;
    request.fall(1).await;
    let begin = Instant::now();
    loop {
        script.answers([[failed(), not_asked(), no_answer()]
            [begin.elapsed().as_secs() as usize % 3]
            .clone()]);
        if request.rise().await.is_ok() {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(begin.elapsed(), PATIENCE);
    script.take_asked();
    script.answers([failed(), refused()]);
    sleep(4 * ASK_INTERVAL).await;
    assert_eq!(script.take_asked(), [None; 3], "until it is done");
}

#[tokio::test(start_paused = true)]
async fn whoever_has_waited_in_vain_once_does_not_wait_again() {
    let (request, script) = running().await;
    request.fall(1).await;
    script.answers((0..100).map(|_| not_asked()));
    while request.rise().await.is_err() {
        sleep(Duration::from_secs(1)).await;
    }
    for _ in 0..3 {
        request.fall(1).await;
        request.rise().await.unwrap();
    }
    script.answers.lock().unwrap().clear();
    script.take_asked();
    // It was never the limit again.
    request.rise().await.unwrap();
    assert_eq!(script.take_asked(), [None]);
    request.rise().await.unwrap();
    assert_eq!(script.take_asked(), []);
}

#[tokio::test(start_paused = true)]
async fn a_full_node_is_waited_for_however_long_nobody_had_said_so() {
    let (request, script) = running().await;
    request.fall(1).await;
    script.answers([failed(), refused(), failed()]);
    for _ in 0..3 {
        assert!(request.rise().await.is_err());
        sleep(PATIENCE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_silent_after_a_refusal_still_refuses_for_a_while() {
    let (request, script) = running().await;
    request.fall(1).await;
    script.answers([refused()]);
    request.rise().await.unwrap_err();
    let begin = Instant::now();
    loop {
        script.answers([failed()]);
        if request.rise().await.is_ok() {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(begin.elapsed(), FULL + PATIENCE);
}

#[tokio::test(start_paused = true)]
async fn what_did_not_fall_need_not_rise() {
    for answer in [refused(), not_asked()] {
        let (request, script) = running().await;
        script.answers([answer]);
        request.fall(1).await;
        script.take_asked();
        request.rise().await.unwrap();
        assert_eq!(script.take_asked(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_have_fallen_rises_and_is_looked_at_until_it_can_fall_no_more() {
    for answer in [failed(), no_answer()] {
        let (request, script) = running().await;
        script.answers([answer]);
        request.fall(1).await;
        script.take_asked();
        let begin = Instant::now();
        request.rise().await.unwrap();
        while *request.state.lock().await != State::Limit {
            sleep(Duration::from_secs(1)).await;
        }
        assert!(begin.elapsed() >= LATE, "{:?}", begin.elapsed());
        let asked = script.take_asked();
        assert!(asked.len() > 7 && asked.iter().all(Option::is_none), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fall_that_is_given_up_may_have_happened() {
    let (request, script) = running().await;
    *script.silence.lock().unwrap() = Some(Duration::from_secs(3));
    assert!(timeout(Duration::from_secs(1), request.fall(1)).await.is_err());
    *script.silence.lock().unwrap() = None;
    script.take_asked();
    request.rise().await.unwrap();
    assert_eq!(script.take_asked()[0], None);
}

#[tokio::test(start_paused = true)]
async fn what_asks_on_does_not_forget_a_fall_in_between() {
    let script = Arc::new(Script::default());
    *script.silence.lock().unwrap() = Some(Duration::from_millis(10));
    let request = MemoryRequest::of_running(pod(), script.clone());
    for ms in 0..30 {
        sleep(Duration::from_millis(ms)).await;
        request.fall(1).await;
        assert_eq!(*request.state.lock().await, State::Less);
        sleep(Duration::from_millis(30)).await;
        assert_eq!(*request.state.lock().await, State::Less);
        request.ask_on(Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_never_had_its_limit_runs_as_it_did_and_asks_on() {
    let script = Arc::new(Script::default());
    script.answers([refused(), not_asked(), refused()]);
    let request = MemoryRequest::of_running(pod(), script.clone());
    sleep(Duration::from_millis(1)).await;
    request.fall(1).await;
    script.take_asked();
    request.rise().await.unwrap();
    sleep(2 * ASK_INTERVAL).await;
    assert_eq!(script.take_asked(), [None, None]);
    assert_eq!(*request.state.lock().await, State::Limit);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_pod_is_not_asked_for_by_what_asks_on() {
    let script = Arc::new(Script::default());
    script.answers([failed(), Ok(Answer::Done), failed()]);
    let request = MemoryRequest::of_running(pod(), script.clone());
    sleep(Duration::from_millis(1)).await;
    request.fall(1).await;
    sleep(3 * ASK_INTERVAL).await;
    assert_eq!(script.take_asked(), [None, Some(UNIT_BYTES)]);
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_for_a_pod_that_is_gone() {
    let script = Arc::new(Script::default());
    script.answers((0..10).map(|_| failed()));
    drop(MemoryRequest::of_running(pod(), script.clone()));
    sleep(3 * ASK_INTERVAL).await;
    assert!(script.take_asked().len() <= 1);
}
