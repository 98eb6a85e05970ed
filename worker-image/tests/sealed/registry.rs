//! A registry on loopback, as daemons know it (version 2 of its interface): it has one small image, and asks for a login.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callboard_worker::isolation::bubblewrap::find;
use futures::StreamExt as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

pub(crate) const USER: &str = "puller";
pub(crate) const PASSWORD: &str = "registry-password/of+the-test";
const TOKEN: &str = "bearer-token-of-the-registry";

/// How it asks who wants an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// For name and password, with each request.
    Basic,
    /// For a token, which another address gives to whoever has name and password.
    Bearer,
}

/// What it does with the image's one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    /// Gives it.
    All,
    /// Gives the beginning, then a byte now and then, and does not end.
    Slowly,
    /// Gives the beginning, and then nothing, and does not end.
    Beginning,
}

pub(crate) struct Registry {
    address: String,
    /// How many layers are being given just now.
    giving: Arc<AtomicUsize>,
}

struct Shelf {
    address: String,
    asks: Asks,
    gives: Gives,
    giving: Arc<AtomicUsize>,
    manifest: Bytes,
    /// By digest.
    blobs: BTreeMap<String, Bytes>,
    layer: String,
}

impl Registry {
    pub(crate) async fn start(asks: Asks, gives: Gives) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shelf = Shelf::new(&address, asks, gives);
        let giving = Arc::clone(&shelf.giving);
        let routes = Router::new().fallback(serve).with_state(Arc::new(shelf));
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { address, giving }
    }

    /// The image, which has nothing but a static busybox. Its name is no other test's: daemons keep what they pull.
    pub(crate) fn image(&self) -> String {
        format!("{}/team/app:1", self.address)
    }

    /// What a pipeline calls it.
    pub(crate) fn name(&self) -> String {
        self.address.clone()
    }

    pub(crate) fn giving(&self) -> usize {
        self.giving.load(Relaxed)
    }
}

impl Shelf {
    fn new(address: &str, asks: Asks, gives: Gives) -> Self {
        let layer = layer(address);
        let config = json!({
            "architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        });
        let config = config.to_string().into_bytes();
        let kind = |kind: &str| format!("application/vnd.docker.{kind}");
        let part =
            |kind: String, bytes: &[u8]| json!({"mediaType": kind, "size": bytes.len(), "digest": digest(bytes)});
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": kind("distribution.manifest.v2+json"),
            "config": part(kind("container.image.v1+json"), &config),
            "layers": [part(kind("image.rootfs.diff.tar.gzip"), &layer)],
        });
        Self {
            address: address.to_owned(),
            asks,
            gives,
            giving: Arc::default(),
            manifest: manifest.to_string().into(),
            layer: digest(&layer),
            blobs: [config, layer].map(|bytes| (digest(&bytes), bytes.into())).into(),
        }
    }

    fn challenge(&self) -> String {
        match self.asks {
            Asks::Basic => "Basic realm=\"registry\"".into(),
            Asks::Bearer => {
                format!("Bearer realm=\"http://{}/token\",service=\"registry\"", self.address)
            }
        }
    }

    fn lets_in(&self, shown: Option<&str>) -> bool {
        match self.asks {
            Asks::Basic => is_login(shown),
            Asks::Bearer => shown == Some(&format!("Bearer {TOKEN}")),
        }
    }

    fn blob(&self, digest: &str) -> Response {
        let Some(bytes) = self.blobs.get(digest).cloned() else { return StatusCode::NOT_FOUND.into_response() };
        let length = [(header::CONTENT_LENGTH, bytes.len())];
        if self.gives == Gives::All || digest != self.layer {
            return (length, bytes).into_response();
        }
        let (half, is_slow) = (bytes.len() / 2, self.gives == Gives::Slowly);
        let beginning = futures::stream::once(std::future::ready(Ok::<_, std::io::Error>(bytes.slice(..half))));
        let given = Given::new(&self.giving);
        let rest = futures::stream::unfold((given, half), move |(given, at)| {
            let byte = bytes.slice(at..=at);
            async move {
                if !is_slow {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
                Some((Ok(byte), (given, at + 1)))
            }
        });
        (length, Body::from_stream(beginning.chain(rest))).into_response()
    }
}

/// Counts one layer as long as somebody waits for the rest of it.
struct Given(Arc<AtomicUsize>);

impl Given {
    fn new(giving: &Arc<AtomicUsize>) -> Self {
        giving.fetch_add(1, Relaxed);
        Self(Arc::clone(giving))
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

async fn serve(State(shelf): State<Arc<Shelf>>, request: Request) -> Response {
    let shown = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let path = request.uri().path();
    if path == "/token" {
        return if is_login(shown) { axum::Json(json!({"token": TOKEN})).into_response() } else { shelf.refuse(shown) };
    }
    if !shelf.lets_in(shown) {
        return shelf.refuse(shown);
    }
    match path.strip_prefix("/v2/team/app/").and_then(|path| path.split_once('/')) {
        Some(("manifests", _)) => {
            let kind = "application/vnd.docker.distribution.manifest.v2+json".to_owned();
            let headers = [(header::CONTENT_TYPE, kind), (DIGEST, digest(&shelf.manifest))];
            let length = [(header::CONTENT_LENGTH, shelf.manifest.len())];
            match *request.method() {
                Method::HEAD => (length, headers).into_response(),
                _ => (headers, shelf.manifest.clone()).into_response(),
            }
        }
        Some(("blobs", digest)) => shelf.blob(digest),
        Some(_) => StatusCode::NOT_FOUND.into_response(),
        None => axum::Json(json!({})).into_response(),
    }
}

const DIGEST: header::HeaderName = header::HeaderName::from_static("docker-content-digest");

impl Shelf {
    /// Repeats what it was shown, as one that means no good may.
    fn refuse(&self, shown: Option<&str>) -> Response {
        let login = shown.and_then(|shown| STANDARD.decode(shown.strip_prefix("Basic ")?).ok());
        let login = String::from_utf8_lossy(&login.unwrap_or_default()).into_owned();
        let error =
            json!({"code": "UNAUTHORIZED", "message": format!("not for {login} ({})", shown.unwrap_or("nobody"))});
        let challenge = [(header::WWW_AUTHENTICATE, self.challenge())];
        (StatusCode::UNAUTHORIZED, challenge, axum::Json(json!({"errors": [error]}))).into_response()
    }
}

fn is_login(shown: Option<&str>) -> bool {
    shown == Some(&format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}"))))
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// A tree of a shell and its programs; `mark` makes it another than other tests'.
fn layer(mark: &str) -> Vec<u8> {
    let busybox = std::fs::read(find("busybox").unwrap()).unwrap();
    let mut tree = tar::Builder::new(Vec::new());
    for (name, mode, bytes) in [("bin/busybox", 0o755, busybox.as_slice()), ("mark", 0o644, mark.as_bytes())] {
        let mut head = tar::Header::new_gnu();
        head.set_size(u64::try_from(bytes.len()).unwrap());
        head.set_mode(mode);
        head.set_cksum();
        tree.append_data(&mut head, name, bytes).unwrap();
    }
    for link in ["bin/sh", "bin/cat", "bin/sleep"] {
        let mut head = tar::Header::new_gnu();
        head.set_entry_type(tar::EntryType::Symlink);
        head.set_size(0);
        tree.append_link(&mut head, link, "busybox").unwrap();
    }
    for directory in ["tmp", "var/tmp", "proc", "dev", "sys", "etc", "workspace", "home/build", "run/callboard"] {
        let mut head = tar::Header::new_gnu();
        head.set_entry_type(tar::EntryType::Directory);
        head.set_mode(0o755);
        head.set_size(0);
        tree.append_data(&mut head, directory, std::io::empty()).unwrap();
    }
    tree.into_inner().unwrap()
}
