//! A token that cannot be printed by accident.

use reqwest::header::HeaderValue;
use thiserror::Error;

/// What stands in a text where a token stood.
const HIDDEN: &str = "[token]";
/// Beginnings of tokens as GitHub makes them; whatever follows in the same word is hidden, too.
const TOKEN_BEGINNINGS: [&str; 6] = ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"];
/// The shortest piece of the token that is hidden at the end of a text that was cut off.
const LEAST_PIECE: usize = 4;

/// A token. It has neither `Debug` nor `Display`, so that no message can hold it:
///
/// ```compile_fail
/// let secret = fa4_bench::publish::Secret::new("0123456789abcdef").unwrap();
/// println!("{secret:?}");
/// ```
///
/// ```compile_fail
/// let secret = fa4_bench::publish::Secret::new("0123456789abcdef").unwrap();
/// println!("{secret}");
/// ```
pub struct Secret(String);

/// A token that cannot be one. Never says what was given.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum SecretError {
    /// Nothing there.
    #[error("the token is empty")]
    Empty,
    /// Too short to be hidden in texts without hiding half of them.
    #[error("the token has fewer than 8 characters")]
    Short,
    /// Would break out of the header that it is sent in.
    #[error(
        "the token has characters that no token has (a line break, a blank, something that is not ASCII)"
    )]
    Characters,
}

impl Secret {
    /// Takes a token, without the white space around it that files and variables pick up.
    ///
    /// # Errors
    /// What cannot be a token.
    pub fn new(token: &str) -> Result<Self, SecretError> {
        let token = token.trim();
        match token.len() {
            0 => Err(SecretError::Empty),
            1..8 => Err(SecretError::Short),
            _ if token.bytes().all(|b| b.is_ascii_graphic()) => Ok(Secret(token.to_string())),
            _ => Err(SecretError::Characters),
        }
    }

    /// The value of an `Authorization` header, marked so that HTTP libraries do not print it either.
    pub fn authorization(&self) -> HeaderValue {
        let mut value =
            HeaderValue::from_str(&format!("Bearer {}", self.0)).expect("graphic ASCII is a header's value");
        value.set_sensitive(true);
        value
    }

    /// `text` without the token, in the forms in which a server may echo it: as it is, as base64 as part of a longer text,
    /// percent-encoded, or cut off at the end. Also without anything that looks like another token.
    pub fn redact(&self, text: &str) -> String {
        let mut clean = text.to_string();
        let forms =
            std::iter::once(self.0.clone()).chain([percent_encoded(&self.0)]).chain(base64_cores(&self.0));
        for form in forms {
            clean = clean.replace(&form, HIDDEN);
        }
        for len in (LEAST_PIECE..self.0.len()).rev() {
            if let Some(rest) = clean.strip_suffix(&self.0[..len]) {
                clean = format!("{rest}{HIDDEN}");
                break;
            }
        }
        for beginning in TOKEN_BEGINNINGS {
            clean = without_words_from(&clean, beginning);
        }
        clean
    }
}

fn percent_encoded(token: &str) -> String {
    let encoded = |b: u8| match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(b).to_string(),
        _ => format!("%{b:02X}"),
    };
    token.bytes().map(encoded).collect()
}

/// What base64 makes of the token inside a longer text: it depends on the token's position modulo 3, and its first and last
/// characters on the neighbours, which are left out.
fn base64_cores(token: &str) -> Vec<String> {
    (0..3)
        .map(|shift| {
            let mut bytes = vec![0u8; shift];
            bytes.extend(token.bytes());
            let whole = bytes.len() / 3 * 3;
            let encoded = base64(&bytes[..whole]);
            let skip = if shift == 0 { 0 } else { 4 };
            encoded[skip.min(encoded.len())..].to_string()
        })
        .filter(|core| core.len() >= 2 * LEAST_PIECE)
        .collect()
}

/// Base64 of a multiple of three bytes.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |bits: u32| char::from(LETTERS[(bits & 63) as usize]);
    let group = |three: &[u8]| {
        let bits = three.iter().fold(0u32, |bits, &b| bits << 8 | u32::from(b));
        [18, 12, 6, 0].map(|shift| letter(bits >> shift))
    };
    bytes.chunks_exact(3).flat_map(group).collect()
}

fn without_words_from(text: &str, beginning: &str) -> String {
    let mut clean = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(beginning) {
        let after = &rest[at + beginning.len()..];
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        clean.push_str(&rest[..at]);
        clean.push_str(HIDDEN);
        rest = &after[end..];
    }
    clean + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "tok+en/0123456789";

    #[test]
    fn what_is_no_token_is_refused_without_being_shown() {
        let refusal = |text: &str| Secret::new(text).err().unwrap();
        assert_eq!(refusal(" \n"), SecretError::Empty);
        assert_eq!(refusal("short"), SecretError::Short);
        for bad in ["abcdefgh\r\nX-Evil: 1", "abcdefgh ijkl", "abcdefghé"] {
            let error = refusal(bad);
            assert_eq!(error, SecretError::Characters);
            assert!(!error.to_string().contains("abcdefgh"));
        }
        assert!(Secret::new(" 0123456789abcdef\n").is_ok());
    }

    #[test]
    fn the_header_is_sensitive() {
        let header = Secret::new(TOKEN).unwrap().authorization();
        assert!(header.is_sensitive());
        assert!(!format!("{header:?}").contains("0123"));
    }

    /// Base64 by arithmetic of the standard's own example: "Man" is "TWFu".
    #[test]
    fn base64_is_base64() {
        assert_eq!(base64(b"Man"), "TWFu");
        assert_eq!(base64(b"light w"[..6].as_ref()), "bGlnaHQg");
    }

    #[test]
    fn echoes_are_hidden_in_every_form() {
        let secret = Secret::new(TOKEN).unwrap();
        let echoes = [
            format!("{{\"message\": \"bad credentials {TOKEN}\"}}"),
            format!("header {}", percent_encoded(TOKEN)),
            format!("cut off: {}", &TOKEN[..9]),
            "another one: ghp_abcdefghijklmnop1234 and github_pat_11AA_bb".to_string(),
        ];
        for echo in echoes {
            let clean = secret.redact(&echo);
            assert!(clean.contains(HIDDEN), "{clean}");
            for piece in ["tok+", "0123456789", "tok%2B", "abcdefghijkl", "11AA"] {
                assert!(!clean.contains(piece), "{clean}");
            }
        }
        // Basic authentication, at each position modulo 3.
        for user in ["a:", "ab:", "abc:"] {
            let mut text = format!("{user}{TOKEN}!!").into_bytes();
            text.truncate(text.len() / 3 * 3);
            let clean = secret.redact(&base64(&text));
            assert!(clean.contains(HIDDEN) && clean.len() < 20, "{clean}");
        }
        assert_eq!(secret.redact("nothing here"), "nothing here");
    }
}
