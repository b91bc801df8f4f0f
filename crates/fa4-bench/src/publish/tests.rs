//! Publishing to a server on this machine that misbehaves in every way that servers do.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Patience, PublishArgs, PublishError, publish};
use crate::env::Env;
use crate::folder::Folder;
use crate::measure::unmeasured;
use crate::plan;
use crate::record::Status;

const TOKEN: &str = "secret-token/0123456789";
const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

/// A request as it came in.
#[derive(Debug, Clone)]
struct Seen {
    method: String,
    path: String,
    headers: HashMap<String, String>,
    body: String,
    at: Instant,
}

/// What the server does with a request.
enum Act {
    Answer(u16, String),
    AnswerWith(u16, &'static [(&'static str, &'static str)], String),
    /// Reads the request and says nothing.
    Hang,
    /// Closes the connection in the middle of the answer.
    Break,
    /// An endless answer.
    Flood,
    /// An answer of a byte at a time.
    Drip,
}

struct Server {
    address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// Answers each request by `act(request, how many of the same method and path came before)`.
    fn start(act: impl Fn(&Seen, usize) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (act, log) = (Arc::new(act), Arc::clone(&seen));
        // Ends with the test's process; a test makes a handful of connections.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (act, log) = (Arc::clone(&act), Arc::clone(&log));
                std::thread::spawn(move || {
                    let Some(request) = read_request(&stream) else { return };
                    let before = {
                        let mut log = log.lock().unwrap();
                        let same = |s: &&Seen| s.method == request.method && s.path == request.path;
                        let before = log.iter().filter(same).count();
                        log.push(request.clone());
                        before
                    };
                    perform(stream, act(&request, before));
                });
            }
        });
        Server { address, seen }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn count(&self, method: &str) -> usize {
        self.seen().iter().filter(|s| s.method == method).count()
    }
}

fn read_request(stream: &TcpStream) -> Option<Seen> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace().map(String::from);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_lowercase(), value.to_string()),
            None => break,
        };
    }
    let length = headers.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut body = vec![0u8; length];
    reader.read_exact(&mut body).ok()?;
    Some(Seen { method, path, headers, body: String::from_utf8(body).ok()?, at: Instant::now() })
}

fn perform(mut stream: TcpStream, act: Act) {
    let head = |status: u16, length: usize| {
        format!("HTTP/1.1 {status} Word\r\nContent-Length: {length}\r\nConnection: close\r\n")
    };
    let sent = match act {
        Act::Answer(status, body) => {
            write!(stream, "{}\r\n{body}", head(status, body.len()))
        }
        Act::AnswerWith(status, headers, body) => {
            let headers: String =
                headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            write!(stream, "{}{headers}\r\n{body}", head(status, body.len()))
        }
        Act::Hang => {
            std::thread::sleep(Duration::from_secs(20));
            Ok(())
        }
        Act::Break => write!(stream, "{}\r\n{{\"id\"", head(200, 1000)),
        Act::Flood => {
            let piece = vec![b' '; 1 << 20];
            let begun = write!(stream, "{}\r\n", head(200, 1 << 30));
            begun.and_then(|()| (0..64).try_for_each(|_| stream.write_all(&piece)))
        }
        Act::Drip => {
            let begun = write!(stream, "{}\r\n", head(200, 10_000));
            begun.and_then(|()| {
                (0..200).try_for_each(|_| {
                    std::thread::sleep(Duration::from_millis(50));
                    stream.write_all(b" ").and_then(|()| stream.flush())
                })
            })
        }
    };
    // A client that has gone away is what some tests are about.
    let _ = sent;
}

fn results() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sets/edge.csv");
    let rows = plan::read(&set).unwrap();
    let pattern = regex::Regex::new(&format!("^{}$", rows[0].id)).unwrap();
    let cases = plan::cases_csv(&[set], Some(&pattern)).unwrap();
    let mut folder = Folder::create(&dir.path().join("run"), &Env::empty(), &cases).unwrap();
    folder.append(&unmeasured(0, &rows[0], 1, Status::Pass, "")).unwrap();
    dir
}

fn args(dir: &tempfile::TempDir, api: &str) -> PublishArgs {
    PublishArgs {
        folder: dir.path().join("run"),
        repo: Some("owner/name".into()),
        sha: Some(SHA.into()),
        pr: Some(7),
        context: "h200 claim".into(),
        target_url: Some("https://github.com/owner/name/actions/runs/1".into()),
        author: "github-actions[bot]".into(),
        api: api.into(),
        dry_run: false,
    }
}

fn patience() -> Patience {
    Patience {
        attempts: 4,
        first_wait: Duration::from_millis(10),
        longest_wait: Duration::from_secs(5),
        timeout: Duration::from_millis(700),
    }
}

/// Publishes to `server`: what it printed, or why it failed. Neither may hold the token.
fn run(server: &Server) -> Result<String, PublishError> {
    let dir = results();
    run_with(&args(&dir, &server.address))
}

fn run_with(args: &PublishArgs) -> Result<String, PublishError> {
    let mut out = Vec::new();
    let result = publish(args, || Some(TOKEN.into()), &patience(), &mut out);
    let out = String::from_utf8(out).unwrap();
    let said = format!("{out}{}", result.as_ref().err().map(|e| format!("{e} {e:?}")).unwrap_or_default());
    for piece in [TOKEN, "secret-token", "0123456789\"", "secret%2D"] {
        assert!(!said.contains(piece), "the token shows in: {said}");
    }
    result.map(|code| {
        assert_eq!(code, 0);
        out
    })
}

/// The server as it should be: statuses are accepted, `comments` are there.
fn well_behaved(request: &Seen, comments: &Value) -> Act {
    match request.method.as_str() {
        "GET" => Act::Answer(200, comments.to_string()),
        "PATCH" => Act::Answer(200, json!({ "id": 1 }).to_string()),
        _ => Act::Answer(201, json!({ "id": 1 }).to_string()),
    }
}

fn is_status(request: &Seen) -> bool {
    request.path.contains("/statuses/")
}

fn comment(id: u64, login: &str, body: &str) -> Value {
    json!({ "id": id, "user": { "login": login }, "body": body })
}

#[test]
fn a_status_and_a_comment_are_posted() {
    let server = Server::start(|request, _| well_behaved(request, &json!([])));
    let out = run(&server).unwrap();
    assert_eq!(out, format!("status `h200 claim` of {SHA}: success\ncomment on #7 posted\n"));
    let seen = server.seen();
    let paths: Vec<String> = seen.iter().map(|s| format!("{} {}", s.method, s.path)).collect();
    assert_eq!(
        paths,
        [
            format!("POST /repos/owner/name/statuses/{SHA}"),
            "GET /repos/owner/name/issues/7/comments?per_page=100&page=1".into(),
            "POST /repos/owner/name/issues/7/comments".into(),
        ]
    );
    assert!(seen.iter().all(|s| s.headers["authorization"] == format!("Bearer {TOKEN}")));
    let status: Value = serde_json::from_str(&seen[0].body).unwrap();
    assert_eq!((&status["state"], &status["context"]), (&json!("success"), &json!("h200 claim")));
    let comment: Value = serde_json::from_str(&seen[2].body).unwrap();
    assert!(comment["body"].as_str().unwrap().starts_with("<!-- fa4-bench: h200 claim -->\n"));
}

#[test]
fn our_own_comment_is_edited_and_nobody_elses() {
    let marker = "<!-- fa4-bench: h200 claim -->";
    let comments = json!([
        comment(1, "a-person", &format!("{marker}\npretending")),
        comment(2, "github-actions[bot]", "<!-- fa4-bench: other -->\n"),
        comment(3, "github-actions[bot]", &format!("quoted:\n{marker}")),
        comment(4, "github-actions[bot]", &format!("{marker}\r\nold figures")),
    ]);
    let server = Server::start(move |request, _| well_behaved(request, &comments));
    assert!(run(&server).unwrap().ends_with("comment on #7 edited\n"));
    let patched: Vec<Seen> = server.seen().into_iter().filter(|s| s.method == "PATCH").collect();
    assert_eq!(patched.len(), 1);
    assert_eq!(patched[0].path, "/repos/owner/name/issues/comments/4");
}

#[test]
fn later_pages_are_searched() {
    let server = Server::start(|request, _| {
        let full: Vec<Value> = (0..100).map(|id| comment(id, "a-person", "hello")).collect();
        let ours = json!([comment(500, "github-actions[bot]", "<!-- fa4-bench: h200 claim -->")]);
        well_behaved(request, &if request.path.ends_with("page=1") { json!(full) } else { ours })
    });
    assert!(run(&server).unwrap().ends_with("edited\n"));
}

#[test]
fn trouble_that_passes_is_waited_for() {
    let server = Server::start(|request, before| match (is_status(request), before) {
        (true, 0) => Act::Answer(500, "oops".into()),
        (true, 1) => Act::Hang,
        (true, 2) => Act::Break,
        _ => well_behaved(request, &json!([])),
    });
    assert!(run(&server).is_ok());
    assert_eq!(server.seen().iter().filter(|s| is_status(s)).count(), 4);
}

#[test]
fn a_server_that_asks_to_wait_is_obeyed() {
    for limit in [429, 403] {
        let server = Server::start(move |request, before| match (is_status(request), before) {
            (true, 0) => Act::AnswerWith(limit, &[("Retry-After", "1")], "slow down".into()),
            _ => well_behaved(request, &json!([])),
        });
        assert!(run(&server).is_ok());
        let seen = server.seen();
        assert!(seen[1].at - seen[0].at >= Duration::from_millis(950), "{limit}");
    }
    let server = Server::start(|_, _| {
        let used_up = &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "32503680000")];
        Act::AnswerWith(403, used_up, "limit".into())
    });
    let error = run(&server).unwrap_err().to_string();
    assert!(error.contains("in 1 attempts") && error.contains("asks to wait"), "{error}");
}

#[test]
fn a_server_that_stays_broken_is_given_up() {
    type Fault = (&'static str, fn() -> Act);
    let faults: [Fault; 5] = [
        ("oops", || Act::Answer(503, "oops".into())),
        ("no answer within", || Act::Hang),
        ("broke off", || Act::Break),
        ("more than", || Act::Flood),
        ("longer than", || Act::Drip),
    ];
    for (says, act) in faults {
        let server = Server::start(move |_, _| act());
        let error = run(&server).unwrap_err();
        assert!(matches!(error, PublishError::GaveUp { attempts: 4, .. }), "{error}");
        assert!(error.to_string().contains(says), "{says}: {error}");
        assert_eq!(error.exit_code(), 3);
    }
    // Nobody listens there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let dir = results();
    let error = run_with(&args(&dir, &nobody)).unwrap_err().to_string();
    assert!(error.contains("no connection"), "{error}");
}

#[test]
fn a_token_that_is_echoed_is_not_passed_on() {
    let server = Server::start(|request, _| {
        let echo = format!("{{\"message\": \"bad credentials: {}\"}}", request.headers["authorization"]);
        Act::Answer(401, echo)
    });
    let error = run(&server).unwrap_err().to_string();
    assert!(error.contains("[token]") && error.contains("wrong or has expired"), "{error}");
    // Far into a long body, at the place where messages are cut off.
    for padding in [270, 280, 290, 295, 5000] {
        let server = Server::start(move |_, _| Act::Answer(422, format!("{}{TOKEN}", "x".repeat(padding))));
        run(&server).unwrap_err();
    }
    let server = Server::start(|_, _| Act::Answer(200, format!("<html>{TOKEN}</html>")));
    let error = run(&server).unwrap_err().to_string();
    assert!(error.contains("makes no sense"), "{error}");
}

#[test]
fn a_redirection_does_not_get_the_token() {
    for status in [301, 302, 307, 308] {
        let other = Server::start(|request, _| well_behaved(request, &json!([])));
        let target: &'static str =
            Box::leak(format!("{}/elsewhere?token={TOKEN}", other.address).into_boxed_str());
        let headers: &'static [(&str, &str)] = Box::leak(Box::new([("Location", target)]));
        let server = Server::start(move |_, _| Act::AnswerWith(status, headers, String::new()));
        let error = run(&server).unwrap_err();
        assert!(error.to_string().contains("points to 127.0.0.1/elsewhere;"), "{error}");
        assert!(other.seen().is_empty());
        assert_eq!(server.seen().len(), 1);
    }
}

/// The post arrives, its answer does not: the comment is found, not posted again.
#[test]
fn a_post_in_doubt_is_not_repeated() {
    let posted: Arc<Mutex<bool>> = Arc::default();
    let server = Server::start(move |request, _| {
        let mut posted = posted.lock().unwrap();
        match request.method.as_str() {
            "POST" if !is_status(request) => {
                *posted = true;
                Act::Hang
            }
            "GET" if *posted => {
                let ours = comment(9, "github-actions[bot]", "<!-- fa4-bench: h200 claim -->\n…");
                Act::Answer(200, json!([ours]).to_string())
            }
            _ => well_behaved(request, &json!([])),
        }
    });
    assert!(run(&server).unwrap().ends_with("comment on #7 edited\n"));
    assert_eq!((server.count("POST"), server.count("PATCH")), (2, 1));
}

#[test]
fn a_refusal_says_what_the_token_lacks() {
    let server = Server::start(|_, _| Act::Answer(403, "Resource not accessible".into()));
    let error = run(&server).unwrap_err().to_string();
    assert!(error.contains("lacks a permission") && server.seen().len() == 1, "{error}");
    let server = Server::start(|request, _| match is_status(request) {
        true => well_behaved(request, &json!([])),
        false => Act::Answer(200, json!({ "message": "not a list" }).to_string()),
    });
    assert!(run(&server).unwrap_err().to_string().contains("not a list of comments"));
}

#[test]
fn a_dry_run_sends_nothing_and_needs_nothing() {
    let server = Server::start(|request, _| well_behaved(request, &json!([])));
    let dir = results();
    let dry = PublishArgs { dry_run: true, ..args(&dir, &server.address) };
    let mut out = Vec::new();
    let token = || -> Option<String> { panic!("asked for a token") };
    assert_eq!(publish(&dry, token, &patience(), &mut out).unwrap(), 0);
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains(&format!("POST /repos/owner/name/statuses/{SHA}")), "{out}");
    assert!(out.contains("POST /repos/owner/name/issues/7/comments"), "{out}");
    assert!(server.seen().is_empty());
}

/// A dry run needs no repository; posting does, and takes git's.
#[test]
fn the_repository_may_come_from_git() {
    for (url, repo) in [
        ("https://github.com/owner/name.git\n", Some("owner/name")),
        (concat!("https", "://x-access-token:secret@github.com/owner/name"), Some("owner/name")),
        ("git@github.com:owner/name.git", Some("owner/name")),
        ("ssh://git@github.com:22/owner/name/", Some("owner/name")),
        ("/srv/git/owner/name.git", None),
        ("file:///srv/owner/name", None),
        (concat!("https", "://example.org/a/b/c"), None),
        ("", None),
    ] {
        assert_eq!(super::repo_of(url).as_deref(), repo, "{url}");
    }
    let dir = results();
    let nameless = PublishArgs { repo: None, ..args(&dir, concat!("https", "://api.github.com")) };
    let mut out = Vec::new();
    let dry = PublishArgs { dry_run: true, ..nameless.clone() };
    assert_eq!(publish(&dry, || None, &patience(), &mut out).unwrap(), 0);
    assert!(String::from_utf8(out).unwrap().contains("POST /repos/OWNER/NAME/statuses/"));
    let error = run_with(&nameless).unwrap_err();
    assert!(error.to_string().contains("--repo") && error.exit_code() == 2, "{error}");
    assert_eq!(nameless.with_origin(dir.path()).repo, None);
}

#[test]
fn bad_input_is_refused_before_anything_is_sent() {
    let server = Server::start(|request, _| well_behaved(request, &json!([])));
    let dir = results();
    let good = args(&dir, &server.address);
    let refused = |args: PublishArgs, says: &str| {
        let error = run_with(&args).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.exit_code(), 2, "{error}");
    };
    for repo in ["name", "owner/", "owner/name/x", "../x", "owner/.."] {
        refused(PublishArgs { repo: Some(repo.into()), ..good.clone() }, "expected OWNER/NAME");
    }
    refused(PublishArgs { sha: Some("HEAD".into()), ..good.clone() }, "40 hex digits");
    refused(PublishArgs { context: "a -->".into(), ..good.clone() }, "without `--`");
    refused(PublishArgs { api: concat!("http", "://example.org").into(), ..good.clone() }, "clear text");
    refused(
        PublishArgs { api: concat!("https", "://me:pass@github.com").into(), ..good.clone() },
        "user name",
    );
    refused(PublishArgs { folder: "nowhere".into(), ..good.clone() }, "nowhere");
    // The folder's run was not built from a commit.
    refused(PublishArgs { sha: None, ..good.clone() }, "give --sha");
    let none = publish(&good, || None, &patience(), &mut Vec::new()).unwrap_err();
    assert!(none.to_string().contains("GITHUB_TOKEN") && none.exit_code() == 3, "{none}");
    let broken = publish(&good, || Some("a b c d e f g".into()), &patience(), &mut Vec::new()).unwrap_err();
    assert!(broken.to_string().contains("GITHUB_TOKEN") && !broken.to_string().contains("a b c"), "{broken}");
    assert!(server.seen().is_empty());
}
