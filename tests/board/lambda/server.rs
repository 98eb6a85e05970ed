//! A Postgres server of the test's own, with a certificate, and a user that gets in by password and TLS only.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// Who gets in, and how.
const RULES: &str = "hostssl all functions 127.0.0.1/32 scram-sha-256
host all functions all reject
host all all 127.0.0.1/32 trust";

pub(super) struct Server {
    process: Child,
    url: String,
    /// The authority that signed its certificate.
    pub(super) ca: String,
}

/// A certificate of 127.0.0.1, its key, and its authority's.
pub(super) fn certificate() -> [String; 3] {
    let mut params = CertificateParams::new(Vec::new()).expect("an authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (ca_key, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let ca = params.self_signed(&ca_key).expect("signed").pem();
    let issuer = Issuer::new(params, ca_key);
    let server = CertificateParams::new(vec!["127.0.0.1".into()]).expect("a server").signed_by(&key, &issuer);
    [server.expect("signed").pem(), key.serialize_pem(), ca]
}

impl Server {
    /// A server with every migration, that lasts as long as this.
    pub(super) async fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/postgres");
        let told = "echo \"$CALLBOARD_TEST_POSTGRES\"; exec cat >/dev/null";
        let mut process = Command::new(script)
            .args(["sh", "-c", told])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut url = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut url).expect("its address");
        let [certificate, key, ca] = certificate();
        let server = Self { process, url: url.trim().to_owned(), ca };
        let store = store::Store::connect_lazy(&server.url, 1).expect("an address");
        store::migrations::apply(&store).await.expect("migrations apply");
        server.write("server.crt", &certificate).await;
        server.write("server.key", &key).await;
        server.write("pg_hba.conf", RULES).await;
        server.execute("create role functions login; grant all on all tables in schema public to functions").await;
        server.execute("alter system set ssl = on").await;
        server.execute("select pg_reload_conf()").await;
        server
    }

    /// Its address for the functions, without a password.
    pub(super) fn url(&self) -> String {
        self.url.replacen("callboard@", "functions@", 1)
    }

    pub(super) async fn set_password(&self, password: &str) {
        self.execute(&format!("alter role functions password '{password}'")).await;
    }

    /// Ends what the functions have open.
    pub(super) async fn disconnect(&self) {
        self.execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = 'functions'").await;
    }

    /// Writes a file that only the server reads.
    async fn write(&self, file: &str, text: &str) {
        let lines = text.trim_end().replace('\n', "', '");
        let program = format!("umask 077; cat >{file}.new; mv {file}.new {file}");
        self.execute(&format!("copy (select unnest(array['{lines}'])) to program '{program}'")).await;
    }

    async fn execute(&self, statements: &str) {
        let mut admin = PgConnection::connect(&self.url).await.expect("it answers");
        sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))
            .execute(&mut admin)
            .await
            .expect("a statement of the test itself");
        admin.close().await.expect("closed");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
