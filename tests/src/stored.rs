//! What is really stored: statements of a test's own, and what must be so of all rows together.

use crate::Board;
use sqlx::{AssertSqlSafe, Row as _};

impl Board {
    /// A statement of the test's own.
    ///
    /// # Errors
    ///
    /// What the database says.
    pub async fn try_execute(&self, statement: &str) -> Result<u64, sqlx::Error> {
        let done = sqlx::query(AssertSqlSafe(statement.to_owned())).execute(&self.pool).await?;
        Ok(done.rows_affected())
    }

    /// A statement of the test's own that must succeed; how many rows it touched.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub async fn execute(&self, statement: &str) -> u64 {
        self.try_execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// The one number that a query of the test's own returns.
    ///
    /// # Panics
    ///
    /// If it returns none.
    pub async fn number(&self, query: &str) -> i64 {
        let row = sqlx::query(AssertSqlSafe(query.to_owned())).fetch_one(&self.pool).await;
        row.unwrap_or_else(|error| panic!("{query}: {error}")).get(0)
    }

    /// The texts that a query of the test's own returns, one a row.
    ///
    /// # Panics
    ///
    /// If the query fails.
    pub async fn texts(&self, query: &str) -> Vec<String> {
        let rows = sqlx::query(AssertSqlSafe(query.to_owned())).fetch_all(&self.pool).await;
        rows.unwrap_or_else(|error| panic!("{query}: {error}")).iter().map(|row| row.get(0)).collect()
    }

    /// The quoted words of a CHECK, in its order.
    pub async fn check_words(&self, constraint: &str) -> Vec<String> {
        let query = format!("select pg_get_constraintdef(oid) from pg_constraint where conname = '{constraint}'");
        let row = sqlx::query(AssertSqlSafe(query)).fetch_one(&self.pool).await.expect("a constraint of that name");
        let text: String = row.get(0);
        text.split('\'').skip(1).step_by(2).map(str::to_owned).collect()
    }

    /// What must be so at the end of every story: sums on workspaces are those of their builds and charges, queue heads
    /// are the oldest pending builds, logs have no holes.
    ///
    /// # Panics
    ///
    /// If one is not.
    pub async fn holds_together(&self) {
        for (what, query) in INVARIANTS {
            assert_eq!(self.number(query).await, 0, "{what}");
        }
    }
}

/// What must be so at any time when nothing is under way: words, and a query that counts what is not so.
pub const INVARIANTS: [(&str, &str); 12] = [
    (
        "running, reserved and pending are those of the builds",
        "select count(*) from workspaces w cross join lateral (
             select count(*) filter (where status = 'running') as running,
                 coalesce(sum(max_duration_seconds) filter (where status = 'running'), 0) as reserved,
                 count(*) filter (where status = 'pending') as pending
             from builds where workspace_id = w.id) b
         where (w.running, w.reserved_seconds, w.pending) is distinct from (b.running, b.reserved, b.pending)",
    ),
    (
        "a queue's head is its oldest pending build, and it counts them all",
        "select count(*) from queues q full join (
             select workspace_id, class_id, count(*) as pending, min(number) as head,
                 (array_agg(timeout_seconds order by number))[1] as seconds
             from builds where status = 'pending' group by workspace_id, class_id) b
         on b.workspace_id = q.workspace_id and b.class_id = q.class_id
         where (coalesce(q.pending, 0), q.head_number, q.head_seconds) is distinct from (coalesce(b.pending, 0), b.head, b.seconds)",
    ),
    (
        "a queue is open where the rule lets its head start, and only there",
        "select count(*) from queues q join workspaces w on w.id = q.workspace_id left join plans p on p.workspace_id = w.id
         where q.open <> (q.pending > 0 and not coalesce(p.lapsed, true) and queue_is_open(q.head_seconds, w.running,
             w.reserved_seconds, w.charged_seconds, p.seconds_per_month, p.build_seconds_max, p.running_max))",
    ),
    (
        "a workspace whose queue is closed while builds wait in it knows that one may be",
        "select count(*) from queues q join workspaces w on w.id = q.workspace_id
         where q.pending > 0 and not q.open and not w.has_closed",
    ),
    (
        "a workspace's row has its plan, and the board's order",
        "select count(*) from workspaces w cross join board b left join plans p on p.workspace_id = w.id and not p.lapsed
         where w.fair <> b.fair or (w.plan_seconds_per_month, w.plan_build_seconds_max, w.plan_running_max, w.plan_fetched_at)
             is distinct from (p.seconds_per_month, p.build_seconds_max, p.running_max, p.fetched_at)",
    ),
    (
        "under fair order a queue knows how many builds of its workspace run",
        "select count(*) from queues q join workspaces w on w.id = q.workspace_id cross join board b
         where q.running <> case when b.fair then w.running else 0 end",
    ),
    (
        "what is charged is the month's ledger",
        "select count(*) from workspaces w where charged_seconds is distinct from (
             select coalesce(sum(seconds), 0) from charges c where c.workspace_id = w.id and c.month = w.charged_month)",
    ),
    (
        "a started build that ended has one charge, the same as on its row",
        "select count(*) from builds b full join charges c on c.build_id = b.id
         where b.started_at is not null and b.ended_at is not null and b.charged_seconds is distinct from c.seconds",
    ),
    ("no charge without a started build", "select count(*) from charges c join builds b on b.id = c.build_id where b.started_at is null"),
    (
        "no workspace spent more than its plan",
        "select count(*) from workspaces w join plans p on p.workspace_id = w.id
         where w.charged_seconds + w.reserved_seconds > p.seconds_per_month",
    ),
    (
        "no build is reported on whose job nobody has fetched",
        "select count(*) from reports r join builds b on b.id = r.build_id where b.job_fetch_id is null",
    ),
    (
        "logs have no holes",
        "select count(*) from log_heads h where coalesce(discarded_from, next_seq) - 1 is distinct from (
             select count(*) from build_logs l where l.build_id = h.build_id)",
    ),
];
