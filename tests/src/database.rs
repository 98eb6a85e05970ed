//! A fresh database for each test: a clone of one that has all migrations.

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use std::str::FromStr as _;
use uuid::Uuid;

/// The database that every test's database is cloned from.
const TEMPLATE: &str = "callboard_template";
/// Of all tests on one server, one at a time makes the template or a clone of it.
const TEMPLATE_LOCK: i64 = 0x63_616c_6c62;

/// The server's address, from `CALLBOARD_TEST_POSTGRES`.
fn server() -> PgConnectOptions {
    let url = std::env::var("CALLBOARD_TEST_POSTGRES")
        .expect("set CALLBOARD_TEST_POSTGRES to the address of a Postgres server for tests, or use ./tests/run");
    PgConnectOptions::from_str(&url).expect("CALLBOARD_TEST_POSTGRES is the address of a Postgres server")
}

/// A fresh database with all migrations.
pub(crate) async fn database() -> PgConnectOptions {
    let mut admin = PgConnection::connect_with(&server()).await.expect("the test server answers");
    execute(&mut admin, &format!("select pg_advisory_lock({TEMPLATE_LOCK})")).await;
    make_template(&mut admin).await;
    let name = format!("t_{}", Uuid::new_v4().simple());
    execute(&mut admin, &format!("create database {name} template {TEMPLATE}")).await;
    admin.close().await.expect("closing");
    server().database(&name)
}

async fn make_template(admin: &mut PgConnection) {
    let exists = sqlx::query_scalar::<_, bool>(AssertSqlSafe(format!(
        "select exists (select from pg_database where datname = '{TEMPLATE}')"
    )));
    if exists.fetch_one(&mut *admin).await.expect("the test server answers") {
        return;
    }
    let making = format!("{TEMPLATE}_making");
    execute(admin, &format!("drop database if exists {making}")).await;
    execute(admin, &format!("create database {making}")).await;
    let store = store::Store::connect_lazy(&url(&server().database(&making)), 1).expect("an address");
    store::migrations::apply(&store).await.expect("migrations apply");
    store.close().await;
    execute(admin, &format!("alter database {making} rename to {TEMPLATE}")).await;
}

/// As it is written in settings.
#[must_use]
pub fn url(options: &PgConnectOptions) -> String {
    use sqlx::ConnectOptions as _;
    options.to_url_lossy().to_string()
}

async fn execute(conn: &mut PgConnection, statement: &str) {
    sqlx::query(AssertSqlSafe(statement.to_owned())).execute(conn).await.expect("a statement of the test itself");
}
