//! GitHub's requests, and the search for our own earlier comment.

use std::fmt;

use reqwest::Method;
use serde_json::{Value, json};

use super::PublishArgs;
use super::error::PublishError;
use super::http::{Http, Repeat};
use super::message::{Message, marker};

/// Comments on a page.
const PAGE: usize = 100;
/// Pages that are searched: more comments than that no pull request has.
const MOST_PAGES: usize = 30;
/// How often an edit or a post is begun anew when nobody knows whether it worked.
const ROUNDS: u32 = 3;

/// A request as it is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// What it does, for messages.
    pub what: &'static str,
    /// Verb.
    pub method: Method,
    /// Path below the interface's address.
    pub path: String,
    /// Body.
    pub body: Value,
}

impl Request {
    /// Sets the commit's status.
    pub fn status(args: &PublishArgs, sha: &str, message: &Message) -> Self {
        let mut body = json!({
            "state": message.state,
            "context": args.context,
            "description": message.description,
        });
        if let Some(url) = &args.target_url {
            body["target_url"] = json!(url);
        }
        let path = format!("/repos/{}/statuses/{sha}", args.repo());
        Request { what: "setting the commit's status", method: Method::POST, path, body }
    }

    /// Posts a comment.
    pub fn comment(args: &PublishArgs, pr: u64, message: &Message) -> Self {
        let path = format!("/repos/{}/issues/{pr}/comments", args.repo());
        let body = json!({ "body": message.comment });
        Request { what: "posting the comment", method: Method::POST, path, body }
    }

    /// Replaces an earlier comment by this one.
    fn edit(&self, args: &PublishArgs, id: u64) -> Self {
        let path = format!("/repos/{}/issues/comments/{id}", args.repo());
        Request { what: "editing the comment", method: Method::PATCH, path, body: self.body.clone() }
    }
}

/// As `--dry-run` shows it.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = serde_json::to_string_pretty(&self.body).map_err(|_| fmt::Error)?;
        write!(f, "{} {}\n{body}", self.method, self.path)
    }
}

/// What became of a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// There was none of ours.
    Posted,
    /// Ours was replaced.
    Edited,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Done::Posted => "posted",
            Done::Edited => "edited",
        })
    }
}

/// The server.
pub struct GitHub {
    http: Http,
}

impl GitHub {
    /// Behind `http`.
    pub fn new(http: Http) -> Self {
        GitHub { http }
    }

    /// Sends what may be sent twice.
    ///
    /// # Errors
    /// As [`Http::send`].
    pub fn send(&self, request: &Request) -> Result<(), PublishError> {
        self.http
            .send(request.what, &request.method, &request.path, Some(&request.body), Repeat::Always)
            .map(|_| ())
    }

    /// Edits our comment, or posts one where there is none. A post of which nobody knows whether it arrived is looked for
    /// before it is sent again, so that there are never two.
    ///
    /// # Errors
    /// As [`Http::send`].
    pub fn comment(&self, args: &PublishArgs, pr: u64, comment: &Request) -> Result<Done, PublishError> {
        let mut round = 1;
        loop {
            if let Some(id) = self.find(args, pr)? {
                match self.send(&comment.edit(args, id)) {
                    // Deleted since it was found.
                    Err(PublishError::Refused { status: 404 | 410, .. }) if round < ROUNDS => {}
                    done => return done.map(|()| Done::Edited),
                }
            } else {
                let posted = self.http.send(
                    comment.what,
                    &comment.method,
                    &comment.path,
                    Some(&comment.body),
                    Repeat::IfRefused,
                );
                match posted {
                    Err(PublishError::GaveUp { .. } | PublishError::Nonsense { .. }) if round < ROUNDS => {}
                    done => return done.map(|_| Done::Posted),
                }
            }
            round += 1;
        }
    }

    /// The number of our earlier comment. Both the marker and the author must be ours: anybody can write a marker.
    fn find(&self, args: &PublishArgs, pr: u64) -> Result<Option<u64>, PublishError> {
        let what = "looking for our earlier comment";
        let marker = marker(&args.context);
        for page in 1..=MOST_PAGES {
            let path = format!("/repos/{}/issues/{pr}/comments?per_page={PAGE}&page={page}", args.repo());
            let answer = self.http.send(what, &Method::GET, &path, None, Repeat::Always)?;
            let Some(comments) = answer.as_array() else {
                return Err(PublishError::Nonsense {
                    what: what.into(),
                    detail: "not a list of comments".into(),
                });
            };
            let ours = |comment: &&Value| {
                let body = comment["body"].as_str().unwrap_or_default();
                let first = body.lines().next().unwrap_or_default().trim_end();
                first == marker && comment["user"]["login"].as_str() == Some(&args.author)
            };
            if let Some(id) = comments.iter().find(ours).and_then(|comment| comment["id"].as_u64()) {
                return Ok(Some(id));
            }
            if comments.len() < PAGE {
                break;
            }
        }
        Ok(None)
    }
}
