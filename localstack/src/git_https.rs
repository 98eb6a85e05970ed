//! A git repository over https on loopback, with a certificate of its own: what the demo and tests clone from.

mod copy;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use copy::{copy, git, settings_of};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A repository that is being served.
#[derive(Debug)]
pub struct GitHttps {
    address: SocketAddr,
    authority: PathBuf,
    bare: PathBuf,
    server: JoinHandle<()>,
}

impl GitHttps {
    /// Makes a bare copy of `repository` (its HEAD as `main`) in `dir` and serves it.
    ///
    /// # Errors
    ///
    /// If `repository` is not a git repository with a commit, or git is missing.
    pub async fn serve(repository: &Path, dir: &Path) -> anyhow::Result<Self> {
        let bare = dir.join("repository.git");
        copy(repository, &bare).await?;
        let authority = dir.join("authority.pem");
        let tls = TlsAcceptor::from(Arc::new(certificate(&authority)?));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let app = Router::new()
            .route("/repository.git/info/refs", get(refs))
            .route("/repository.git/git-upload-pack", post(upload_pack))
            .with_state(Arc::new(bare.clone()));
        let server = tokio::spawn(accept(listener, tls, app));
        Ok(Self { address, authority, bare, server })
    }

    /// Where to clone from.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}/repository.git", self.address)
    }

    /// What a worker must allow its clones to reach: `host:port`.
    #[must_use]
    pub fn egress(&self) -> String {
        self.address.to_string()
    }

    /// What git says about the copy.
    pub(crate) async fn git(&self, args: &[&str]) -> anyhow::Result<Vec<u8>> {
        git(Command::new("git").arg("-C").arg(&self.bare).args(args), &settings_of(&self.bare)).await
    }

    /// Where `repository` was cloned from, if others can clone it from there too: over https, without a password.
    pub(crate) async fn origin(&self, repository: &Path) -> Option<String> {
        let mut asked = Command::new("git");
        asked.arg("-C").arg(repository).args(["config", "--local", "--no-includes", "--get", "remote.origin.url"]);
        let said = git(&mut asked, &settings_of(&self.bare)).await.ok()?;
        let url = String::from_utf8(said).ok()?.trim().to_owned();
        rules::runnable::repository(&url).is_ok().then_some(url)
    }

    /// The certificate (PEM) to trust.
    #[must_use]
    pub fn authority(&self) -> &Path {
        &self.authority
    }
}

impl Drop for GitHttps {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A certificate for loopback, signed by an authority that is written to `authority`.
fn certificate(authority: &Path) -> anyhow::Result<ServerConfig> {
    let mut root = CertificateParams::new(Vec::new())?;
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = CertifiedIssuer::self_signed(root, KeyPair::generate()?)?;
    std::fs::write(authority, root.pem())?;
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?.signed_by(&key, &root)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key)?)
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, app: Router) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, app) = (tls.clone(), app.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = TowerToHyperService::new(app);
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn refs(
    State(bare): State<Arc<PathBuf>>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    if query.get("service").map(String::as_str) != Some("git-upload-pack") {
        return StatusCode::FORBIDDEN.into_response();
    }
    let mut body = b"001e# service=git-upload-pack\n0000".to_vec();
    match run(&bare, &headers, &["--advertise-refs"], Bytes::new()).await {
        Ok(advertised) => body.extend(advertised),
        Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
    ([(header::CONTENT_TYPE, "application/x-git-upload-pack-advertisement")], body).into_response()
}

async fn upload_pack(State(bare): State<Arc<PathBuf>>, headers: HeaderMap, body: Bytes) -> Response {
    let answered = match unpacked(&headers, body).await {
        Ok(request) => run(&bare, &headers, &[], request).await,
        Err(error) => Err(error),
    };
    match answered {
        Ok(pack) => {
            ([(header::CONTENT_TYPE, "application/x-git-upload-pack-result")], Body::from(pack)).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The request as git means it: one of more than 1 KiB (a clone of many branches) comes compressed.
async fn unpacked(headers: &HeaderMap, body: Bytes) -> anyhow::Result<Bytes> {
    match headers.get(header::CONTENT_ENCODING).map(|encoding| encoding.as_bytes()) {
        Some(b"gzip" | b"x-gzip") => Ok(piped(Command::new("gzip").arg("-dc"), &body).await?.into()),
        Some(_) | None => Ok(body),
    }
}

async fn run(bare: &Path, headers: &HeaderMap, args: &[&str], input: Bytes) -> anyhow::Result<Vec<u8>> {
    let mut command = Command::new("git");
    command.args(["upload-pack", "--stateless-rpc"]).args(args).arg(bare);
    command.env("GIT_CONFIG_GLOBAL", settings_of(bare)).env("GIT_CONFIG_NOSYSTEM", "1");
    if let Some(version) = headers.get("git-protocol").and_then(|value| value.to_str().ok()) {
        command.env("GIT_PROTOCOL", version);
    }
    piped(&mut command, &input).await
}

async fn piped(command: &mut Command, input: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn()?;
    let stdin = child.stdin.take();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // It may have heard enough before the end.
            let _ = stdin.write_all(input).await;
        }
    };
    let ((), output) = tokio::join!(feed, child.wait_with_output());
    Ok(output?.stdout)
}
