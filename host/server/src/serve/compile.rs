//! Compiles plugins: first those that a start or a reload waits for, then all others in the
//! background. Compilation runs outside the request threads.

use std::sync::Arc;

use cofferdam_runtime::{Compile, Plugin};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::failure::Failure;
use crate::wiring::LiveConfig;

/// Compiles the router, the configured providers and the plugins with `compile = "start"`.
///
/// # Errors
///
/// One of them does not compile.
pub(crate) async fn required(live: &LiveConfig) -> Result<(), Failure> {
    let mut required = live.engine.required_plugins();
    let at_start = |plugin: &&Arc<Plugin>| plugin.grant().compile == Compile::Start && plugin.is_usable();
    required.extend(live.engine.plugins().iter().filter(at_start).cloned());
    for plugin in required {
        if let Err(error) = plugin.compile().await {
            tracing::error!(plugin = plugin.name(), %error, "a plugin that is needed does not compile");
            return Err(Failure::Plugin(plugin.name().to_owned()));
        }
    }
    Ok(())
}

/// Compiles every other usable plugin into the cache, one at a time, when the host is ready and again
/// after each reload, until stopped. A call that needs a plugin earlier compiles it itself, or waits
/// for the compilation under way.
pub(crate) async fn background(app: Arc<App>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = app.until_ready_or_replaced() => {}
        }
        let live = Arc::clone(&app.live());
        // A reload replaces the plugins; the loop then starts again with the new ones.
        for plugin in live.engine.plugins().iter().filter(|plugin| plugin.is_usable()) {
            if !Arc::ptr_eq(&live, &app.live()) {
                break;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                // A failure is logged and kept in the plugin's state.
                _ = plugin.compile_ahead() => {}
            }
        }
    }
}
