//! Reads the token from the `Authorization` header. The store authenticates it; `access` decides
//! what its owner may do.

use http::HeaderMap;
use http::header::AUTHORIZATION;

/// The maximum length of a token.
const TOKEN_BYTES_MAX: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoToken {
    Missing,
    /// There is more than one header, or its value is not `Bearer TOKEN`.
    Malformed,
}

/// The token of a request: exactly one header, the scheme in any letter case, one space, visible
/// ASCII without commas.
pub(crate) fn token(headers: &HeaderMap) -> Result<&str, NoToken> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(NoToken::Missing)?;
    if values.next().is_some() {
        return Err(NoToken::Malformed);
    }
    let (scheme, token) =
        value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(NoToken::Malformed)?;
    let is_token = !token.is_empty()
        && token.len() <= TOKEN_BYTES_MAX
        && token.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    if scheme.eq_ignore_ascii_case("bearer") && is_token { Ok(token) } else { Err(NoToken::Malformed) }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::{AUTHORIZATION, HeaderValue};

    use super::{NoToken, token};

    fn headers(values: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn scheme_may_have_any_letter_case() {
        for value in ["Bearer abc", "bearer abc", "BEARER abc"] {
            assert_eq!(token(&headers(&[value.as_bytes()])), Ok("abc"), "{value}");
        }
    }

    #[test]
    fn absent_header_is_missing() {
        assert_eq!(token(&HeaderMap::new()), Err(NoToken::Missing));
    }

    #[test]
    fn anything_else_is_malformed() {
        let long = format!("Bearer {}", "a".repeat(513));
        let cases: [&[&[u8]]; 12] = [
            &[b""],
            &[b"Bearer"],
            &[b"Bearer "],
            &[b"Bearer  abc"],
            &[b"Bearer abc def"],
            &[b"Bearer abc,"],
            &[b"Basic abc"],
            &[b"abc"],
            &[b"Bearer\tabc"],
            &[b"Bearer \xff"],
            &[b"Bearer abc", b"Bearer abc"],
            &[long.as_bytes()],
        ];
        for values in cases {
            assert_eq!(token(&headers(values)), Err(NoToken::Malformed), "{values:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn accepted_tokens_are_visible_ascii(value in proptest::collection::vec(0x20_u8.., 0..64)) {
            if let Ok(value) = HeaderValue::from_bytes(&value)
                && let Ok(token) = token(&HeaderMap::from_iter([(AUTHORIZATION, value)]))
            {
                proptest::prop_assert!(!token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }
    }
}
