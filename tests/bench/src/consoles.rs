//! Open consoles: streams of `/admin/v1/events` that are read while a program is loaded.

use anyhow::{Context as _, ensure};
use http_body_util::BodyExt as _;
use tokio::task::JoinHandle;

use crate::client::{Connection, LoadRequest, within};
use crate::site::Program;

/// Open streams. They end when this is dropped.
pub(crate) struct Consoles(Vec<JoinHandle<()>>);

impl Consoles {
    /// Opens so many streams at each program. Each has sent its first event before this returns.
    pub(crate) async fn open(programs: &[Program], count: u32) -> anyhow::Result<Self> {
        let mut consoles = Self(Vec::new());
        for program in programs {
            let file = program.folder().join("data/operator.token");
            let token = std::fs::read_to_string(&file)
                .with_context(|| format!("{} has no console: no {}", program.name, file.display()))?;
            let request = LoadRequest::get("/admin/v1/events", token.trim_end());
            for _ in 0..count {
                consoles.0.push(follow(program, &request).await?);
            }
        }
        Ok(consoles)
    }
}

async fn follow(program: &Program, request: &LoadRequest) -> anyhow::Result<JoinHandle<()>> {
    let mut connection = Connection::open(program.admin).await?;
    let (head, mut body) = within(connection.send(request), &request.path).await?.into_parts();
    ensure!(head.status == 200, "{}: {} was answered {}", program.name, request.path, head.status);
    let first = within(async { Ok(body.frame().await) }, &request.path).await?;
    first.with_context(|| format!("{}: the stream of events ended", program.name))??;
    Ok(tokio::spawn(async move {
        // The connection lives as long as its stream.
        let _connection = connection;
        while let Some(Ok(_)) = body.frame().await {}
    }))
}

impl Drop for Consoles {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}
