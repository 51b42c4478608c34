//! The end of the host: requests that still run are told to end now.

use tokio::sync::watch;

/// Tells all requests that run to end now.
#[derive(Debug)]
pub struct End(watch::Sender<bool>);

/// What a request knows of the end of the host.
#[derive(Clone, Debug)]
pub struct Ending(watch::Receiver<bool>);

impl End {
    /// The host goes on, until [`End::tell`].
    #[must_use]
    pub fn new() -> (Self, Ending) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), Ending(receiver))
    }

    /// Ends the requests that run, and those that come still.
    pub fn tell(&self) {
        self.0.send_replace(true);
    }
}

impl Ending {
    /// Waits until requests are to end.
    pub(crate) async fn told(&mut self) {
        if self.0.wait_for(|told| *told).await.is_err() {
            // Who could tell is gone.
            std::future::pending().await
        }
    }
}
