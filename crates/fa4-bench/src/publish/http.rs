//! JSON over HTTP with a token: retries that wait as long as the server asks, one server and no other, bounded answers.

use std::io::Read;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use reqwest::blocking::{Client, Response};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, LOCATION, RETRY_AFTER, USER_AGENT};
use reqwest::redirect::Policy;
use reqwest::{Method, StatusCode, Url};
use serde_json::Value;

use super::error::PublishError;
use super::secret::Secret;

/// A page of a hundred of the longest comments.
const MOST_ANSWER_BYTES: u64 = 16 << 20;
/// Of an answer, in a message.
const SHOWN_CHARS: usize = 300;

/// How often and how long to try.
#[derive(Debug, Clone)]
pub struct Patience {
    /// Attempts at one request.
    pub attempts: u32,
    /// Wait before the second attempt; doubled before each further one.
    pub first_wait: Duration,
    /// A server that asks for a longer wait is not waited for.
    pub longest_wait: Duration,
    /// For one attempt, answer included.
    pub timeout: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            attempts: 6,
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(300),
            timeout: Duration::from_secs(30),
        }
    }
}

/// Whether a request may be sent again when nobody knows whether the first one did its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Doing it twice is doing it once.
    Always,
    /// Only if the server surely did nothing.
    IfRefused,
}

/// One server.
pub struct Http {
    client: Client,
    base: Url,
    secret: Secret,
    patience: Patience,
}

/// How an attempt failed.
struct Failed {
    why: String,
    /// The server's wish.
    wait: Option<Duration>,
    /// Whether the request may have done its work all the same.
    in_doubt: bool,
}

impl Http {
    /// A client for the server at `base`. Without TLS only this machine itself is spoken to: a token in clear text is
    /// anybody's.
    ///
    /// # Errors
    /// An address that is none, or not safe.
    pub fn new(base: &str, secret: Secret, patience: Patience) -> Result<Self, PublishError> {
        let flag = |what| PublishError::Flag { flag: "--api", value: secret.redact(base), what };
        let base = Url::parse(base).map_err(|_| flag("not an address"))?;
        let here = matches!(base.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        if base.scheme() != "https" && !(base.scheme() == "http" && here) {
            return Err(flag("expected https://: a token is not sent in clear text"));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(flag("holds a user name or a password; the token comes from the environment"));
        }
        let client = Client::builder()
            .timeout(patience.timeout)
            .connect_timeout(patience.timeout)
            .redirect(Policy::none())
            .referer(false)
            .build()
            .map_err(|error| PublishError::Client(secret.redact(&error.to_string())))?;
        Ok(Http { client, base, secret, patience })
    }

    /// Sends a request until it succeeds and gives its JSON. `what` is for messages: "posting the status".
    ///
    /// # Errors
    /// Every way in which it may fail, with the server's words redacted.
    pub fn send(
        &self,
        what: &str,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        repeat: Repeat,
    ) -> Result<Value, PublishError> {
        let mut wait = self.patience.first_wait;
        let mut attempt = 1;
        loop {
            let failed = match self.attempt(what, method, path, body)? {
                Ok(value) => return Ok(value),
                Err(failed) => failed,
            };
            let asked = failed.wait.unwrap_or(wait);
            let hopeless =
                asked > self.patience.longest_wait || failed.in_doubt && repeat == Repeat::IfRefused;
            if hopeless || attempt >= self.patience.attempts {
                let last = match asked > self.patience.longest_wait {
                    true => format!("{}; it asks to wait {} s", failed.why, asked.as_secs()),
                    false => failed.why,
                };
                return Err(PublishError::GaveUp { what: what.into(), attempts: attempt, last });
            }
            std::thread::sleep(asked);
            wait *= 2;
            attempt += 1;
        }
    }

    /// One attempt: what settles the matter as the outer result, what is worth another attempt as the inner error.
    fn attempt(
        &self,
        what: &str,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Result<Value, Failed>, PublishError> {
        let base = self.base.as_str().trim_end_matches('/');
        let mut request = self
            .client
            .request(method.clone(), format!("{base}{path}"))
            .header(AUTHORIZATION, self.secret.authorization())
            .header(ACCEPT, "application/vnd.github+json")
            .header("X-GitHub-Api-Version", "2022-11-28")
            .header(USER_AGENT, "fa4-bench");
        if let Some(body) = body {
            request = request.json(body);
        }
        // A moment less than the library's deadline, so that whichever comes first gives the same message.
        let until = Instant::now() + self.patience.timeout.mul_f64(0.98);
        let response = match request.send() {
            Ok(response) => response,
            Err(error) => {
                // Whoever could not be reached did nothing.
                let in_doubt = !error.is_connect();
                return Ok(Err(Failed { why: self.explain(&error), wait: None, in_doubt }));
            }
        };
        let status = response.status();
        let headers = response.headers().clone();
        let text = match self.read(response, until) {
            Ok(text) => text,
            Err(why) => return Ok(Err(Failed { why, wait: None, in_doubt: true })),
        };
        if status.is_success() {
            return Ok(Ok(serde_json::from_str(&text).map_err(|error| PublishError::Nonsense {
                what: what.into(),
                detail: format!("{error} in {:?}", self.shown(&text)),
            })?));
        }
        if status.is_redirection() {
            return Err(PublishError::Redirected {
                what: what.into(),
                status: status.as_u16(),
                to: self.target(&headers),
            });
        }
        let limited = status == StatusCode::TOO_MANY_REQUESTS
            || status == StatusCode::FORBIDDEN && asks_to_wait(&headers).is_some();
        let why = format!("the server answered {}: {}", status.as_u16(), self.shown(&text));
        if limited || status.is_server_error() {
            return Ok(Err(Failed { why, wait: asks_to_wait(&headers), in_doubt: !limited }));
        }
        Err(PublishError::Refused { what: what.into(), status: status.as_u16(), body: self.shown(&text) })
    }

    /// The body as text, within the time and size that an answer may take.
    fn read(&self, mut response: Response, until: Instant) -> Result<String, String> {
        let mut bytes = Vec::new();
        let mut chunk = [0u8; 16 << 10];
        loop {
            match response.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(&chunk[..count]),
                // The library's own deadline ends the read.
                Err(_) if Instant::now() >= until => return Err(self.too_long()),
                Err(error) => {
                    return Err(format!("the answer broke off: {}", self.secret.redact(&error.to_string())));
                }
            }
            if bytes.len() as u64 > MOST_ANSWER_BYTES {
                return Err(format!("the answer has more than {MOST_ANSWER_BYTES} bytes"));
            }
            if Instant::now() > until {
                return Err(self.too_long());
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn too_long(&self) -> String {
        format!("the answer took longer than {} s", self.patience.timeout.as_secs_f64())
    }

    /// What a server said, for a message. Redacted first: a cut could leave part of a token.
    fn shown(&self, text: &str) -> String {
        let clean = self.secret.redact(text.trim());
        let short: String = clean.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS).collect();
        match (short.is_empty(), clean.chars().count() > SHOWN_CHARS) {
            (true, _) => "(nothing)".into(),
            (false, true) => short + "…",
            (false, false) => short,
        }
    }

    fn explain(&self, error: &reqwest::Error) -> String {
        let mut text = if error.is_timeout() {
            format!("no answer within {} s", self.patience.timeout.as_secs_f64())
        } else if error.is_connect() {
            "no connection".to_string()
        } else {
            "the connection broke off".to_string()
        };
        let mut source = std::error::Error::source(error);
        while let Some(inner) = source {
            text = format!("{text}: {inner}");
            source = inner.source();
        }
        self.secret.redact(&text)
    }

    /// Host and path of a redirection; its query may hold anything.
    fn target(&self, headers: &HeaderMap) -> String {
        let location = headers.get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let target = self.base.join(location).ok();
        let shown = target.map(|url| format!("{}{}", url.host_str().unwrap_or_default(), url.path()));
        self.secret.redact(&shown.unwrap_or_else(|| "nowhere".into()))
    }
}

/// How long a server asks to wait: `Retry-After` in seconds, or until a rate limit that is used up is renewed.
fn asks_to_wait(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    if let Some(seconds) = number(RETRY_AFTER.as_str()) {
        return Some(Duration::from_secs(seconds));
    }
    if number("x-ratelimit-remaining") == Some(0) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        // A second on top: clocks differ.
        return number("x-ratelimit-reset").map(|reset| Duration::from_secs(reset.saturating_sub(now) + 1));
    }
    None
}
