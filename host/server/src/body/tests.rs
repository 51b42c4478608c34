use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http_body::Frame;
use http_body_util::{Full, StreamBody};

use cofferdam_store::{Clock, KeyId};

use super::{ALL_BODIES_BYTES_MAX, BodyLimits, BodyMemory, is_empty, read, read_secret};
use crate::fault::Fault;

const LIMITS: BodyLimits =
    BodyLimits { bytes_max: 8, idle: Duration::from_secs(1), total: Duration::from_secs(3) };

fn budget() -> Arc<BodyMemory> {
    Arc::new(BodyMemory::new(&Clock::manual(), usize::MAX))
}

fn key(number: u8) -> KeyId {
    format!("abcdefghijk{number}").parse().unwrap()
}

fn chunks(parts: &[&'static str]) -> impl http_body::Body<Data = Bytes, Error = Infallible> + use<> {
    let parts: Vec<_> =
        parts.iter().map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes())))).collect();
    StreamBody::new(stream::iter(parts))
}

#[tokio::test]
async fn single_chunk_is_not_copied() {
    let bytes = Bytes::from_static(b"12345678");
    let read = read(Full::new(bytes.clone()), LIMITS, &mut budget().share(key(1))).await.unwrap();
    assert_eq!(read.as_ptr(), bytes.as_ptr());
}

#[tokio::test]
async fn chunks_are_joined_in_order() {
    let read = read(chunks(&["ab", "", "cd", "ef"]), LIMITS, &mut budget().share(key(1))).await.unwrap();
    assert_eq!(read, "abcdef");
}

#[tokio::test]
async fn declared_length_is_refused_before_reading() {
    let body = Full::new(Bytes::from_static(b"123456789"));
    let refused = read(body, LIMITS, &mut budget().share(key(1))).await;
    assert!(matches!(refused, Err(Fault::BodyTooLarge)));
}

#[tokio::test]
async fn undeclared_length_is_refused_when_it_is_passed() {
    let refused = read(chunks(&["12345", "6789"]), LIMITS, &mut budget().share(key(1))).await;
    assert!(matches!(refused, Err(Fault::BodyTooLarge)));
}

#[tokio::test(start_paused = true)]
async fn stopped_body_times_out() {
    let body = StreamBody::new(
        stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"a")))]).chain(stream::pending()),
    );
    let refused = read(body, LIMITS, &mut budget().share(key(1))).await;
    assert!(matches!(refused, Err(Fault::BodyTimedOut)));
}

#[tokio::test(start_paused = true)]
async fn slow_body_times_out() {
    let dribble = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(900)).await;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"a"))), ()))
    });
    let started = tokio::time::Instant::now();
    let refused = read(StreamBody::new(Box::pin(dribble)), LIMITS, &mut budget().share(key(1))).await;
    assert!(matches!(refused, Err(Fault::BodyTimedOut)));
    assert_eq!(started.elapsed(), Duration::from_secs(3));
}

#[tokio::test]
async fn budget_of_all_bodies_is_shared_and_given_back() {
    let budget = budget();
    let mut full = budget.share(key(1));
    full.grow(ALL_BODIES_BYTES_MAX).unwrap();
    assert!(matches!(read(chunks(&["a"]), LIMITS, &mut budget.share(key(2))).await, Err(Fault::Busy)));
    drop(full);
    assert!(read(chunks(&["a"]), LIMITS, &mut budget.share(key(2))).await.is_ok());
}

#[test]
fn key_gets_at_most_its_share_while_little_budget_is_left() {
    let budget = budget();
    let mut shares: Vec<_> = (0..8).map(|_| budget.share(key(1))).collect();
    // Left of the budget: an eighth plus one byte, then exactly an eighth, then less.
    shares[0].grow(7 * (ALL_BODIES_BYTES_MAX / 8) - 1).unwrap();
    shares[1].grow(1).unwrap();
    shares[2].grow(1).unwrap();
    let Err(Fault::Limited(limited)) = shares[3].grow(1) else { panic!("there is no limit") };
    assert_eq!(limited.details(), serde_json::json!({"limit": "body_bytes", "scope": "key"}));
    let mut other = budget.share(key(2));
    other.grow(1).unwrap();
    drop(shares);
    other.grow(ALL_BODIES_BYTES_MAX / 2).unwrap();
}

#[tokio::test]
async fn secret_bodies_are_read_into_a_buffer_that_never_moves() {
    let budget = budget();
    let mut share = budget.share(key(1));
    let whole = read_secret(Full::new(Bytes::from_static(b"1234")), LIMITS, &mut share).await.unwrap();
    assert_eq!((whole.as_slice(), whole.capacity()), (&b"1234"[..], 4));
    // Without a declared length the buffer has the maximum size from the start.
    let whole = read_secret(chunks(&["ab", "", "cd", "ef"]), LIMITS, &mut share).await.unwrap();
    assert_eq!((whole.as_slice(), whole.capacity()), (&b"abcdef"[..], 8));
    let refused = read_secret(Full::new(Bytes::from_static(b"123456789")), LIMITS, &mut share).await;
    assert!(matches!(refused, Err(Fault::BodyTooLarge)));
    let refused = read_secret(chunks(&["12345", "6789"]), LIMITS, &mut share).await;
    assert!(matches!(refused, Err(Fault::BodyTooLarge)));
}

#[tokio::test(start_paused = true)]
async fn body_is_empty_only_without_bytes() {
    for (parts, empty) in [(&[][..], true), (&["", ""][..], true), (&["", "a"][..], false)] {
        assert_eq!(is_empty(chunks(parts), LIMITS).await.unwrap(), empty, "{parts:?}");
    }
    assert!(!is_empty(Full::new(Bytes::from_static(b" ")), LIMITS).await.unwrap());
    let silent = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
    assert!(matches!(is_empty(silent, LIMITS).await, Err(Fault::BodyTimedOut)));
}
