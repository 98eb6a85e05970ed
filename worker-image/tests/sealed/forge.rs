//! A git server on loopback: https with a certificate of its own authority, over git's own back end.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

pub(crate) const PASSWORD: &str = "clone-password-of-the-test";

pub(crate) struct Forge {
    pub(crate) directory: TempDir,
    /// What to pass as `--egress-allow`.
    pub(crate) address: String,
    pub(crate) commit: String,
}

impl Forge {
    /// Serves one repository at `/app.git`, and the same at `/private/app.git` to those who know the password.
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let commit = repository(directory.path());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let acceptor = TlsAcceptor::from(Arc::new(tls(&directory.path().join("ca.pem"))));
        let routes = Router::new().fallback(serve).with_state(directory.path().to_path_buf());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, service) = (acceptor.clone(), TowerToHyperService::new(routes.clone()));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let http = hyper::server::conn::http1::Builder::new();
                    http.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        Self { directory, address, commit }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/app.git", self.address)
    }

    pub(crate) fn outer_url(&self) -> String {
        format!("https://{}/outer.git", self.address)
    }

    pub(crate) fn private_url(&self) -> String {
        format!("https://{}/private/app.git", self.address)
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }
}

fn git(directory: &Path, args: &[&str]) -> String {
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"];
    let output = Command::new("git").args(identity).args(args).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn repository(directory: &Path) -> String {
    let work = directory.join("work");
    std::fs::create_dir(&work).unwrap();
    git(&work, &["init", "--quiet", "."]);
    std::fs::write(work.join("hello.txt"), "hello from the repository\n").unwrap();
    git(&work, &["add", "."]);
    git(&work, &["commit", "--quiet", "-m", "one"]);
    git(directory, &["clone", "--quiet", "--bare", "work", "app.git"]);
    std::fs::create_dir(directory.join("private")).unwrap();
    git(directory, &["clone", "--quiet", "--bare", "work", "private/app.git"]);
    with_submodule(directory);
    git(&work, &["rev-parse", "HEAD"])
}

/// `/outer.git` has `/app.git` as its submodule `inner`.
fn with_submodule(directory: &Path) {
    let outer = directory.join("outer");
    std::fs::create_dir(&outer).unwrap();
    git(&outer, &["init", "--quiet", "."]);
    let app = directory.join("app.git").display().to_string();
    git(&outer, &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &app, "inner"]);
    let modules = "[submodule \"inner\"]\n\tpath = inner\n\turl = ../app.git\n";
    std::fs::write(outer.join(".gitmodules"), modules).unwrap();
    git(&outer, &["add", "."]);
    git(&outer, &["commit", "--quiet", "-m", "one"]);
    git(directory, &["clone", "--quiet", "--bare", "outer", "outer.git"]);
}

fn tls(ca_file: &Path) -> ServerConfig {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    std::fs::write(ca_file, params.self_signed(&ca_key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, ca_key);
    let server = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap().signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    config.with_no_client_auth().with_single_cert(vec![server.der().clone()], key).unwrap()
}

async fn serve(State(root): State<PathBuf>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let header =
        |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    let expected = format!("Basic {}", STANDARD.encode(format!("robot:{PASSWORD}")));
    if parts.uri.path().starts_with("/private/") && header("authorization") != expected {
        return (StatusCode::UNAUTHORIZED, [("www-authenticate", "Basic realm=\"t\"")]).into_response();
    }
    if parts.uri.path() == "/redirect" {
        let to = parts.uri.query().unwrap_or_default().to_owned();
        return (StatusCode::FOUND, [("location", to)]).into_response();
    }
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let mut back_end = tokio::process::Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", parts.uri.path())
        .env("QUERY_STRING", parts.uri.query().unwrap_or(""))
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    back_end.stdin.take().unwrap().write_all(&body).await.unwrap();
    let output = back_end.wait_with_output().await.unwrap().stdout;
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let mut response = Response::builder();
    for line in std::str::from_utf8(&output[..end]).unwrap().lines() {
        let (name, value) = line.split_once(": ").unwrap();
        response = if name == "Status" { response.status(&value[..3]) } else { response.header(name, value) };
    }
    response.body(Body::from(output[end + 4..].to_vec())).unwrap()
}
