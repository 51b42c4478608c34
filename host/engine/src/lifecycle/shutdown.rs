//! The end of the host: a signal that makes running requests end.

use tokio::sync::watch;

/// The sender of the signal.
#[derive(Debug)]
pub struct ShutdownSender(watch::Sender<bool>);

/// The receiving side, which each request holds.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

impl ShutdownSender {
    /// Creates both sides. Requests run until [`ShutdownSender::begin`].
    #[must_use]
    pub fn new() -> (Self, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), Shutdown(receiver))
    }

    /// Ends the requests that run, and makes later ones end at once.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Waits for the signal.
    pub(crate) async fn begun(&mut self) {
        if self.0.wait_for(|told| *told).await.is_err() {
            // The sender was dropped, so the signal can never come.
            std::future::pending().await
        }
    }
}
