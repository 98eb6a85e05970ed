//! A real pgbouncer in transaction mode between a board and its server: each transaction gets another session.

use crate::Board;
use crate::skipped::skip;
use futures::future::join_all;
use http::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{Connection as _, Row as _};
use std::fs::{self, Permissions};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::str::FromStr as _;
use std::time::Duration;
use store::Statements;

/// Sessions on the server; the board has ten times as many connections.
const SESSIONS: u32 = 2;

struct Pooler {
    process: Child,
    _directory: tempfile::TempDir,
    url: String,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// The installed pgbouncer's version; `None`, and said so, if there is none.
fn version() -> Option<(u32, u32)> {
    let told = Command::new("pgbouncer").arg("--version").output().ok();
    let version = told.and_then(|told| {
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let (major, rest) = told.lines().next()?.rsplit(' ').next()?.split_once('.')?;
        Some((major.parse().ok()?, rest.split('.').next()?.parse().ok()?))
    });
    if version.is_none() {
        skip("pgbouncer", "pgbouncer is not installed: apt-get install pgbouncer");
    }
    version
}

impl Pooler {
    async fn before(board: &Board) -> Self {
        let server = PgConnectOptions::from_str(&board.shell.config.database_url).expect("an address");
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("readable for another user");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let (users, settings) = (directory.path().join("users"), directory.path().join("settings"));
        fs::write(&users, "\"callboard\" \"\"\n").expect("written");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = {SESSIONS}\n",
            server.get_port(),
            users.display()
        );
        fs::write(&settings, text).expect("written");
        let mut command = Command::new("pgbouncer");
        // It refuses to be root.
        if nix::unistd::geteuid().is_root() {
            command.args(["-u", "nobody"]);
        }
        let process = command.arg("-q").arg(&settings).stderr(Stdio::null()).spawn().expect("it starts");
        let url = callboard_tests::url(&server.port(port).ssl_mode(PgSslMode::Disable));
        let pooler = Self { process, _directory: directory, url };
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return pooler;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("pgbouncer does not listen");
    }
}

/// A board whose calls go through a pooler.
async fn pooled(statements: Statements) -> (Board, Pooler) {
    let mut board = Board::new().await;
    let pooler = Pooler::before(&board).await;
    board.reconnect(|config| {
        config.database_url.clone_from(&pooler.url);
        config.database_statements = statements;
    });
    (board, pooler)
}

#[tokio::test]
async fn builds_run_through_a_pooler_that_gives_each_transaction_another_session() {
    if version().is_none() {
        return;
    }
    let (board, _pooler) = pooled(Statements::Unnamed).await;
    let life = || async {
        board.submit().await;
        let build = board.claim().await.expect("as many builds as claims");
        let _ = board.work(&format!("builds/{build}/heartbeat"), &json!({})).await.ok();
        assert_eq!(board.send_logs(build, &[(1, "a"), (2, "b")]).await.status, 200);
        let report = json!({ "status": "success", "ran_ms": 1, "last_seq": 2 });
        assert_eq!(board.complete(build, &report).await.status, 200);
    };
    join_all((0..24).map(|_| life())).await;
    board.sweep().await;
    assert_eq!(board.number("select count(*) from builds where status = 'success'").await, 24);
    let sessions =
        "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'callboard'";
    assert!(board.number(sessions).await <= i64::from(SESSIONS), "the pooler's");
    let left = prepared(&board).await;
    assert_eq!(left, 0, "nothing is left in a session");
    board.holds_together().await;
}

/// How many prepared statements a session of the pooler has.
async fn prepared(board: &Board) -> i64 {
    let options = PgConnectOptions::from_str(&board.shell.config.database_url).expect("an address");
    let mut session = sqlx::PgConnection::connect_with(&options.extra_float_digits(None)).await.expect("a session");
    // As text: asking otherwise would prepare a statement.
    let rows = sqlx::raw_sql("select count(*)::text from pg_prepared_statements").fetch_one(&mut session).await;
    rows.expect("counted").get::<String, _>(0).parse().expect("a number")
}

/// Shows that the test above would fail without its setting.
#[tokio::test]
async fn named_statements_are_lost_in_a_pooler_that_does_not_keep_them() {
    let Some(version) = version() else { return };
    if version >= (1, 21) {
        return skip("pgbouncer", "pgbouncer keeps named statements since 1.21");
    }
    let (board, _pooler) = pooled(Statements::Named).await;
    let answers = join_all((0..24).map(|_| {
        let asked = json!({ "pipeline": "main" });
        let board = &board;
        async move { board.call(Method::POST, "/api/v1/builds", &board.api, &asked).await.status.as_u16() }
    }));
    let answers = answers.await;
    assert!(answers.iter().any(|status| *status >= 500), "{answers:?}");
}
