//! What is in a board's database before it is measured. All that the benchmark knows of tables is here and in `tests/bench`.

use crate::postgres::{Postgres, execute, number};
use edge::auth::{WorkerToken, new_token};
use protocol::admin::TokenKind;
use protocol::workspace::PlanLimits;
use sqlx::PgConnection;
use store::Store;
use store::tokens::NewToken;

/// How many tenants a board has.
pub const WORKSPACES: u32 = 64;
/// All of them, as a pattern.
pub const EVERY: &str = "tenant-%";
/// One that never gets a worker: its plan lets none of its builds run.
pub const SKIPPED: &str = "skipped";

/// The column in which a claim's statement says which build it took.
pub const CLAIMED: &str = "build";
/// The table whose rows heartbeats write.
pub const BEATEN: &str = "builds";
/// How rows are given to the table beside that of the logs.
pub const COPY_LOGS: &str = "copy log_copies (build_id, seq, step, stream, at_ms, content) from stdin (format binary)";

const PENDING: &str = include_str!("../../../bench/pending.sql");
const FINISHED: &str = include_str!("../../../bench/finished.sql");
const EXPIRED_PREVIEWS: &str = include_str!("../../../bench/expired.sql");
const BARE_JOBS: &str = include_str!("../../../bench/bare_jobs.sql");
const LOG_COPIES: &str = include_str!("../../../bench/log_copies.sql");
const ENDED: &str = "select count(*) from builds where ended_at is not null";
const BARE_ENDED: &str = "select count(*) from jobs where status = 'success'";
const CHARGES: &str = "select count(*) from charges";

/// Makes a database with every migration, its tenants, and one that is skipped.
pub async fn board(postgres: &Postgres, database: &str) -> anyhow::Result<()> {
    postgres.create(database, None).await?;
    let store = Store::connect_lazy(&postgres.url(database), 1)?;
    store::migrations::apply(&store).await?;
    for tenant in 0..WORKSPACES {
        workspace(&store, &format!("tenant-{tenant:02}"), 100).await?;
    }
    workspace(&store, SKIPPED, 0).await?;
    let WorkerToken { id, digest } = WorkerToken::of(&new_token(TokenKind::Worker));
    store::tokens::insert(&store, token(&id, &digest, TokenKind::Worker, None)).await?;
    store.close().await;
    let mut conn = postgres.connect(database).await?;
    execute(&mut conn, "create extension pg_stat_statements").await?;
    execute(&mut conn, LOG_COPIES).await
}

async fn workspace(store: &Store, slug: &str, running_max: u32) -> anyhow::Result<()> {
    let limits = PlanLimits {
        minutes_per_month: 30_000_000,
        build_seconds_max: 1800,
        running_max,
        pending_max: 2_000_000,
        previews_max: 4,
        preview_seconds_max: 86_400,
    };
    let mut tx = store.begin().await?;
    store::workspaces::insert(&mut tx, slug).await?;
    store::workspaces::set_plan(&mut tx, slug, &limits).await?;
    tx.commit().await?;
    let WorkerToken { id, digest } = WorkerToken::of(&new_token(TokenKind::Api));
    store::tokens::insert(store, token(&id, &digest, TokenKind::Api, Some(slug))).await?;
    let known = store::tokens::check(store, &id, &digest, TokenKind::Api).await?;
    let spec = serde_json::from_value(callboard_tests::scenario::pipeline())?;
    store::pipelines::put(store, known.flatten().unwrap_or_default(), "main", &spec).await?;
    Ok(())
}

fn token<'a>(id: &'a str, digest: &'a [u8], kind: TokenKind, workspace: Option<&'a str>) -> NewToken<'a> {
    NewToken { id, digest, kind, workspace, workspaces: None, name: "seed" }
}

/// Adds builds that wait, in turns to the workspaces like `workspaces`.
pub async fn pending(postgres: &Postgres, database: &str, workspaces: &str, builds: u32) -> anyhow::Result<()> {
    fill(&mut postgres.connect(database).await?, PENDING, workspaces, builds).await
}

/// Adds builds that have succeeded, in turns to all tenants.
pub async fn finished(postgres: &Postgres, database: &str, builds: u32) -> anyhow::Result<()> {
    fill(&mut postgres.connect(database).await?, FINISHED, EVERY, builds).await
}

/// Adds builds that have succeeded, each with a preview that runs and whose time is over.
pub async fn expired(postgres: &Postgres, database: &str, previews: u32) -> anyhow::Result<()> {
    finished(postgres, database, previews).await?;
    fill(&mut postgres.connect(database).await?, EXPIRED_PREVIEWS, EVERY, previews).await
}

/// Makes a plain table of jobs.
pub async fn bare(postgres: &Postgres, database: &str, jobs: u32) -> anyhow::Result<()> {
    postgres.create(database, None).await?;
    fill(&mut postgres.connect(database).await?, BARE_JOBS, "", jobs).await
}

/// The seed's own statements keep what foreign keys and triggers would check a million times.
async fn fill(conn: &mut PgConnection, statements: &str, workspaces: &str, builds: u32) -> anyhow::Result<()> {
    let rules = rules::runnable::RULES_VERSION;
    let settings = format!(
        "set session_replication_role = replica; set bench.workspaces = '{workspaces}'; set bench.builds = '{builds}';
         set bench.rules_version = '{rules}';"
    );
    execute(conn, &settings).await?;
    execute(conn, statements).await
}

/// How many builds have ended.
pub async fn ended(postgres: &Postgres, database: &str) -> anyhow::Result<i64> {
    number(&mut postgres.connect(database).await?, ENDED).await
}

/// How many jobs of the plain table have ended.
pub async fn bare_ended(postgres: &Postgres, database: &str) -> anyhow::Result<i64> {
    number(&mut postgres.connect(database).await?, BARE_ENDED).await
}

/// What must be so after every measure: what the tests check, and one ledger row for each build that ended.
pub async fn check(postgres: &Postgres, database: &str) -> anyhow::Result<()> {
    let mut conn = postgres.connect(database).await?;
    for (what, query) in callboard_tests::stored::INVARIANTS {
        let broken = number(&mut conn, query).await?;
        anyhow::ensure!(broken == 0, "{database}: not so: {what} ({broken} times)");
    }
    let (ended, charges) = (number(&mut conn, ENDED).await?, number(&mut conn, CHARGES).await?);
    anyhow::ensure!(ended == charges, "{database}: {ended} builds ended, and the ledger has {charges} rows");
    Ok(())
}
