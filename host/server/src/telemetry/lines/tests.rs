use std::io::{self, ErrorKind, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use super::{HURRY_BYTES, LogLines, Logging, WAITING_BYTES_MAX};

/// Longer than any test: a wait for this long never ends by itself.
const NEVER: Duration = Duration::from_secs(3600);

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<Vec<u8>>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink {
    fn writes(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().concat()).unwrap()
    }
}

/// A writer that accepts a write only when the test allows it.
struct Stalling {
    sink: Sink,
    arrived: SyncSender<usize>,
    go: Receiver<io::Result<usize>>,
}

impl Write for Stalling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.arrived.send(bytes.len()).unwrap();
        // The test has dropped its sender: everything is accepted.
        let taken = self.go.recv().unwrap_or(Ok(bytes.len()))?.min(bytes.len());
        self.sink.write(&bytes[..taken])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Stalled {
    lines: Arc<LogLines>,
    logging: Logging,
    sink: Sink,
    arrived: Receiver<usize>,
    go: SyncSender<io::Result<usize>>,
}

/// A logger whose reader stalls. Lost lines are reported as a line of the log.
fn stalled() -> Stalled {
    let sink = Sink::default();
    let ((arrives, arrived), (go, goes)) = (sync_channel(64), sync_channel(64));
    let out = Stalling { sink: sink.clone(), arrived: arrives, go: goes };
    let reports: Arc<Mutex<Option<Arc<LogLines>>>> = Arc::default();
    let reporter = Arc::clone(&reports);
    let report = move |lost| {
        let line = format!("lost {lost}\n");
        put(reporter.lock().unwrap().as_ref().unwrap(), &line);
    };
    let (lines, logging) = LogLines::start(out, Duration::ZERO, report).unwrap();
    let lines = Arc::new(lines);
    *reports.lock().unwrap() = Some(Arc::clone(&lines));
    Stalled { lines, logging, sink, arrived, go }
}

fn put(lines: &LogLines, line: &str) {
    lines.make_writer().write_all(line.as_bytes()).unwrap();
}

fn no_loss(lost: u64) {
    panic!("{lost} lines were lost");
}

#[test]
fn lines_of_many_threads_are_written_whole_and_in_order() {
    let sink = Sink::default();
    let (lines, logging) = LogLines::start(sink.clone(), Duration::ZERO, no_loss).unwrap();
    thread::scope(|scope| {
        for name in 'a'..'e' {
            let lines = &lines;
            scope.spawn(move || (0..500).for_each(|number| put(lines, &format!("{name} {number}\n"))));
        }
    });
    drop(logging);
    for name in 'a'..'e' {
        let text = sink.text();
        let own = text.lines().filter_map(|line| line.strip_prefix(name));
        let expected: Vec<_> = (0..500).map(|number| format!(" {number}")).collect();
        assert_eq!(own.collect::<Vec<_>>(), expected, "{name}");
    }
}

#[test]
fn gathered_lines_are_written_at_once_at_the_end() {
    let sink = Sink::default();
    let (lines, logging) = LogLines::start(sink.clone(), NEVER, no_loss).unwrap();
    (0..100).for_each(|number| put(&lines, &format!("{number}\n")));
    drop(logging);
    assert_eq!(sink.text().lines().count(), 100);
    assert_eq!(sink.writes(), 1);
    // The writer thread has ended: the line is dropped, and the call returns.
    put(&lines, "late\n");
}

#[test]
fn errors_and_full_batches_are_written_at_once() {
    let (arrives, arrived) = sync_channel(64);
    let (go, goes) = sync_channel(64);
    let out = Stalling { sink: Sink::default(), arrived: arrives, go: goes };
    let (lines, _logging) = LogLines::start(out, NEVER, no_loss).unwrap();
    put(&lines, "first\n");
    lines.append(b"wrong\n", true);
    assert_eq!(arrived.recv().unwrap(), "first\nwrong\n".len());
    go.send(Ok(usize::MAX)).unwrap();
    put(&lines, &"x".repeat(HURRY_BYTES - 1));
    put(&lines, "\n");
    assert_eq!(arrived.recv().unwrap(), HURRY_BYTES);
    drop(go);
}

#[test]
fn stalled_reader_loses_lines_but_does_not_block() {
    let Stalled { lines, logging, sink, arrived, go } = stalled();
    put(&lines, "taken\n");
    assert_eq!(arrived.recv().unwrap(), 6);
    // The reader stalls now. Whole lines are kept as far as they fit; the rest is counted.
    let line = format!("{}\n", "x".repeat(1023));
    for _ in 0..WAITING_BYTES_MAX / 1024 + 7 {
        put(&lines, &line);
    }
    drop(go);
    drop(logging);
    let text = sink.text();
    assert_eq!(text.lines().filter(|line| line.len() == 1023).count(), WAITING_BYTES_MAX / 1024);
    assert_eq!(text.lines().next(), Some("taken"));
    assert_eq!(text.lines().last(), Some("lost 7"));
}

#[test]
fn line_cut_off_by_an_error_is_counted_and_followed_by_a_line_break() {
    let Stalled { lines, logging, sink, arrived, go } = stalled();
    put(&lines, "first\n");
    arrived.recv().unwrap();
    put(&lines, "second\n");
    put(&lines, "third\n");
    go.send(Ok(usize::MAX)).unwrap();
    assert_eq!(arrived.recv().unwrap(), 13);
    put(&lines, "fourth\n");
    // Two bytes are accepted, then the disk is full, then it has space again.
    go.send(Ok(2)).unwrap();
    go.send(Err(ErrorKind::Interrupted.into())).unwrap();
    go.send(Err(ErrorKind::StorageFull.into())).unwrap();
    drop(go);
    drop(logging);
    assert_eq!(sink.text(), "first\nse\nfourth\nlost 2\n");
}
