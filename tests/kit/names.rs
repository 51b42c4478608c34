//! A name server under the test's control, with scripted answers. It records the names it was asked
//! for.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// The length of a message header (RFC 1035, section 4.1.1).
const HEAD: usize = 12;

#[derive(Default)]
struct State {
    asked: Mutex<Vec<String>>,
    answers: Mutex<BTreeMap<String, Vec<Ipv4Addr>>>,
}

pub struct Names {
    pub address: String,
    state: Arc<State>,
    server: JoinHandle<()>,
}

impl Names {
    /// Starts on a free port. Names without a scripted answer do not exist.
    pub async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let state = Arc::new(State::default());
        let server = tokio::spawn(serve(socket, Arc::clone(&state)));
        Self { address, state, server }
    }

    /// Sets the addresses of a name.
    pub fn answer(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.state.answers.lock().unwrap().insert(name.to_owned(), addresses);
    }

    /// All queried names, with repetitions.
    pub fn asked(&self) -> Vec<String> {
        self.state.asked.lock().unwrap().clone()
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(socket: UdpSocket, state: Arc<State>) {
    let mut buffer = [0; 1500];
    loop {
        let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
        if let Some(answer) = answer(&buffer[..length], &state) {
            socket.send_to(&answer, peer).await.unwrap();
        }
    }
}

/// Builds the answer to the first question of a query.
fn answer(query: &[u8], state: &State) -> Option<Vec<u8>> {
    let mut labels = Vec::new();
    let mut at = HEAD;
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
    let question = query.get(HEAD..at + 4)?;
    let is_a = query.get(at..at + 2)? == [0, 1];
    let name = labels.join(".");
    state.asked.lock().unwrap().push(name.clone());
    let answers = state.answers.lock().unwrap();
    let found = answers.get(&name);
    let addresses: &[Ipv4Addr] = if is_a { found.map_or(&[], Vec::as_slice) } else { &[] };
    let status = if found.is_some() { 0x80 } else { 0x83 };
    let count = u8::try_from(addresses.len()).unwrap();
    let mut message = vec![query[0], query[1], 0x81, status, 0, 1, 0, count, 0, 0, 0, 0];
    message.extend_from_slice(question);
    for address in addresses {
        // A pointer to the question's name, type A, class IN, TTL 0 s, 4 bytes.
        message.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        message.extend_from_slice(&address.octets());
    }
    Some(message)
}
