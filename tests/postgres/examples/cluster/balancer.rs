//! A balancer that knows nothing of keys or sessions: each connection goes to the next host that is ready.

use anyhow::Result;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// Time between two looks at a host.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a host may take to answer one.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Balancer {
    port: u16,
}

struct Target {
    listen: SocketAddr,
    is_ready: AtomicBool,
}

impl Balancer {
    /// Starts a balancer for hosts with these addresses: where clients are served, and where `/readyz` is.
    pub(crate) async fn start(hosts: Vec<(SocketAddr, SocketAddr)>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let mut targets = Vec::new();
        for (listen, admin) in hosts {
            let target = Arc::new(Target { listen, is_ready: AtomicBool::new(true) });
            tokio::spawn(look(admin, Arc::clone(&target)));
            targets.push(target);
        }
        tokio::spawn(accept(listener, targets));
        Ok(Self { port })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

/// Asks a host again and again whether it is ready.
async fn look(admin: SocketAddr, target: Arc<Target>) {
    loop {
        let is_ready =
            timeout(LOOK_PATIENCE, is_ready(admin)).await.is_ok_and(|ready| ready.unwrap_or(false));
        target.is_ready.store(is_ready, Ordering::Relaxed);
        sleep(LOOK_EVERY).await;
    }
}

async fn is_ready(admin: SocketAddr) -> Result<bool> {
    let mut connection = TcpStream::connect(admin).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut head = [0; 12];
    connection.read_exact(&mut head).await?;
    Ok(head == *b"HTTP/1.1 200")
}

async fn accept(listener: TcpListener, targets: Vec<Arc<Target>>) {
    let (targets, next) = (Arc::new(targets), Arc::new(AtomicUsize::new(0)));
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(serve(client, Arc::clone(&targets), Arc::clone(&next)));
    }
}

/// Connects a client with the next host that is ready and takes the connection.
async fn serve(mut client: TcpStream, targets: Arc<Vec<Arc<Target>>>, next: Arc<AtomicUsize>) {
    let first = next.fetch_add(1, Ordering::Relaxed);
    let order = targets.iter().cycle().skip(first % targets.len().max(1)).take(targets.len());
    for target in order.filter(|target| target.is_ready.load(Ordering::Relaxed)) {
        if let Ok(mut host) = TcpStream::connect(target.listen).await {
            // Either side may end the connection at any time.
            let _ended = copy_bidirectional(&mut client, &mut host).await;
            return;
        }
    }
    let body = r#"{"error":{"message":"no host is ready","type":"server_error"}}"#;
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    let _sent = client.write_all(answer.as_bytes()).await;
}
