//! The function `migrate`, called by name: what a database lacks, what it refuses, whom it lets in.

use crate::Board;
use edge::auth::{WorkerToken, new_token};
use edge::{Rejection, Shell};
use migrate::{Answer, Asked, What, serve};
use protocol::admin::TokenKind;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use std::str::FromStr as _;
use store::migrations::Patience;
use uuid::Uuid;

mod busy;
mod indexes;

/// From this one on names say what contracts. There was no release before.
const FIRST_NAMED: u32 = 9;

/// Surroundings with a database of their own, in which there is nothing, beside the board's.
async fn empty(board: &Board) -> Shell {
    let name = format!("t_{}", Uuid::new_v4().simple());
    board.execute(&format!("create database {name}")).await;
    let options = PgConnectOptions::from_str(&board.shell.config.database_url).expect("an address").database(&name);
    let mut config = edge::Config::clone(&board.shell.config);
    config.database_url = options.to_url_lossy().to_string();
    Shell::new(config).expect("settings of the test itself")
}

async fn ask(shell: &Shell, what: What) -> Result<Answer, Rejection> {
    serve(shell, Asked { what, contract: false, operator_digest: None }).await
}

#[tokio::test]
async fn an_empty_database_gets_every_migration_once() {
    let shell = empty(&Board::new().await).await;
    let before = ask(&shell, What::List).await.expect("told");
    assert_eq!((before.applied.len(), before.done.len()), (0, 0));
    let versions: Vec<i64> = before.known.iter().map(|one| one.version).collect();
    let first = ask(&shell, What::Apply).await.expect("migrated");
    assert_eq!((&first.done, &first.applied), (&versions, &before.known));
    assert!(shell.store.is_ready().await.expect("it answers"));
    assert!(ask(&shell, What::Apply).await.expect("migrated").done.is_empty());
    shell.store.close().await;
}

#[tokio::test]
async fn a_database_that_a_newer_release_has_migrated_is_left_alone() {
    let board = Board::new().await;
    board
        .execute(
            "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
             values (9999, 'contract drop all', true, '', 0)",
        )
        .await;
    for what in [What::List, What::Apply] {
        let answer = ask(&board.shell, what).await.expect("told");
        assert_eq!((answer.unknown, answer.done), (Some(9999), vec![]));
        let last = answer.applied.last().expect("one");
        assert_eq!((last.version, last.is_contract), (9999, true));
    }
}

#[tokio::test]
async fn a_call_tells_what_it_gave_up_waiting_for_and_the_next_goes_on() {
    let shell = empty(&Board::new().await).await;
    store::migrations::apply_to(&shell.store, 11, Patience::default()).await.expect("migrated");
    let mut other = PgConnection::connect(&shell.config.database_url).await.expect("it answers");
    sqlx::raw_sql("begin; lock table builds in row exclusive mode").execute(&mut other).await.expect("locked");
    let told = ask(&shell, What::Apply).await.expect("told");
    let (stopped, applied) = (told.stopped.expect("the lock is held"), told.applied.len());
    assert!(stopped.contains("migration 12") && stopped.contains("builds"), "{stopped}");
    assert_eq!((told.done, applied, told.is_operator_known), (vec![], 11, None));
    other.close().await.expect("closed");
    let answer = ask(&shell, What::Apply).await.expect("migrated");
    assert_eq!((answer.stopped, answer.applied), (None, answer.known));
    shell.store.close().await;
}

#[tokio::test]
async fn an_operators_token_is_made_known_by_its_digest_until_it_is_revoked() {
    let board = Board::new().await;
    let token = new_token(TokenKind::Operator);
    let WorkerToken { id, digest } = WorkerToken::of(&token);
    let know = |digest: String| {
        serve(&board.shell, Asked { what: What::Apply, contract: false, operator_digest: Some(digest) })
    };
    for _ in 0..2 {
        assert_eq!(know(hex(&digest)).await.expect("made").is_operator_known, Some(true));
    }
    assert!(
        store::tokens::check(&board.shell.store, &id, &digest, TokenKind::Operator).await.expect("asked").is_some()
    );
    store::tokens::revoke(&board.shell.store, &id).await.expect("revoked");
    assert_eq!(know(hex(&digest)).await.expect("told").is_operator_known, Some(false));
    assert!(know("no digest".into()).await.is_err());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_migration_that_takes_something_away_says_so_in_its_name() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations");
    for entry in std::fs::read_dir(folder).expect("migrations") {
        let path = entry.expect("a file").path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let Some((number, description)) = name.split_once('_') else { continue };
        let text = std::fs::read_to_string(&path).expect("a migration").to_lowercase();
        let takes = ["drop table", "drop column", "drop function", "rename column", "rename to"];
        if number.parse::<u32>().is_ok_and(|number| number >= FIRST_NAMED)
            && takes.iter().any(|word| text.contains(word))
        {
            let wanted = "functions of the release before may need it: expand in one release, contract in a later one";
            assert!(rules::migrations::is_contract(description), "{name} is no NNNN_contract_…; {wanted}");
        }
    }
}
