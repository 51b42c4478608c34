//! An operator's commands straight into the socket of a running host, as the program itself sends them.

use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The document of a command that was done; `None` when nobody said that it was.
pub fn send(data: &Path, command: &Value) -> Option<Value> {
    let mut stream = UnixStream::connect(data.join("admin.sock")).ok()?;
    stream.write_all(format!("{command}\n").as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let reply: Value = serde_json::from_str(&reply).ok()?;
    Some(reply.get("done")?["document"].clone())
}
