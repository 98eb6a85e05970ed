//! Claim and complete: over HTTP, the same statements by pgbench, a bare pair by pgbench, and over HTTP combined.

use super::QUEUED;
use crate::board::Board;
use crate::figures::{Figures, as_f64};
use crate::options::Options;
use crate::pgbench;
use crate::postgres::Postgres;
use crate::server::Combine;
use crate::statements::{self, Script};
use crate::{cpu, crowd, seed};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

/// Connections, of workers or of pgbench, where each call is a statement round of its own.
const CLIENTS: usize = 16;
/// Connections where calls that wait are answered together.
const CLIENTS_COMBINED: usize = 64;
/// Where the board's statements were found out.
const SPOKEN: &str = "spoken";
/// The copy that pgbench works on.
const SCRIPTED: &str = "scripted";
const BARE: &str = "bare";
const BARE_PAIR: &str = include_str!("../../../../bench/bare_pair.sql");

/// What the measures of this part share.
pub struct Pairs<'a> {
    postgres: &'a Postgres,
    own: Script,
    bare: Script,
    span: Duration,
}

impl<'a> Pairs<'a> {
    /// Finds the board's statements out, and makes the table for the bare pair.
    pub async fn prepare(postgres: &'a Postgres, options: &Options) -> anyhow::Result<Self> {
        let own = statements::pair(postgres, QUEUED, SPOKEN).await?;
        let bare = Script { text: BARE_PAIR.to_owned(), variables: vec![("id".into(), "0".into())] };
        seed::bare(postgres, BARE, options.queued()).await?;
        postgres.settle(BARE).await?;
        Ok(Self { postgres, own, bare, span: options.span() })
    }

    /// One of each.
    pub async fn measure(&self, figures: &mut Figures) -> anyhow::Result<()> {
        let http = self.http(Combine::Off, CLIENTS).await?;
        figures.note("http_pairs_per_s", http.per_second);
        figures.note("http_server_us_per_pair", http.server_us);
        figures.note("http_postgres_us_per_pair", http.postgres_us);
        figures.note("http_client_us_per_pair", http.client_us);
        let own = self.own().await?;
        figures.note("own_sql_pairs_per_s", own.per_second);
        figures.note("own_sql_postgres_us_per_pair", own.postgres_us);
        let bare = self.bare().await?;
        figures.note("bare_pairs_per_s", bare.per_second);
        figures.note("bare_postgres_us_per_pair", bare.postgres_us);
        let combined = self.http(Combine::On, CLIENTS_COMBINED).await?;
        figures.note("http_combined_pairs_per_s", combined.per_second);
        figures.note("http_combined_server_us_per_pair", combined.server_us);
        figures.note("http_combined_postgres_us_per_pair", combined.postgres_us);
        figures.note("http_combined_client_us_per_pair", combined.client_us);
        Ok(())
    }

    async fn http(&self, combine: Combine, connections: usize) -> anyhow::Result<Speed> {
        let board = Board::copy(self.postgres, QUEUED, "served", combine).await?;
        let pids = [board.server.pid()?, i32::try_from(std::process::id())?];
        let used = || anyhow::Ok([cpu::of_tree(self.postgres.pid()?)?, cpu::of(pids[0])?, cpu::of(pids[1])?]);
        let before = used()?;
        let (address, token, span) = (board.server.address, board.server.worker.clone(), self.span);
        // Its thread waits for sockets; this one hears signals.
        let done = spawn_blocking(move || crowd::pairs(address, &token, connections, span)).await??;
        let after = used()?;
        let ended = usize::try_from(seed::ended(self.postgres, "served").await?)?;
        anyhow::ensure!(ended == done.builds, "{} builds were completed, and {ended} have ended", done.builds);
        board.end().await?;
        Ok(Speed {
            per_second: as_f64(done.pairs) / self.span.as_secs_f64(),
            postgres_us: (after[0] - before[0]) * 1e6 / as_f64(ended),
            server_us: (after[1] - before[1]) * 1e6 / as_f64(ended),
            client_us: (after[2] - before[2]) * 1e6 / as_f64(ended),
        })
    }

    async fn own(&self) -> anyhow::Result<Speed> {
        let ran = self.script(&self.own, SPOKEN).await?;
        let ended = seed::ended(self.postgres, SCRIPTED).await? - seed::ended(self.postgres, SPOKEN).await?;
        seed::check(self.postgres, SCRIPTED).await?;
        anyhow::ensure!(ended > 0, "pgbench ended no build: the statements were not those of a pair");
        ran.speed(ended)
    }

    async fn bare(&self) -> anyhow::Result<Speed> {
        let ran = self.script(&self.bare, BARE).await?;
        ran.speed(seed::bare_ended(self.postgres, SCRIPTED).await?)
    }

    /// Runs a script over a copy of a database. The caller counts what it did.
    async fn script(&self, script: &Script, template: &str) -> anyhow::Result<Ran> {
        let postgres = self.postgres;
        postgres.remove(SCRIPTED).await?;
        postgres.create(SCRIPTED, Some(template)).await?;
        postgres.settle(SCRIPTED).await?;
        let (before, from) = (cpu::of_tree(postgres.pid()?)?, Instant::now());
        pgbench::run(postgres.dir(), &postgres.url(SCRIPTED), script, CLIENTS, self.span).await?;
        let seconds = from.elapsed().as_secs_f64();
        Ok(Ran { seconds, postgres_seconds: cpu::of_tree(postgres.pid()?)? - before })
    }
}

/// How fast pairs were, and what one took of the processors.
struct Speed {
    per_second: f64,
    postgres_us: f64,
    server_us: f64,
    client_us: f64,
}

/// How long a script ran, and what it took of the processors.
struct Ran {
    seconds: f64,
    postgres_seconds: f64,
}

impl Ran {
    fn speed(&self, pairs: i64) -> anyhow::Result<Speed> {
        let pairs = as_f64(usize::try_from(pairs)?);
        let postgres_us = self.postgres_seconds * 1e6 / pairs;
        Ok(Speed { per_second: pairs / self.seconds, postgres_us, server_us: 0.0, client_us: 0.0 })
    }
}
