//! Workspaces as they are read, and the plans that are set for them. What a build adds and takes away is written by
//! [`crate::submissions`], [`crate::claims`] and [`crate::builds`].

use crate::columns::{count, signed};
use crate::{Error, Store};
use protocol::workspace::PlanLimits;
use rules::Seconds;
use rules::budget::{Plan, Usage};
use sqlx::PgConnection;
use uuid::Uuid;

/// A workspace's plan and what is used of it, the month's charge as of now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its name.
    pub slug: String,
    /// Its plan; `None` if it can't be read.
    pub plan: Option<Plan>,
    /// What is used of it.
    pub usage: Usage,
    /// How long its oldest pending build asks to run, if there is one.
    pub head: Option<Seconds>,
}

struct Row {
    slug: String,
    plan_seconds_per_month: Option<i32>,
    plan_build_seconds_max: Option<i32>,
    plan_running_max: Option<i32>,
    plan_pending_max: Option<i32>,
    charged_seconds: i32,
    reserved_seconds: i32,
    running: i32,
    pending: i32,
    head_seconds: Option<i32>,
}

impl Row {
    fn plan(&self) -> Option<Plan> {
        Some(Plan {
            seconds_per_month: Seconds(count(self.plan_seconds_per_month?)),
            build_seconds_max: Seconds(count(self.plan_build_seconds_max?)),
            running_max: count(self.plan_running_max?),
            pending_max: count(self.plan_pending_max?),
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
        let head = row.head_seconds.map(|seconds| Seconds(count(seconds)));
        Self { plan: row.plan(), usage, head, slug: row.slug }
    }
}

/// The rows of workspaces; a charge of an earlier month is none of this one's.
macro_rules! rows {
    ($which:literal $(, $argument:expr)*) => {
        sqlx::query_as!(
            Row,
            r#"select w.slug, w.plan_seconds_per_month, w.plan_build_seconds_max, w.plan_running_max, w.plan_pending_max,
                   case when w.charged_month >= month_of(clock_timestamp()) then w.charged_seconds else 0 end
                       as "charged_seconds!",
                   w.reserved_seconds, w.running, w.pending, w.head_seconds
               from workspaces w "# + $which
            $(, $argument)*
        )
    };
}

/// A workspace by id.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn standing(store: &Store, workspace: Uuid) -> Result<Option<Standing>, Error> {
    Ok(rows!("where w.id = $1", workspace).fetch_optional(&store.pool).await?.map(Standing::from))
}

/// A workspace by name.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn named(store: &Store, slug: &str) -> Result<Option<Standing>, Error> {
    Ok(rows!("where w.slug = $1", slug).fetch_optional(&store.pool).await?.map(Standing::from))
}

/// All workspaces, by name.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn list(store: &Store) -> Result<Vec<Standing>, Error> {
    Ok(rows!("order by w.slug").fetch_all(&store.pool).await?.into_iter().map(Standing::from).collect())
}

/// Makes a workspace without a plan. `false` if there is one of that name already.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn insert(conn: &mut PgConnection, slug: &str) -> Result<bool, Error> {
    let done = sqlx::query!("insert into workspaces (slug) values ($1) on conflict (slug) do nothing", slug);
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Sets a workspace's plan, and with it the copy that is in effect, in one statement. It binds new claims only: what
/// running builds have reserved stays. `false` if there is no such workspace. The limits must fit the columns.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn set_plan(conn: &mut PgConnection, slug: &str, limits: &PlanLimits) -> Result<bool, Error> {
    let done = sqlx::query!(
        "with changed as (
             update workspaces set plan_seconds_per_month = $2, plan_build_seconds_max = $3, plan_running_max = $4,
                 plan_pending_max = $5
             where slug = $1 returning id)
         insert into plans (workspace_id, seconds_per_month, build_seconds_max, running_max, pending_max)
         select id, $2, $3, $4, $5 from changed
         on conflict (workspace_id) do update
         set seconds_per_month = excluded.seconds_per_month, build_seconds_max = excluded.build_seconds_max,
             running_max = excluded.running_max, pending_max = excluded.pending_max, updated_at = clock_timestamp()",
        slug,
        signed(limits.minutes_per_month.saturating_mul(60)),
        signed(limits.build_seconds_max),
        signed(limits.running_max),
        signed(limits.pending_max)
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Takes a workspace's plan away: from now on it can't be read, so nothing is admitted or claimed. `false` if there is no
/// such workspace.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn clear_plan(store: &Store, slug: &str) -> Result<bool, Error> {
    let cleared = sqlx::query_scalar!(
        r#"with changed as (
               update workspaces set plan_seconds_per_month = null, plan_build_seconds_max = null,
                   plan_running_max = null, plan_pending_max = null
               where slug = $1 returning id),
           gone as (delete from plans p using changed c where p.workspace_id = c.id)
           select count(*) as "cleared!" from changed"#,
        slug
    );
    Ok(cleared.fetch_one(&store.pool).await? == 1)
}
