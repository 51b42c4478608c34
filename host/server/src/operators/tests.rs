use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use cofferdam_store::Clock;

use super::{ExchangeError, OperatorTokenError, Operators, Refused};

fn token(data: &Path) -> String {
    std::fs::read_to_string(data.join("operator.token")).unwrap().trim_end().to_owned()
}

fn refused(result: Result<super::Bearer, ExchangeError>) -> Option<Refused> {
    match result {
        Err(ExchangeError::Refused(refused)) => Some(refused),
        _ => None,
    }
}

#[test]
fn token_is_made_once_and_read_by_its_owner_only() {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    Operators::open(data.path(), &clock).unwrap();
    let first = token(data.path());
    assert!(first.starts_with("cfd-operator_") && first.len() == 13 + 43, "{first}");
    let path = data.path().join("operator.token");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    Operators::open(data.path(), &clock).unwrap().check(&first).unwrap();
    assert_eq!(token(data.path()), first);

    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = Operators::open(data.path(), &clock).err().unwrap();
    assert!(matches!(error, OperatorTokenError::TooOpen { mode: 0o640, .. }), "{error}");
}

#[test]
fn file_that_is_no_token_is_refused() {
    for content in ["", "short", &"x".repeat(513), &format!("{} {}", "a".repeat(20), "b".repeat(20))] {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("operator.token");
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let error = Operators::open(data.path(), &Clock::system()).err().unwrap();
        assert!(matches!(error, OperatorTokenError::NoToken(_)), "{content}: {error}");
    }
}

#[test]
fn login_code_works_once_and_for_a_minute() {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::manual();
    let operators = Operators::open(data.path(), &clock).unwrap();
    let code = operators.login_code().unwrap();
    let bearer = operators.exchange(&code).unwrap();
    operators.check(&bearer.text).unwrap();
    assert_eq!(refused(operators.exchange(&code)), Some(Refused::Wrong));
    assert!(operators.check(&code).is_err(), "a code is no bearer");

    let late = operators.login_code().unwrap();
    clock.advance(Duration::from_mins(1));
    assert_eq!(refused(operators.exchange(&late)), Some(Refused::Wrong));
}

#[test]
fn bearer_ends_when_it_is_idle_or_old() {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::manual();
    let operators = Operators::open(data.path(), &clock).unwrap();
    let token = token(data.path());
    let idle = operators.exchange(&token).unwrap();
    clock.advance(Duration::from_mins(60));
    assert_eq!(operators.check(&idle.text), Err(Refused::Wrong));

    let used = operators.exchange(&token).unwrap();
    for _ in 0..23 {
        clock.advance(Duration::from_mins(30));
        operators.check(&used.text).unwrap();
    }
    assert!(operators.is_live(&used.text));
    clock.advance(Duration::from_mins(30));
    assert!(!operators.is_live(&used.text));
    assert_eq!(operators.check(&used.text), Err(Refused::Wrong));
}

#[test]
fn sixth_wrong_credential_in_a_minute_must_wait_and_a_right_one_never() {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::manual();
    let operators = Operators::open(data.path(), &clock).unwrap();
    for _ in 0..5 {
        assert_eq!(operators.check("guess"), Err(Refused::Wrong));
    }
    clock.advance(Duration::from_secs(20));
    assert_eq!(operators.check("guess"), Err(Refused::TooMany { wait_s: 40 }));
    assert_eq!(refused(operators.exchange("guess")), Some(Refused::TooMany { wait_s: 40 }));
    operators.check(&token(data.path())).unwrap();
    operators.exchange(&operators.login_code().unwrap()).unwrap();
    clock.advance(Duration::from_secs(40));
    assert_eq!(operators.check("guess"), Err(Refused::Wrong));
}

#[test]
fn newest_64_bearers_work() {
    let data = tempfile::tempdir().unwrap();
    let clock = Clock::manual();
    let operators = Operators::open(data.path(), &clock).unwrap();
    let token = token(data.path());
    let bearers: Vec<_> = (0..65)
        .map(|_| {
            clock.advance(Duration::from_secs(1));
            operators.exchange(&token).unwrap().text
        })
        .collect();
    assert!(!operators.is_live(&bearers[0]));
    assert!(bearers[1..].iter().all(|bearer| operators.is_live(bearer)));
}

#[test]
fn another_token_in_the_file_ends_every_bearer() {
    let data = tempfile::tempdir().unwrap();
    let operators = Operators::open(data.path(), &Clock::system()).unwrap();
    let before = token(data.path());
    let bearer = operators.exchange(&before).unwrap();
    operators.reload(data.path()).unwrap();
    assert!(operators.is_live(&bearer.text), "the token is the same");
    std::fs::remove_file(data.path().join("operator.token")).unwrap();
    operators.reload(data.path()).unwrap();
    assert!(!operators.is_live(&bearer.text) && operators.check(&before).is_err());
    operators.check(&token(data.path())).unwrap();
}
