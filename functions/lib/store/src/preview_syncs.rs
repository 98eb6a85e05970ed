//! A host's sync: what the board has of its previews, what its reports change, and what those run that are to start.

use crate::claims::{Sealed, ms};
use crate::previews::{port, ports, state};
use crate::{Error, Store};
use protocol::pipeline::{Env, PreviewSpec};
use protocol::preview::{PreviewReport, PreviewSync};
use rules::Timing;
use rules::preview::{Held, Next, WaitingFor};
use sqlx::types::Json;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A host, as its token knows it.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// The worker token's id and digest.
    pub token: (&'a str, &'a [u8]),
    /// Its id.
    pub id: &'a str,
}

/// A preview that a host holds, or may take up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its id.
    pub id: Uuid,
    /// Its build.
    pub build: Uuid,
    /// What is decided on.
    pub held: Held,
}

/// What the board has for a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// The host's previews, but for destroyed ones that it did not name; and those that nobody has taken up and it named.
    pub previews: Vec<Known>,
    /// Of the builds that it named, those that this token still runs.
    pub running: Vec<Uuid>,
}

struct Row {
    running: Vec<Uuid>,
    id: Option<Uuid>,
    build_id: Option<Uuid>,
    status: Option<String>,
    version: Option<i64>,
    adopted: Option<bool>,
    placed: Option<bool>,
    room: Option<bool>,
    port: Option<i32>,
    waiting_for: Option<String>,
    message: Option<String>,
}

impl Row {
    fn known(self) -> Result<Option<Known>, Error> {
        let (Some(id), Some(build), Some(status)) = (self.id, self.build_id, self.status) else { return Ok(None) };
        let held = Held {
            state: state(status)?,
            version: self.version.unwrap_or(0),
            adopted: self.adopted == Some(true),
            placed: self.placed == Some(true),
            room: self.room == Some(true),
            port: self.port.map(port),
            waiting: self.waiting_for.map(|word| WaitingFor::parse(&word).unwrap_or(WaitingFor::Host)),
            message: self.message,
        };
        Ok(Some(Known { id, build, held }))
    }
}

/// Notes that a host has called, and reads what the board has for it. `None`: the token is unknown or revoked.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn note(store: &Store, host: Host<'_>, sync: &PreviewSync, timing: &Timing) -> Result<Option<Noted>, Error> {
    fail::fail_point!("sync.asked");
    let builds: Vec<Uuid> = sync.previews.iter().map(|report| report.build_id).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"with t as (
               select id from tokens where id = $1 and digest = $2 and kind = 'worker' and revoked_at is null
           ), noted as (
               insert into preview_hosts as h (token_id, host_id, first_port, last_port, synced_at)
               select t.id, $3, $4, $5, clock_timestamp() from t
               on conflict (token_id, host_id) do update
               set first_port = excluded.first_port, last_port = excluded.last_port, synced_at = excluded.synced_at
           ), mine as (
               select p.id from t join previews p on p.token_id = t.id and p.host_id = $3 and p.status <> 'destroyed'
               union
               select p.id from t join previews p on p.token_id = t.id
               where p.build_id = any ($6) and coalesce(p.host_id, $3) = $3
           ), known as (
               select p.id, p.build_id, p.status, p.version, p.host_id is not null as adopted, p.placed,
                   coalesce(c.taken, 0) < coalesce(q.previews_max, 0) as room, p.port::integer as port, p.waiting_for, p.message
               from mine join previews p on p.id = mine.id
               left join plans q on q.workspace_id = p.workspace_id and not q.lapsed
                   and plan_is_fresh(q.fetched_at, $7, clock_timestamp())
               left join preview_places c on c.workspace_id = p.workspace_id)
           select array(select b.id from builds b
                   where b.id = any ($6) and b.claimed_by = $1 and b.status = 'running') as "running!",
               k.id as "id?", k.build_id as "build_id?", k.status as "status?", k.version as "version?",
               k.adopted as "adopted?", k.placed as "placed?", k.room as "room?", k.port as "port?",
               k.waiting_for as "waiting_for?", k.message as "message?"
           from t left join known k on true order by k.id"#,
        host.token.0,
        host.token.1,
        host.id,
        i32::from(sync.ports.first),
        i32::from(sync.ports.last),
        &builds,
        ms(timing.billing_stale)
    )
    .fetch_all(&store.pool)
    .await?;
    fail::fail_point!("sync.noted");
    let Some(first) = rows.first() else { return Ok(None) };
    let running = first.running.clone();
    let previews: Result<Vec<_>, _> = rows.into_iter().map(Row::known).collect();
    Ok(Some(Noted { previews: previews?.into_iter().flatten().collect(), running }))
}

/// What a report changes of a preview.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The preview.
    pub id: Uuid,
    /// The version that it was decided on.
    pub version: i64,
    /// What it is to be.
    pub next: &'a Next,
    /// The report.
    pub report: &'a PreviewReport,
}

/// Writes what a host's reports change; those that were written, as they are now. A preview that was changed meanwhile stays as
/// it is, and the next sync will tell. No preview may be named twice.
///
/// # Errors
///
/// [`Error`] if the database fails. Nothing has been written.
pub async fn write(store: &Store, host: Host<'_>, changes: &[Change<'_>]) -> Result<Vec<Known>, Error> {
    fail::fail_point!("sync.decided");
    let column = |of: fn(&Change<'_>) -> Option<String>| changes.iter().map(of).collect::<Vec<_>>();
    let rows = sqlx::query_as!(
        Row,
        r#"select '{}'::uuid[] as "running!", p.id as "id?", p.build_id as "build_id?", p.status as "status?",
               p.version as "version?", true as "adopted?", p.placed as "placed?", false as "room?",
               p.port::integer as "port?", p.waiting_for as "waiting_for?", p.message as "message?"
           from sync_previews($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) p"#,
        host.token.0,
        host.id,
        &changes.iter().map(|change| change.id).collect::<Vec<_>>(),
        &changes.iter().map(|change| change.version).collect::<Vec<_>>(),
        &changes.iter().map(|change| change.next.state.as_str().to_owned()).collect::<Vec<_>>(),
        &column(|change| change.next.stage.map(|stage| stage.as_str().to_owned())) as _,
        &column(|change| change.next.message.clone()) as _,
        &column(|change| change.report.log_tail.clone()) as _,
        &column(|change| change.report.url.clone()) as _,
        &ports(changes.iter().map(|change| change.next.port)) as _,
        &column(|change| change.next.waiting.map(|word| word.as_str().to_owned())) as _,
        &changes.iter().map(|change| change.next.place).collect::<Vec<_>>(),
    )
    .fetch_all(&store.pool)
    .await?;
    fail::fail_point!("sync.written");
    let known: Result<Vec<_>, _> = rows.into_iter().map(Row::known).collect();
    Ok(known?.into_iter().flatten().collect())
}

/// Keeps what previews of a host last wrote, each with its build; no state changes, and so no version. A preview that is over has
/// had its last word.
///
/// # Errors
///
/// [`Error`] if the database fails. Nothing has been written.
pub async fn note_tails(store: &Store, host: Host<'_>, tails: &[(Uuid, &str)]) -> Result<(), Error> {
    let (builds, tails): (Vec<Uuid>, Vec<String>) =
        tails.iter().map(|(build, tail)| (*build, (*tail).to_owned())).unzip();
    sqlx::query!(
        r#"with said as (select * from unnest($3::uuid[], $4::text[]) s (build_id, tail)),
               locked as materialized (
                   select p.id, s.tail from previews p join said s on s.build_id = p.build_id
                   where p.token_id = $1 and p.host_id = $2 and p.status in ('starting', 'running')
                       and p.log_tail is distinct from s.tail
                   order by p.id for no key update of p)
           update previews p set log_tail = l.tail from locked l where p.id = l.id"#,
        host.token.0,
        host.id,
        &builds,
        &tails
    )
    .execute(&store.pool)
    .await?;
    Ok(())
}

/// What a preview runs; secrets still sealed.
#[derive(Debug)]
pub struct Run {
    /// Its build.
    pub build: Uuid,
    /// Its workspace.
    pub workspace: Uuid,
    /// What its pipeline says.
    pub spec: PreviewSpec,
    /// The build's variables.
    pub env: Env,
    /// The names of the secrets that the build's steps see.
    pub named: Vec<String>,
    /// The names of the secrets that registries are shown, by registry.
    pub registry_secrets: BTreeMap<String, String>,
    /// Those of either that there are, as they are stored.
    pub sealed: Vec<Sealed>,
}

/// Reads what those of `previews` run that this host is to start.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn runs(store: &Store, host: Host<'_>, previews: &[Uuid]) -> Result<Vec<Run>, Error> {
    let rows = sqlx::query!(
        r#"select p.build_id, p.workspace_id, s.preview as "spec!: Json<PreviewSpec>", s.env as "env: Json<Env>", s.secrets,
                   s.registry_secrets as "registry_secrets: Json<BTreeMap<String, String>>", (
                   select jsonb_agg(jsonb_build_object('name', k.name, 'key_id', k.key_id,
                       'nonce', encode(k.nonce, 'hex'), 'ciphertext', encode(k.ciphertext, 'hex')))
                   from secrets k
                   where k.workspace_id = p.workspace_id and k.name = any (secrets_named(s.secrets, null, s.registry_secrets))
               ) as "sealed: Json<Vec<Sealed>>"
           from previews p join build_specs s on s.build_id = p.build_id
           where p.id = any ($1) and p.token_id = $2 and p.host_id = $3 and p.status = 'starting' and p.placed"#,
        previews,
        host.token.0,
        host.id
    )
    .fetch_all(&store.pool)
    .await?;
    let runs = rows.into_iter().map(|row| Run {
        build: row.build_id,
        workspace: row.workspace_id,
        spec: row.spec.0,
        env: row.env.0,
        named: row.secrets,
        registry_secrets: row.registry_secrets.0,
        sealed: row.sealed.map(|sealed| sealed.0).unwrap_or_default(),
    });
    Ok(runs.collect())
}
