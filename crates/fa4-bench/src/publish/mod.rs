//! `publish`: a result folder as a commit status and a comment on a pull request, on GitHub.
//!
//! - [`message`]: what is said; [`github`]: requests; [`http`]: how they get there; [`secret`]: the token;
//!   [`error`]: why they do not.

pub mod error;
pub mod github;
pub mod http;
pub mod message;
pub mod secret;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use fa4_gate::error::exit;

pub use error::PublishError;
pub use http::Patience;
pub use secret::Secret;

use github::{GitHub, Request};
use http::Http;

/// The environment variable that holds the token. Only `main` reads it.
pub const TOKEN_VARIABLE: &str = "GITHUB_TOKEN";

/// `publish`.
#[derive(Args, Debug, Clone)]
pub struct PublishArgs {
    /// The result folder.
    pub folder: PathBuf,
    /// Where to publish; default: what git's remote `origin` of the checkout names.
    #[arg(long, value_name = "OWNER/NAME")]
    pub repo: Option<String>,
    /// The commit that was measured; default: the folder's own.
    #[arg(long, value_name = "SHA")]
    pub sha: Option<String>,
    /// The pull request to comment on; without it only the commit gets its status.
    #[arg(long, value_name = "NUMBER")]
    pub pr: Option<u64>,
    /// Name of the status and of the comment; one of each per name.
    #[arg(long, value_name = "NAME", default_value = "fa4 bench")]
    pub context: String,
    /// Where a reader of the status gets: the run's page.
    #[arg(long, value_name = "URL")]
    pub target_url: Option<String>,
    /// Whose comment is edited instead of posting another.
    #[arg(long, value_name = "LOGIN", default_value = "github-actions[bot]")]
    pub author: String,
    /// The server's interface.
    #[arg(long, value_name = "URL", default_value = "https://api.github.com")]
    pub api: String,
    /// Print what would be sent; needs neither token nor network.
    #[arg(long)]
    pub dry_run: bool,
}

/// Stands for the repository in a dry run where nothing names one.
const SOME_REPO: &str = "OWNER/NAME";

impl PublishArgs {
    /// OWNER/NAME.
    fn repo(&self) -> &str {
        self.repo.as_deref().unwrap_or(SOME_REPO)
    }

    /// The flags with git's repository where none is named. Fallible reading: a folder without git is no error here.
    pub fn with_origin(&self, root: &Path) -> PublishArgs {
        let ask = || {
            let git = Command::new("git").arg("-C").arg(root).args(["remote", "get-url", "origin"]).output();
            repo_of(&String::from_utf8(git.ok()?.stdout).ok()?)
        };
        PublishArgs { repo: self.repo.clone().or_else(ask), ..self.clone() }
    }

    /// Flags that clap cannot judge.
    fn check(&self) -> Result<(), PublishError> {
        let flag = |flag, value: &str, what| PublishError::Flag { flag, value: value.into(), what };
        let is_name = |s: &str| {
            !s.is_empty()
                && s.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
                && !matches!(s, "." | "..")
        };
        let is_repo =
            |repo: &str| repo.split_once('/').is_some_and(|(owner, name)| is_name(owner) && is_name(name));
        match self.repo.as_deref() {
            Some(repo) if !is_repo(repo) => return Err(flag("--repo", repo, "expected OWNER/NAME")),
            None if !self.dry_run => {
                let what = "git's remote `origin` names no repository on a server; give OWNER/NAME";
                return Err(flag("--repo", "(none)", what));
            }
            _ => {}
        }
        if let Some(sha) = self.sha.as_deref().filter(|sha| !is_sha(sha)) {
            return Err(flag("--sha", sha, "expected the 40 hex digits of a commit"));
        }
        let printable = |s: &str| !s.is_empty() && s.len() <= 100 && !s.chars().any(char::is_control);
        if !printable(&self.context) || self.context.contains("--") {
            return Err(flag(
                "--context",
                &self.context,
                "expected a name of up to 100 characters without `--`",
            ));
        }
        Ok(())
    }
}

/// OWNER/NAME of a remote's address; whatever stands before it, a token perhaps, is left out. None of a local folder.
fn repo_of(url: &str) -> Option<String> {
    let url = url.trim().trim_end_matches('/').trim_end_matches(".git");
    let path = match url.split_once("://") {
        Some((scheme, rest)) if scheme != "file" => rest.split_once('/')?.1,
        Some(_) => return None,
        None => url.split_once(':')?.1,
    };
    let (owner, name) = path.trim_start_matches('/').split_once('/')?;
    (!name.contains('/')).then(|| format!("{owner}/{name}"))
}

fn is_sha(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Publishes, or prints what would be sent. `token` is asked for only when something is sent.
///
/// # Errors
/// What is wrong with flags, folder, token, network or server; never with the token in it.
pub fn publish(
    args: &PublishArgs,
    token: impl FnOnce() -> Option<String>,
    patience: &Patience,
    out: &mut impl Write,
) -> Result<u8, PublishError> {
    args.check()?;
    let message = message::message(&args.folder, &args.context)?;
    let sha = match &args.sha {
        Some(sha) => sha.clone(),
        None => recorded_sha(args)?,
    };
    let status = Request::status(args, &sha, &message);
    let comment = args.pr.map(|pr| Request::comment(args, pr, &message));
    if args.dry_run {
        for request in std::iter::once(&status).chain(&comment) {
            writeln!(out, "{request}").map_err(PublishError::Output)?;
        }
        return Ok(exit::OK);
    }
    let token = token().ok_or(PublishError::NoToken { variable: TOKEN_VARIABLE })?;
    let secret =
        Secret::new(&token).map_err(|what| PublishError::Token { variable: TOKEN_VARIABLE, what })?;
    let github = GitHub::new(Http::new(&args.api, secret, patience.clone())?);
    github.send(&status)?;
    writeln!(out, "status `{}` of {sha}: {}", args.context, message.state).map_err(PublishError::Output)?;
    if let (Some(pr), Some(comment)) = (args.pr, &comment) {
        let done = github.comment(args, pr, comment)?;
        writeln!(out, "comment on #{pr} {done}").map_err(PublishError::Output)?;
    }
    Ok(exit::OK)
}

/// The commit that the folder's run was built from.
fn recorded_sha(args: &PublishArgs) -> Result<String, PublishError> {
    let broken = |what: String| PublishError::Results { path: args.folder.clone(), what };
    let env = crate::folder::env(&args.folder).map_err(|error| broken(error.to_string()))?;
    match is_sha(&env.commit) {
        true => Ok(env.commit),
        false => Err(broken(format!("was measured at `{}`, which is no commit; give --sha", env.commit))),
    }
}

#[cfg(test)]
mod tests;
