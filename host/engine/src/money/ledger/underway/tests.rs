use super::*;
use crate::memory::health::{AttemptWatch, EndpointKey};
use cofferdam_store::Clock;

/// A running answer at an endpoint that produces a hundred tokens a second, each at one
/// pico-dollar.
fn underway(output_max: u64) -> Underway {
    let key = EndpointKey {
        model: "a/b".to_owned(),
        provider: "p".to_owned(),
        upstream: "b".to_owned(),
        tier: "default".to_owned(),
    };
    let (health, clock) = (Arc::new(Health::new(1, key, 0)), Clock::manual());
    let watch = AttemptWatch::begin_anyway(&health, &clock, true);
    clock.advance(Duration::from_secs(10));
    watch.finished(&Usage { output_tokens: 1_000, ..no_usage() }, Duration::ZERO);
    Underway {
        prices: Prices { input: Amount(1), output: Amount(1), ..Prices::default() },
        is_byok: false,
        tokens: AttemptTokens { input: 5, fetched: 0, output_max, input_max: 20 },
        believed_beside: BELIEVED_BESIDE,
        output_bytes: 40,
        images: 0,
        call_prices: CallPrices::default(),
        calls: Amount::default(),
        noted_calls: Amount::default(),
        began: Instant::now(),
        health,
        presence: {
            let presence = ClientPresence::default();
            presence.sent().store(true, Ordering::Relaxed);
            Arc::new(presence)
        },
        reported: None,
        is_recorded: false,
        is_complete: false,
    }
}

#[tokio::test(start_paused = true)]
async fn unseen_output_is_charged_by_time_and_at_most_what_is_reserved() {
    let answer = underway(5_000);
    let output = |left| answer.unreported(Unreported::Produced, left).output_tokens;
    assert_eq!(
        (output(None), answer.unreported(Unreported::Produced, None).input_tokens),
        (10, 5),
        "no time has passed"
    );
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(output(None), 2_000, "twenty seconds of a hundred tokens");
    assert_eq!(output(Some(10_000)), 2_000);
    assert_eq!(output(Some(105)), 100, "five are the input's");
    assert_eq!(output(Some(0)), 10, "what was seen is charged whatever is reserved");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(output(None), 5_000, "no more than the answer may have");
    let told = Usage { input_tokens: 7, output_tokens: 4_000, ..no_usage() };
    let told = Underway { reported: Some(told), is_recorded: true, ..underway(5_000) };
    tokio::time::sleep(Duration::from_secs(45)).await;
    let missing = told.unreported(Unreported::Produced, None);
    assert_eq!((missing.input_tokens, missing.output_tokens), (0, 500), "beyond what it has said");
}

#[tokio::test]
async fn reported_figures_are_believed_up_to_a_multiple_of_the_estimate() {
    let answer = underway(100);
    let beside = BELIEVED_BESIDE;
    let told = |input, output| Usage { input_tokens: input, output_tokens: output, ..no_usage() };
    let most = told(16 * 20 + beside, 16 * 100 + beside);
    assert_eq!(answer.corrected(most), most);
    assert_eq!(answer.corrected(told(16 * 20 + beside + 1, 3)), told(0, 3));
    assert_eq!(answer.corrected(told(3, 16 * 100 + beside + 1)), told(3, 0));
    let parts = Usage {
        cached_tokens: 8,
        cache_write_tokens: 8,
        reasoning_tokens: 8,
        cost_dollars: Some(1e9),
        images: u32::MAX,
        ..told(10, 5)
    };
    let corrected = Usage { cached_tokens: 8, cache_write_tokens: 2, reasoning_tokens: 5, ..told(10, 5) };
    assert_eq!(answer.corrected(parts), corrected);
    let pictures = Usage { images: 1_024, cost_dollars: Some(1_000.0), ..told(10, 5) };
    assert_eq!(answer.corrected(pictures), pictures);
    assert_eq!(answer.corrected(Usage { cost_dollars: Some(-1.0), ..pictures }).cost_dollars, None);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_charged_for_an_endpoint_that_was_not_reached() {
    let answer = Underway { presence: Arc::default(), output_bytes: 0, ..underway(5_000) };
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(answer.unreported(Unreported::Produced, None), no_usage());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_charged_for_the_time_of_a_question_that_was_refused() {
    let mut answer = Underway { output_bytes: 0, ..underway(5_000) };
    tokio::time::sleep(Duration::from_secs(20)).await;
    answer.asked_again();
    assert_eq!(answer.unreported(Unreported::Produced, None), no_usage(), "not sent again");
    answer.presence.sent().store(true, Ordering::Relaxed);
    assert_eq!(answer.unreported(Unreported::Produced, None).output_tokens, 0);
}

#[tokio::test(start_paused = true)]
async fn fetched_files_are_charged_to_a_client_that_left_unless_the_provider_reports_the_input() {
    let mut answer = underway(5_000);
    answer.tokens.fetched = 1_000;
    let input = |answer: &Underway, left| answer.unreported(Unreported::Unseen, left).input_tokens;
    assert_eq!(input(&answer, None), 1_005);
    assert_eq!(input(&answer, Some(115)), 105, "ten of what is left are the output's");
    assert_eq!(answer.unreported(Unreported::Produced, None).input_tokens, 5, "the client is still there");
    answer.told(Usage { input_tokens: 7, ..no_usage() });
    assert_eq!(input(&answer, None), 7);
    answer.reported = None;
    answer.is_whole(&[], false);
    assert_eq!(input(&answer, None), 5, "a complete answer was not read on");
}

#[tokio::test(start_paused = true)]
async fn without_a_measured_speed_only_seen_output_is_charged() {
    let key = underway(1).health.key().clone();
    let answer = Underway { health: Arc::new(Health::new(2, key, 0)), ..underway(5_000) };
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(answer.unreported(Unreported::Produced, None).output_tokens, 10);
}
