//! The `healthcheck` command: asks an exporter whether it is healthy, for containers without curl.
//!
//! `main` calls [`run`]. Exit code 1 if the exporter does not answer or is not healthy.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;

use crate::cli::{EXIT_FINDINGS, EXIT_OK, HealthcheckArgs};
use crate::client::http::{self, ClientLimits, ClientTls, Response};
use crate::http::connection::HTTPS_WANTED;
use crate::util::percent::percent_encode;

/// The response has only a few lines.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
const BAD_REQUEST: u16 = 400;
const UNAUTHORIZED: u16 = 401;

pub fn run(args: &HealthcheckArgs) -> ExitCode {
    match ask(args) {
        Ok(words) => {
            println!("{}", words.trim_end());
            EXIT_OK.into()
        }
        Err(failure) => {
            eprintln!("{failure:#}");
            EXIT_FINDINGS.into()
        }
    }
}

fn ask(args: &HealthcheckArgs) -> anyhow::Result<String> {
    let path = if args.ready { "/-/ready" } else { "/-/healthy" };
    let limits = ClientLimits {
        time: Duration::from_secs(args.timeout as u64),
        bytes: MAX_ANSWER_BYTES,
        ca_file: args.ca_file.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let response = runtime.block_on(async {
        if let Some(socket) = args.url.strip_prefix("unix://") {
            return http::get_over_unix(Path::new(socket), path, &limits).await;
        }
        let client = args.cert_file.clone().zip(args.key_file.clone());
        let identity = ClientTls { client, insecure: args.insecure };
        let url = http::below(&with_login(args)?, path);
        http::get_as(&url, &limits, &identity).await
    })?;
    judge(args, response)
}

/// Without `--ready`, a server that demands a password or https counts as healthy, because it is
/// alive.
fn judge(args: &HealthcheckArgs, response: Response) -> anyhow::Result<String> {
    if response.status == UNAUTHORIZED && args.user.is_none() && !args.ready {
        return Ok("healthy, and asks for a password".to_owned());
    }
    if response.status == BAD_REQUEST && response.body == HTTPS_WANTED.as_bytes() && !args.ready {
        return Ok("healthy, and requires https".to_owned());
    }
    response.text()
}

/// Returns the URL with the user and the password from the file.
fn with_login(args: &HealthcheckArgs) -> anyhow::Result<String> {
    let (Some(user), Some(file)) = (&args.user, &args.password_file) else { return Ok(args.url.clone()) };
    let password =
        std::fs::read_to_string(file).with_context(|| format!("cannot read the password in {}", file.display()))?;
    let (scheme, rest) = args.url.split_once("://").context("--url has no scheme such as http://")?;
    let password = password.trim_end_matches(['\n', '\r']);
    Ok(format!("{scheme}://{}:{}@{rest}", percent_encode(user), percent_encode(password)))
}
