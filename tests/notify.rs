//! What a service manager is told over `NOTIFY_SOCKET`.

use crate::kit::host::Setup;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How long a message may take.
const PATIENCE: Duration = Duration::from_secs(60);

struct Manager(UnixDatagram);

impl Manager {
    fn at(address: &SocketAddr) -> Self {
        let socket = UnixDatagram::bind_addr(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    /// The next message.
    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.0.recv(&mut bytes).expect("no message came");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    /// The next message that is not a sign of life.
    fn next_change(&self) -> String {
        std::iter::repeat_with(|| self.next()).find(|message| message != "WATCHDOG=1\n").unwrap()
    }
}

#[test]
fn ready_reloading_and_stopping_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = Manager::at(&SocketAddr::from_pathname(&path).unwrap());
    let mut host = Setup::new().environment("NOTIFY_SOCKET", path.to_str().unwrap()).start();
    assert!(manager.next().starts_with("READY=1\n"));
    host.signal("HUP");
    let reloading = manager.next();
    let micros =
        reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap_or_else(|| panic!("{reloading}"));
    assert!(micros.lines().next().unwrap().parse::<u64>().unwrap() > 0);
    assert!(manager.next().starts_with("READY=1\n"));
    // A reload that is refused is over too.
    std::fs::write(host.data().join("cofferdam.toml"), "wrong").unwrap();
    host.signal("HUP");
    assert!(manager.next().starts_with("RELOADING=1\n"));
    assert!(manager.next().starts_with("READY=1\n"));
    host.signal("TERM");
    assert!(manager.next().starts_with("STOPPING=1\n"));
    assert_eq!(host.wait().code(), Some(0));
    assert!(!host.log().contains("service manager"), "{}", host.log());
}

#[test]
fn signs_of_life_reach_an_abstract_socket_until_the_end() {
    let name = format!("cofferdam-test-{}", std::process::id());
    let manager = Manager::at(&SocketAddr::from_abstract_name(&name).unwrap());
    let setup = Setup::new().environment("NOTIFY_SOCKET", &format!("@{name}"));
    let mut host = setup.environment("WATCHDOG_USEC", "100000").start();
    assert!(manager.next_change().starts_with("READY=1\n"));
    for _ in 0..5 {
        assert_eq!(manager.next(), "WATCHDOG=1\n");
    }
    host.signal("TERM");
    assert!(manager.next_change().starts_with("STOPPING=1\n"));
    assert_eq!(host.wait().code(), Some(0));
}

#[test]
fn the_watchdog_of_another_process_is_left_alone() {
    let name = format!("cofferdam-test-other-{}", std::process::id());
    let manager = Manager::at(&SocketAddr::from_abstract_name(&name).unwrap());
    let setup = Setup::new().environment("NOTIFY_SOCKET", &format!("@{name}"));
    let mut host = setup.environment("WATCHDOG_USEC", "2000").environment("WATCHDOG_PID", "1").start();
    assert!(manager.next().starts_with("READY=1\n"));
    host.signal("TERM");
    assert!(manager.next().starts_with("STOPPING=1\n"));
    assert_eq!(host.wait().code(), Some(0));
}

#[test]
fn a_socket_that_does_not_exist_is_warned_of_and_the_host_serves() {
    let mut host = Setup::new().environment("NOTIFY_SOCKET", "/nowhere/notify").start();
    host.until_logged("the service manager could not be told: READY=1");
    host.end();
    let host = Setup::new().environment("NOTIFY_SOCKET", "vsock:2:1").start();
    host.until_logged("NOTIFY_SOCKET cannot be used");
}
