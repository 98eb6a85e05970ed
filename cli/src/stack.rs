//! `callboard up`, `demo` and `migrate`: the three that run here instead of asking a board.

use crate::args::{DemoArgs, MigrateArgs, UpArgs};
use crate::output::Output;
use crate::{secret, settings};
use localstack::{Database, DemoOptions, UpOptions, say};

/// `callboard up`.
///
/// # Errors
///
/// What is missing or taken, and how to mend it.
pub async fn up(args: UpArgs) -> anyhow::Result<u8> {
    localstack::log_to_stderr()?;
    let UpArgs { port, dir, no_worker, database_url, egress_allow, ca_bundle } = args;
    let given = database_url.map(|url| Database { url, source: "--database-url" });
    let database = given.or_else(|| {
        let url = settings::variable("DATABASE_URL").filter(|url| !url.is_empty())?;
        Some(Database { url, source: "DATABASE_URL of the environment" })
    });
    localstack::up(UpOptions { port, dir, no_worker, database, egress_allow, ca_bundle }).await?;
    Ok(0)
}

/// `callboard demo`.
///
/// # Errors
///
/// What is missing, and how to mend it.
pub async fn demo(args: DemoArgs, output: Output) -> anyhow::Result<u8> {
    let DemoArgs { path, kill_worker, secret, secret_file } = args;
    let secrets = secret::given(&secret, &secret_file, settings::variable)?;
    localstack::demo(DemoOptions { path, kill_worker, secrets, screen: output.screen }).await
}

/// `callboard migrate`.
///
/// # Errors
///
/// If the database or the file fails.
pub async fn migrate(args: MigrateArgs) -> anyhow::Result<u8> {
    localstack::migrate(&args.database_url, args.operator_token_file.as_deref()).await?;
    say::out("the database is at this release")?;
    if let Some(file) = args.operator_token_file {
        say::out(format_args!("the operator token is in {}", file.display()))?;
    }
    Ok(0)
}
