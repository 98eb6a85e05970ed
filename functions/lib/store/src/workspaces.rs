//! Workspaces as they are read, and the plans that are set for them. What a build adds and takes away is written by
//! [`crate::submissions`], [`crate::claims`] and [`crate::builds`].

use crate::claims::ms;
use crate::columns::{count, signed};
use crate::{Error, Store, Transaction};
use protocol::workspace::PlanLimits;
use rules::budget::{Plan, PreviewLimits, Usage};
use rules::{Seconds, Timing};
use time::OffsetDateTime;
use uuid::Uuid;

/// A workspace's plan and what is used of it, the month's charge as of now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its name.
    pub slug: String,
    /// Its plan; `None` if it can't be read, or is stale.
    pub plan: Option<Plan>,
    /// As of when a billing service's plan counts; `None`: the plan comes from the plan tables.
    pub plan_fetched_at: Option<OffsetDateTime>,
    /// What is used of it.
    pub usage: Usage,
    /// Previews that have one of its places.
    pub previews: u32,
}

struct Row {
    slug: String,
    seconds_per_month: Option<i32>,
    build_seconds_max: Option<i32>,
    running_max: Option<i32>,
    pending_max: Option<i32>,
    previews_max: Option<i32>,
    preview_seconds_max: Option<i32>,
    plan_fetched_at: Option<OffsetDateTime>,
    plan_is_readable: bool,
    charged_seconds: i32,
    reserved_seconds: i32,
    running: i32,
    pending: i32,
    previews: i32,
}

impl Row {
    fn plan(&self) -> Option<Plan> {
        if !self.plan_is_readable {
            return None;
        }
        Some(Plan {
            seconds_per_month: Seconds(count(self.seconds_per_month?)),
            build_seconds_max: Seconds(count(self.build_seconds_max?)),
            running_max: count(self.running_max?),
            pending_max: count(self.pending_max?),
            previews: PreviewLimits {
                live_max: count(self.previews_max?),
                seconds_max: Seconds(count(self.preview_seconds_max?)),
            },
        })
    }
}

impl From<Row> for Standing {
    fn from(row: Row) -> Self {
        let usage = Usage {
            charged: Seconds(count(row.charged_seconds)),
            reserved: Seconds(count(row.reserved_seconds)),
            running: count(row.running),
            pending: count(row.pending),
        };
        let previews = count(row.previews);
        Self { plan: row.plan(), plan_fetched_at: row.plan_fetched_at, usage, previews, slug: row.slug }
    }
}

/// The rows of workspaces; a charge of an earlier month is none of this one's. `$1` is when a plan is stale.
macro_rules! rows {
    ($timing:expr, $which:literal $(, $argument:expr)*) => {
        sqlx::query_as!(
            Row,
            r#"select w.slug as "slug!", p.seconds_per_month as "seconds_per_month?",
                   p.build_seconds_max as "build_seconds_max?", p.running_max as "running_max?",
                   p.pending_max as "pending_max?", p.previews_max as "previews_max?",
                   p.preview_seconds_max as "preview_seconds_max?", p.fetched_at as "plan_fetched_at?",
                   not coalesce(p.lapsed, true) and plan_is_fresh(p.fetched_at, $1, clock_timestamp())
                       as "plan_is_readable!",
                   case when w.charged_month >= month_of(clock_timestamp()) then w.charged_seconds else 0 end
                       as "charged_seconds!",
                   w.reserved_seconds as "reserved_seconds!", w.running as "running!", w.pending as "pending!",
                   coalesce(v.taken, 0) as "previews!"
               from workspaces w left join plans p on p.workspace_id = w.id
                   left join preview_places v on v.workspace_id = w.id "# + $which,
            ms($timing.billing_stale)
            $(, $argument)*
        )
    };
}

/// A workspace by id.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn standing(store: &Store, workspace: Uuid, timing: &Timing) -> Result<Option<Standing>, Error> {
    Ok(rows!(timing, "where w.id = $2", workspace).fetch_optional(&store.pool).await?.map(Standing::from))
}

/// A workspace by name.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn named(store: &Store, slug: &str, timing: &Timing) -> Result<Option<Standing>, Error> {
    Ok(rows!(timing, "where w.slug = $2", slug).fetch_optional(&store.pool).await?.map(Standing::from))
}

/// All workspaces, by name.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn list(store: &Store, timing: &Timing) -> Result<Vec<Standing>, Error> {
    Ok(rows!(timing, "order by w.slug").fetch_all(&store.pool).await?.into_iter().map(Standing::from).collect())
}

/// Makes a workspace without a plan. `false` if there is one of that name already.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn insert(tx: &mut Transaction, slug: &str) -> Result<bool, Error> {
    let done = sqlx::query!("insert into workspaces (slug) values ($1) on conflict (slug) do nothing", slug);
    Ok(done.execute(tx).await?.rows_affected() == 1)
}

/// Sets a workspace's plan. It binds new claims only: what running builds have reserved stays. `false` if there is no such
/// workspace. The limits must fit the columns.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn set_plan(tx: &mut Transaction, slug: &str, limits: &PlanLimits) -> Result<bool, Error> {
    let done = sqlx::query!(
        "with locked as (select id from workspaces where slug = $1 for no key update)
         insert into plans (workspace_id, seconds_per_month, build_seconds_max, running_max, pending_max, previews_max,
             preview_seconds_max)
         select id, $2, $3, $4, $5, $6, $7 from locked
         on conflict (workspace_id) do update
         set seconds_per_month = excluded.seconds_per_month, build_seconds_max = excluded.build_seconds_max,
             running_max = excluded.running_max, pending_max = excluded.pending_max,
             previews_max = excluded.previews_max, preview_seconds_max = excluded.preview_seconds_max,
             updated_at = clock_timestamp(), fetched_at = null, lapsed = false",
        slug,
        signed(limits.minutes_per_month.saturating_mul(60)),
        signed(limits.build_seconds_max),
        signed(limits.running_max),
        signed(limits.pending_max),
        signed(limits.previews_max),
        signed(limits.preview_seconds_max)
    );
    Ok(done.execute(tx).await?.rows_affected() == 1)
}

/// Takes a workspace's plan away: from now on it can't be read, so nothing is admitted or claimed. `false` if there is no
/// such workspace.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn clear_plan(store: &Store, slug: &str) -> Result<bool, Error> {
    let cleared = sqlx::query_scalar!(
        r#"with locked as (select id from workspaces where slug = $1 for no key update),
           gone as (delete from plans p using locked l where p.workspace_id = l.id)
           select count(*) as "cleared!" from locked"#,
        slug
    );
    Ok(cleared.fetch_one(&store.pool).await? == 1)
}
