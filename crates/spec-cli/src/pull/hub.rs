//! Requests to a hub: the list of a revision's files, and their bytes.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use ureq::config::RedirectAuthHeaders;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, http};

use super::source::{Source, is_path};

const PUBLIC: &str = "https://huggingface.co";
/// Longest list of files that is read, in bytes, and the most pages of it.
const MAX_LIST: u64 = 16 << 20;
const MAX_PAGES: usize = 50;

/// A file of a repository.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// In lower-case hexadecimal; the hub has it for large files.
    pub(crate) sha256: Option<String>,
}

/// A hub, as the environment names it: `HF_ENDPOINT`, and `HF_TOKEN` for what is not public.
pub(crate) struct Hub {
    endpoint: String,
    token: Option<String>,
    agent: Agent,
}

/// The beginning of an answer to a request for bytes.
pub(crate) struct Bytes {
    pub(crate) status: u16,
    /// First byte that follows, for status 206.
    pub(crate) start: Option<u64>,
    /// SHA-256 that the hub names for the whole file.
    pub(crate) sha256: Option<String>,
    pub(crate) body: Box<dyn Read>,
}

impl Hub {
    pub(crate) fn from_environment() -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| PUBLIC.to_owned());
        if !endpoint.starts_with("https://") && !endpoint.starts_with("http://") {
            bail!("HF_ENDPOINT is `{endpoint}`, which is no address; give one with https:// in front");
        }
        let roots = match variable("SSL_CERT_FILE") {
            Some(file) => certificates(&file)?,
            None => RootCerts::WebPki,
        };
        let agent = Agent::config_builder()
            // A status has a meaning here, and its own message.
            .http_status_as_error(false)
            // Files lie with other hosts, which must not see the token.
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(Duration::from_secs(20)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .user_agent(concat!("spec/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .build()
            .into();
        Ok(Self { endpoint: endpoint.trim_end_matches('/').to_owned(), token: variable("HF_TOKEN"), agent })
    }

    /// All files of the revision.
    pub(crate) fn list(&self, source: &Source) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let revision = source.revision.replace('/', "%2F");
        let mut address = format!("{}/api/models/{}/tree/{revision}?recursive=true", self.endpoint, source.repository);
        for _ in 0..MAX_PAGES {
            let mut response = self.get(&address, None)?;
            if response.status() != 200 {
                return Err(self.refusal(response.status().as_u16(), source));
            }
            let next = self.next_page(&response);
            let text = response.body_mut().with_config().limit(MAX_LIST).read_to_string();
            let text = text.with_context(|| format!("the list of files of {source} broke off; try again"))?;
            let page: Vec<Listed> = serde_json::from_str(&text)
                .with_context(|| format!("{address} answers with something else than a list of files"))?;
            entries.extend(page.into_iter().filter_map(Listed::file));
            match next {
                Some(next) => address = next,
                None => return Ok(entries),
            }
        }
        bail!("{source} has more files than can be listed; name one: hf:ORG/REPO:FILE")
    }

    /// Asks for a file from its byte `start` on.
    pub(crate) fn bytes(&self, source: &Source, path: &str, start: u64) -> Result<Bytes> {
        let revision = source.revision.replace('/', "%2F");
        let path: Vec<String> = path.split('/').map(percent_encoded).collect();
        let address = format!("{}/{}/resolve/{revision}/{}", self.endpoint, source.repository, path.join("/"));
        let response = self.get(&address, (start > 0).then_some(start))?;
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let range = header("content-range").and_then(|range| range.strip_prefix("bytes "));
        let start = range.and_then(|range| range.split('-').next()?.parse().ok());
        let sha256 = header("x-linked-etag").map(|tag| tag.trim_matches('"').to_owned()).filter(|tag| is_sha256(tag));
        let status = response.status().as_u16();
        Ok(Bytes { status, start, sha256, body: Box::new(response.into_body().into_reader()) })
    }

    /// What a status other than success means, and what to do.
    pub(crate) fn refusal(&self, status: u16, source: &Source) -> anyhow::Error {
        match (status, &self.token) {
            (401 | 403, None) => anyhow!(
                "{source}: the hub wants to know who asks ({status}): the repository is private, needs its terms accepted, or does not exist; set HF_TOKEN"
            ),
            (401 | 403, Some(_)) => anyhow!(
                "{source}: the hub refuses the token in HF_TOKEN ({status}); accept the repository's terms on its page, or use another token"
            ),
            (404, _) => anyhow!("{source}: not found (404); check repository, revision and file"),
            (429, _) => anyhow!("{source}: too many requests (429); try again later, or set HF_TOKEN"),
            (status, _) => anyhow!("{source}: {} answers with status {status}; try again later", self.endpoint),
        }
    }

    fn get(&self, address: &str, start: Option<u64>) -> Result<http::Response<Body>> {
        let mut request = self.agent.get(address);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(start) = start {
            request = request.header("range", format!("bytes={start}-"));
        }
        request.call().map_err(|error| {
            anyhow!(
                "{} cannot be reached ({error}); check the network, or set HF_ENDPOINT to a mirror; what was downloaded is kept",
                self.endpoint
            )
        })
    }

    /// The address of the next page of a list, of this hub alone: a token goes with it.
    fn next_page(&self, response: &http::Response<Body>) -> Option<String> {
        let link = response.headers().get("link")?.to_str().ok()?;
        let next = link.split(',').find(|part| part.contains(r#"rel="next""#))?;
        let address = next.split_once('<')?.1.split_once('>')?.0;
        address.strip_prefix(&self.endpoint)?.starts_with('/').then(|| address.to_owned())
    }
}

/// An entry of the hub's list.
#[derive(Deserialize)]
struct Listed {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    lfs: Option<Large>,
}

#[derive(Deserialize)]
struct Large {
    oid: String,
    size: u64,
}

impl Listed {
    /// `None` for folders, and for names that would not stay in their folder.
    fn file(self) -> Option<Entry> {
        if self.kind != "file" || !is_path(&self.path) {
            return None;
        }
        let (bytes, sha256) = match self.lfs {
            Some(large) => (large.size, Some(large.oid.trim_start_matches("sha256:").to_owned())),
            None => (self.size, None),
        };
        Some(Entry { path: self.path, bytes, sha256: sha256.filter(|sha256| is_sha256(sha256)) })
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn percent_encoded(part: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    part.bytes().map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Roots other than Mozilla's, for networks that sign with their own.
fn certificates(file: &str) -> Result<RootCerts> {
    let text = std::fs::read(file).with_context(|| format!("SSL_CERT_FILE names {file}, which cannot be read"))?;
    let mut found = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(certificate) = item.with_context(|| format!("{file} is not PEM"))? {
            found.push(certificate);
        }
    }
    if found.is_empty() {
        bail!("SSL_CERT_FILE names {file}, which has no certificate");
    }
    Ok(RootCerts::Specific(Arc::new(found)))
}
