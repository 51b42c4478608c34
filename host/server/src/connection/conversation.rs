//! One connection: its requests, checks for activity, and its end at a shutdown.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::TaskTracker;

use super::{Connections, STALL_MAX};
use crate::handle::HEADERS_BYTES_MAX;
use crate::peer::Peer;
use crate::reply::answer::ResponseBody;
use crate::stall::OpenAnswers;
use crate::workers::Workers;

/// A request head must arrive completely within this time. It also ends idle HTTP/1 connections.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a connection is checked for activity, first when it begins. The second check in a row
/// without activity closes it gracefully, the third at once: 30 and 60 seconds after the beginning of a
/// connection without any request.
const IDLE_ROUND: Duration = Duration::from_secs(30);
/// The read buffer of a connection. Hyper refuses longer heads itself, without an error document.
const READ_BYTES_MAX: usize = 2 * HEADERS_BYTES_MAX;

impl Connections {
    /// Serves a connection until its client or the shutdown ends it.
    pub(super) async fn converse<S, H, F>(&self, stream: S, peer: Peer, handler: H)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + 'static,
        F: Future<Output = Response<ResponseBody>> + Send + 'static,
    {
        let running = Arc::clone(&peer.running);
        let answers = Arc::<OpenAnswers>::default();
        let served = Arc::new(AtomicUsize::new(0));
        let service = {
            let served = Arc::clone(&served);
            service_fn(move |request| {
                served.fetch_add(1, Ordering::Relaxed);
                handler(request, peer.clone()).map(Ok::<_, Infallible>)
            })
        };
        let tracked = Tracked {
            workers: self.workers.clone(),
            tasks: self.tasks.clone(),
            answers: Arc::clone(&answers),
        };
        let builder = builder(tracked, self.streams_max);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut idle = Idle::default();
        idle.check(&running, &served);
        let mut notices = FuturesUnordered::from_iter([self.cutting(), self.stopping(), next_round()]);
        loop {
            tokio::select! {
                biased;
                // Errors here come from the client: a broken connection or a malformed head.
                ended = &mut connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended");
                    }
                    break;
                }
                Some(notice) = notices.next() => match notice {
                    Notice::Cut => break,
                    Notice::Stop => connection.as_mut().graceful_shutdown(),
                    Notice::Round => {
                        answers.end_stalled(STALL_MAX);
                        match idle.check(&running, &served) {
                            0 | 1 => {}
                            2 => connection.as_mut().graceful_shutdown(),
                            _ => break,
                        }
                        notices.push(next_round());
                    }
                }
            }
        }
    }

    fn cutting(&self) -> Noticed {
        Box::pin(self.cut.clone().cancelled_owned().map(|()| Notice::Cut))
    }

    fn stopping(&self) -> Noticed {
        Box::pin(self.stop.clone().cancelled_owned().map(|()| Notice::Stop))
    }
}

/// Events for the task of a connection. They are polled only when they have fired, while the
/// connection itself is polled for every byte that arrives.
enum Notice {
    /// Close the connection now.
    Cut,
    /// Finish running requests and take no new ones.
    Stop,
    /// Check for activity.
    Round,
}

type Noticed = Pin<Box<dyn Future<Output = Notice> + Send>>;

fn next_round() -> Noticed {
    Box::pin(tokio::time::sleep(IDLE_ROUND).map(|()| Notice::Round))
}

/// Counts the checks in a row that found a connection idle.
#[derive(Default)]
struct Idle {
    checks: u32,
    served: usize,
}

impl Idle {
    fn check(&mut self, running: &AtomicUsize, served: &AtomicUsize) -> u32 {
        let served = served.load(Ordering::Relaxed);
        let quiet = running.load(Ordering::Relaxed) == 0 && served == self.served;
        self.served = served;
        self.checks = if quiet { self.checks + 1 } else { 0 };
        self.checks
    }
}

fn builder(tasks: Tracked, streams_max: u32) -> Builder<Tracked> {
    let mut builder = Builder::new(tasks);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(READ_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams_max)
        .max_header_list_size(u32::try_from(READ_BYTES_MAX).unwrap_or(u32::MAX))
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Runs the requests of an HTTP/2 connection as tasks that the drain waits for.
#[derive(Clone)]
struct Tracked {
    workers: Workers,
    tasks: TaskTracker,
    answers: Arc<OpenAnswers>,
}

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.workers.spawn(&self.tasks, self.answers.run(future));
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Mutex;

    use bytes::Bytes;
    use http_body_util::{BodyExt, Empty};
    use hyper::client::conn::http2;
    use hyper_util::rt::TokioExecutor;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connection_is_open_while_an_answer_runs_and_is_closed_when_it_is_idle() {
        let connections = Connections::new(8, 8, Arc::default(), Workers::current(), None);
        let (chunks, body) = mpsc::channel(1);
        let body = Mutex::new(Some(body));
        let handler = move |_: Request<Incoming>, peer: Peer| {
            let mut answer = ResponseBody::channel(body.lock().unwrap().take().unwrap());
            answer.keep_running(peer.begin_request());
            std::future::ready(Response::new(answer))
        };
        let (near, mut far) = duplex(4096);
        let address = Ipv4Addr::LOCALHOST.into();
        let peer = Peer { address, running: Arc::default() };
        let client = async {
            far.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            tokio::time::sleep(10 * IDLE_ROUND).await;
            chunks.send(Bytes::from_static(b"late")).await.unwrap();
            drop(chunks);
            let mut answer = Vec::new();
            far.read_to_end(&mut answer).await.unwrap();
            String::from_utf8(answer).unwrap()
        };
        let handler = Arc::new(handler);
        let handler = move |request, peer| handler(request, peer);
        let ((), answer) = tokio::join!(connections.converse(near, peer, handler), client);
        assert!(answer.ends_with("late\r\n0\r\n\r\n"), "{answer}");
    }

    /// The bytes that are read up to the end, some in every 400 ms.
    async fn read_slowly(mut stream: DuplexStream) -> usize {
        let (mut piece, mut read, mut more) = (vec![0; 4096], 0, 1);
        while more > 0 {
            more = stream.read(&mut piece).await.unwrap();
            read += more;
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        read
    }

    /// Twice as slow, the last pieces would take as long as a connection may be idle.
    #[tokio::test(start_paused = true)]
    async fn long_answer_is_sent_whole_to_a_client_that_reads_slowly_all_the_time() {
        const BYTES: usize = 4 << 20;
        let connections = Connections::new(8, 8, Arc::default(), Workers::current(), None);
        let handler = move |_: Request<Incoming>, peer: Peer| {
            let mut answer = ResponseBody::whole(Bytes::from(vec![b'x'; BYTES]));
            answer.keep_running(peer.begin_request());
            std::future::ready(Response::new(answer))
        };
        let (near, mut far) = duplex(4096);
        let address = Ipv4Addr::LOCALHOST.into();
        let peer = Peer { address, running: Arc::default() };
        far.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let client = read_slowly(far);
        let ((), read) = tokio::join!(connections.converse(near, peer, handler), client);
        assert!(read > BYTES, "{read} bytes with the head");
    }

    /// Begins the request in its own task, as all handlers of HTTP/2 do.
    async fn respond(mut answer: ResponseBody, peer: Peer) -> Response<ResponseBody> {
        answer.keep_running(peer.begin_request());
        Response::new(answer)
    }

    /// Begins two requests on one connection and reads the answer of the second alone, a chunk in each
    /// round. Returns the answers, the first unread.
    async fn read_the_second(far: DuplexStream, chunks: mpsc::Sender<Bytes>) -> [Incoming; 2] {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(100_000);
        let (mut requests, connection) = builder.handshake(TokioIo::new(far)).await.unwrap();
        tokio::spawn(connection);
        let request = |path| Request::get(path).body(Empty::<Bytes>::new()).unwrap();
        let first = requests.send_request(request("http://localhost/whole")).await.unwrap().into_body();
        let mut second =
            requests.send_request(request("http://localhost/channel")).await.unwrap().into_body();
        for _ in 0..4 {
            tokio::time::sleep(IDLE_ROUND).await;
            chunks.send(Bytes::from_static(b"more")).await.unwrap();
            assert_eq!(second.frame().await.unwrap().unwrap().into_data().unwrap(), "more");
        }
        [first, second]
    }

    /// A proxy carries the requests of many clients on one connection.
    #[tokio::test(start_paused = true)]
    async fn answer_over_http_2_that_the_client_does_not_take_is_reset_and_the_others_go_on() {
        let connections = Connections::new(8, 8, Arc::default(), Workers::current(), None);
        let (chunks, body) = mpsc::channel(1);
        let body = Mutex::new(Some(body));
        let handler = move |request: Request<Incoming>, peer: Peer| {
            let answer = match request.uri().path() {
                "/channel" => ResponseBody::channel(body.lock().unwrap().take().unwrap()),
                _ => ResponseBody::whole(Bytes::from(vec![b'x'; 1 << 20])),
            };
            respond(answer, peer)
        };
        let (near, far) = duplex(4096);
        let peer = Peer { address: Ipv4Addr::LOCALHOST.into(), running: Arc::default() };
        let running = Arc::clone(&peer.running);
        let client = async move {
            let [first, second] = read_the_second(far, chunks).await;
            assert!(second.collect().await.unwrap().to_bytes().is_empty());
            assert_eq!(running.load(Ordering::Relaxed), 0, "the first was ended, the second is whole");
            let error = format!("{:?}", first.collect().await.unwrap_err());
            assert!(error.contains("Reset(StreamId(1), CANCEL, Remote)"), "{error}");
        };
        let handler = Arc::new(handler);
        let handler = move |request, peer| handler(request, peer);
        tokio::join!(connections.converse(near, peer, handler), client);
    }

    #[test]
    fn connection_is_idle_only_while_nothing_runs_or_was_served() {
        let (running, served) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut idle = Idle::default();
        assert_eq!(idle.check(&running, &served), 1);
        served.store(1, Ordering::Relaxed);
        assert_eq!(idle.check(&running, &served), 0);
        running.store(1, Ordering::Relaxed);
        assert_eq!(idle.check(&running, &served), 0);
        running.store(0, Ordering::Relaxed);
        assert_eq!(idle.check(&running, &served), 1);
        assert_eq!(idle.check(&running, &served), 2);
    }
}
