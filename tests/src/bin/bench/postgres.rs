//! A server of the benchmark's own, as safe as Postgres is by default: fsync and synchronous_commit are on.

use anyhow::Context as _;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

/// What is set besides the defaults. No checkpoint begins within a measure, and the log is such that the statements of a
/// call can be read from it.
const SETTINGS: [(&str, &str); 6] = [
    ("shared_preload_libraries", "pg_stat_statements"),
    ("max_connections", "200"),
    ("max_wal_size", "16GB"),
    ("checkpoint_timeout", "1h"),
    ("log_line_prefix", "%a|"),
    ("log_checkpoints", "off"),
];

/// A running server; stopped, and its directory removed, when dropped.
pub struct Postgres {
    server: localstack::postgres::Postgres,
    dir: tempfile::TempDir,
}

impl Postgres {
    /// Starts one in a temporary directory.
    pub async fn start() -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("callboard-bench.").tempdir()?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711))?;
        let server = localstack::postgres::Postgres::start(dir.path()).await?;
        let mut admin = PgConnectOptions::from_str(server.url())?.connect().await?;
        for (name, value) in SETTINGS {
            execute(&mut admin, &format!("alter system set {name} = '{value}'")).await?;
        }
        drop(admin);
        server.stop().await;
        Ok(Self { server: localstack::postgres::Postgres::start(dir.path()).await?, dir })
    }

    /// A directory for what belongs to the run.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The address of one of its databases.
    pub fn url(&self, database: &str) -> String {
        let server = self.server.url().rsplit_once('/').map_or("", |(server, _)| server);
        format!("{server}/{database}")
    }

    /// A connection to one of its databases.
    pub async fn connect(&self, database: &str) -> anyhow::Result<PgConnection> {
        connect(&self.url(database)).await
    }

    /// Makes a database: a copy of `template`, or an empty one.
    pub async fn create(&self, database: &str, template: Option<&str>) -> anyhow::Result<()> {
        let mut admin = self.connect("postgres").await?;
        let copy = template.map(|template| format!(" template {template} strategy file_copy")).unwrap_or_default();
        execute(&mut admin, &format!("create database {database}{copy}")).await
    }

    /// Whether there is such a database.
    pub async fn has(&self, database: &str) -> anyhow::Result<bool> {
        let count = format!("select count(*) from pg_database where datname = '{database}'");
        Ok(number(&mut self.connect("postgres").await?, &count).await? == 1)
    }

    /// Removes a database.
    pub async fn remove(&self, database: &str) -> anyhow::Result<()> {
        let mut admin = self.connect("postgres").await?;
        execute(&mut admin, &format!("drop database if exists {database} with (force)")).await
    }

    /// Leaves nothing for the next measure to pay: dead rows, statistics, dirty pages.
    pub async fn settle(&self, database: &str) -> anyhow::Result<()> {
        let mut conn = self.connect(database).await?;
        for statement in ["vacuum analyze", "checkpoint"] {
            execute(&mut conn, statement).await?;
        }
        Ok(())
    }

    /// What the server has written to its log.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(self.dir.path().join("postgres.log"))?).into_owned())
    }

    /// The process that all others of the server are children of.
    pub fn pid(&self) -> anyhow::Result<i32> {
        let text = fs::read_to_string(self.data().join("postmaster.pid"))?;
        text.lines().next().and_then(|line| line.trim().parse().ok()).context("postmaster.pid holds no number")
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("postgres")
    }
}

/// A connection to a database, without the limits that calls have: a million rows take their time.
pub async fn connect(url: &str) -> anyhow::Result<PgConnection> {
    let unlimited =
        ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"].map(|name| (name, "0"));
    let options = PgConnectOptions::from_str(url)?.application_name("bench").options(unlimited);
    Ok(options.disable_statement_logging().connect().await?)
}

/// Runs statements of the benchmark's own.
pub async fn execute(conn: &mut PgConnection, statements: &str) -> anyhow::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(conn).await.with_context(|| statements.to_owned())?;
    Ok(())
}

/// The one number that a query of the benchmark's own returns.
pub async fn number(conn: &mut PgConnection, query: &str) -> anyhow::Result<i64> {
    let row = sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(conn).await;
    row.with_context(|| query.to_owned())
}
