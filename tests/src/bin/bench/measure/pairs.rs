//! Claim and complete: over HTTP, the same statements by pgbench, a bare pair by pgbench, and over HTTP combined.

use super::QUEUED;
use crate::board::Board;
use crate::figures::{Figures, as_f64};
use crate::options::Options;
use crate::pgbench;
use crate::postgres::Postgres;
use crate::server::Combine;
use crate::statements::{self, Script};
use crate::{load, seed};
use std::time::{Duration, Instant};

/// Connections, of workers or of pgbench, where each call is a statement round of its own.
const CLIENTS: usize = 16;
/// Connections where calls that wait are answered together.
const CLIENTS_COMBINED: usize = 64;
/// Where the board's statements were found out.
const SPOKEN: &str = "spoken";
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
        figures.note("http_pairs_per_s", self.http(Combine::Off, CLIENTS).await?);
        figures.note("own_sql_pairs_per_s", self.own().await?);
        figures.note("bare_pairs_per_s", self.bare().await?);
        figures.note("http_combined_pairs_per_s", self.http(Combine::On, CLIENTS_COMBINED).await?);
        Ok(())
    }

    async fn http(&self, combine: Combine, connections: usize) -> anyhow::Result<f64> {
        let board = Board::copy(self.postgres, QUEUED, "served", combine).await?;
        let done = load::pairs(&board.server, connections, self.span).await?;
        let ended = seed::ended(self.postgres, "served").await?;
        anyhow::ensure!(
            usize::try_from(ended)? == done.builds,
            "{} builds were completed, and {ended} have ended",
            done.builds
        );
        board.end().await?;
        Ok(as_f64(done.pairs) / self.span.as_secs_f64())
    }

    async fn own(&self) -> anyhow::Result<f64> {
        let rate = self.script(&self.own, SPOKEN).await?;
        let ended = seed::ended(self.postgres, "scripted").await? - seed::ended(self.postgres, SPOKEN).await?;
        seed::check(self.postgres, "scripted").await?;
        self.postgres.remove("scripted").await?;
        anyhow::ensure!(ended > 0, "pgbench ended no build: the statements were not those of a pair");
        rate(ended)
    }

    async fn bare(&self) -> anyhow::Result<f64> {
        let rate = self.script(&self.bare, BARE).await?;
        let ended = seed::bare_ended(self.postgres, "scripted").await?;
        self.postgres.remove("scripted").await?;
        rate(ended)
    }

    /// Runs a script over a copy of a database; what is returned makes a rate of how many pairs it ended.
    async fn script(
        &self,
        script: &Script,
        template: &str,
    ) -> anyhow::Result<impl Fn(i64) -> anyhow::Result<f64> + use<>> {
        let (postgres, database) = (self.postgres, "scripted");
        postgres.remove(database).await?;
        postgres.create(database, Some(template)).await?;
        postgres.settle(database).await?;
        let from = Instant::now();
        pgbench::run(postgres.dir(), &postgres.url(database), script, CLIENTS, self.span).await?;
        let seconds = from.elapsed().as_secs_f64();
        Ok(move |ended| Ok(as_f64(usize::try_from(ended)?) / seconds))
    }
}
