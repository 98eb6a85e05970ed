//! A claim and an end by themselves, beside the same served by the statements of many: in a random story both are tried at every step,
//! and must answer alike and leave the same rows behind.

use crate::Board;
use serde_json::json;
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

/// All that a claim or an end changes, but for instants and hints.
const STATE: &str = "select jsonb_build_array(
    (select jsonb_agg(jsonb_build_array(id, status, claimed_by, claimed_host, claimed_name, claim_id, max_duration_seconds, version, end_reason, error_message,
        charged_seconds, duration_ms, completed, last_seq, commit_sha, step_results, phase, started_at is null,
        lease_expires_at > now() + interval '30 s', ended_at is null) order by id) from builds),
    (select jsonb_agg(to_jsonb(q) - 'changed_at' order by workspace_id, class_id) from queues q),
    (select jsonb_agg(jsonb_build_array(slug, charged_month, charged_seconds, reserved_seconds, running, pending) order by slug)
     from workspaces),
    (select jsonb_agg(to_jsonb(c) - 'charged_at' order by build_id) from charges c),
    (select jsonb_agg(to_jsonb(p) - '{id,created_at,expires_at}'::text[] order by build_id) from previews p),
    (select jsonb_agg(to_jsonb(k) - 'seen_at' order by token_id, host_id, name) from workers k))::text";

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[usize::try_from(self.below(words.len() as u64)).expect("small")]
    }
}

/// What a call answered, and what it left behind.
async fn outcome(conn: &mut sqlx::PgConnection, call: &str) -> (Result<String, String>, String) {
    let answers = format!("select coalesce(jsonb_agg(to_jsonb(r) - 'deadline_in_ms'), '[]')::text from {call} r");
    let answered = sqlx::query(AssertSqlSafe(answers)).fetch_one(&mut *conn).await;
    let state = sqlx::query(AssertSqlSafe(STATE.to_owned())).fetch_one(&mut *conn).await;
    (
        answered.map(|row| row.get(0)).map_err(|error| error.to_string()),
        state.map_or_else(|error| error.to_string(), |row| row.get(0)),
    )
}

/// Tries both calls from the same state; the one by itself stays. A claim that took a build before is refused by itself, and its
/// caller asks as among others.
async fn alike(board: &Board, alone: &str, among_others: &str) -> String {
    let mut stays = alone;
    loop {
        let mut tx = board.pool.begin().await.expect("a transaction");
        let many = outcome(&mut tx, among_others).await;
        tx.rollback().await.expect("rolled back");
        let mut tx = board.pool.begin().await.expect("a transaction");
        let one = outcome(&mut tx, stays).await;
        if one.0.as_ref().is_err_and(|error| error.contains("builds_claim")) {
            assert!(many.0.is_ok_and(|answer| answer.contains("repeat") || answer.contains("ended")), "{alone}");
            stays = among_others;
            continue;
        }
        assert_eq!(one, many, "{alone}");
        tx.commit().await.expect("stored");
        return one.0.expect("the call answers");
    }
}

/// A story's worker tokens, and claims that were made.
struct Story {
    board: Board,
    apis: Vec<String>,
    tokens: Vec<(String, String)>,
    claims: Vec<Uuid>,
    held: Vec<(Uuid, usize)>,
    outcomes: Vec<String>,
}

impl Story {
    async fn begin() -> Self {
        let board = Board::new().await;
        let mut apis = vec![board.api.clone()];
        for (slug, plan) in [
            ("two-at-once", json!({ "minutes_per_month": 1000, "running_max": 2 })),
            ("an-hour", json!({ "minutes_per_month": 75, "running_max": 50 })),
            ("plenty", json!({ "minutes_per_month": 100_000, "running_max": 50 })),
        ] {
            apis.push(board.tenant(slug, plan).await);
        }
        for api in &apis {
            let mut spec = crate::scenario::pipeline();
            spec["requires"] = json!(["gpu"]);
            spec["timeout_seconds"] = json!(90);
            spec["preview"] = json!({ "commands": ["serve"], "port": 8080, "ttl_seconds": 3600 });
            spec["registry_secrets"] = json!({ "ghcr.io": "PULL" });
            let secret = json!({ "value": "me:pull" });
            let set = board.call(http::Method::PUT, "/api/v1/secrets/PULL", api, &secret).await;
            assert!(set.status.is_success(), "{}", set.body);
            board.pipeline(api, "gpu", &spec).await;
        }
        let limited = board.token(protocol::admin::TokenKind::Worker, None).await;
        board
            .execute(&format!(
                "update tokens set workspaces = array(select id from workspaces where slug like '%o%') where id = '{}'",
                edge::WorkerToken::of(&limited).id
            ))
            .await;
        let tokens = [board.worker.clone(), limited]
            .iter()
            .map(|token| edge::WorkerToken::of(token))
            .map(|token| (token.id.clone(), format!("\\x{}", hex(&token.digest))))
            .collect();
        Self { board, apis, tokens, claims: Vec::new(), held: Vec::new(), outcomes: Vec::new() }
    }

    async fn submit(&self, dice: &mut Dice) {
        let api = &self.apis[usize::try_from(dice.below(self.apis.len() as u64)).expect("small")];
        let body = json!({ "pipeline": dice.of(&["main", "main", "gpu"]) });
        let _ = self.board.call(http::Method::POST, "/api/v1/builds", api, &body).await;
    }

    async fn claim(&mut self, dice: &mut Dice) {
        let by = usize::try_from(dice.below(5) / 4).expect("small");
        let (id, digest) = &self.tokens[by];
        let digest = if dice.below(30) == 0 { "\\x00" } else { digest };
        let repeated = self.claims.last().filter(|_| dice.below(8) == 0);
        let claim = repeated.copied().unwrap_or_else(Uuid::new_v4);
        self.claims.push(claim);
        let labels = dice.of(&["{}", "{}", "{gpu}"]);
        let name = format!("w{labels}").replace(['{', '}'], "");
        let rest = "60000, 1800, 1::smallint, 900000";
        let answer = alike(
            &self.board,
            &format!("claim_build('{id}', '{digest}', '{claim}', '{name}', '1', 'h', '{{bubblewrap}}', '{labels}', {rest})"),
            &format!(
                "claim_builds('{id}', '{digest}', '{{{claim}}}', '{{{name}}}', '{{1}}', '{{h}}', '{{bubblewrap}}', '{labels}',
                     {rest}, '{{}}', '{{}}', null, '{{1}}')"
            ),
        )
        .await;
        let rows: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        for row in rows.as_array().expect("rows") {
            self.outcomes.push(row["outcome"].as_str().expect("an outcome").to_owned());
            if row["outcome"] == "claimed" {
                let carries = [!row["preview"].is_null(), !row["sealed"].is_null()];
                assert_eq!(carries, [row["registry_secrets"] != json!({}); 2], "{row}");
                let build: Uuid = row["build"].as_str().and_then(|id| id.parse().ok()).expect("an id");
                self.board.age(build, 10).await;
                self.held.push((build, by));
            }
        }
    }

    async fn end(&mut self, dice: &mut Dice) {
        if self.held.is_empty() {
            return;
        }
        let place = usize::try_from(dice.below(self.held.len() as u64)).expect("small");
        let (build, by) = self.held[place];
        let (id, digest) = &self.tokens[if dice.below(10) == 0 { 1 - by } else { by }];
        let (status, reason) =
            [("success", "null"), ("failed", "'step_failed'"), ("timed_out", "'deadline'"), ("cancelled", "null")]
                [usize::try_from(dice.below(4)).expect("small")];
        let (ran, last) = (dice.below(9000), dice.below(2));
        let lost = dice.of(&["true", "false"]);
        let answer = alike(
            &self.board,
            &format!(
                "end_build('{build}', '{status}', {reason}, 'm', '{id}', '{digest}', {ran}, {last}, {lost}, null, '[]')"
            ),
            &format!(
                "end_builds('completed', 0, '{{{build}}}', '{{{status}}}', array[{reason}], '{{m}}', '{{{id}}}', array['{digest}'::bytea],
                     '{{{ran}}}', '{{{last}}}', '{{{lost}}}', array[null], array['[]'::jsonb])"
            ),
        )
        .await;
        self.outcomes.push(if answer == "[]" { "kept" } else { status }.to_owned());
        if answer != "[]" {
            self.held.swap_remove(place);
        }
    }

    /// What changes under the claims' feet.
    async fn disturb(&self, dice: &mut Dice) {
        let change = dice.of(&[
            "update builds set cancel_requested_at = now(), cancel_reason = 'user' where status = 'running' and cancel_reason is null",
            "update builds set rules_version = 0 where id = (select id from builds where status = 'pending' limit 1)",
            "update plans set running_max = 3 - running_max where running_max between 1 and 2",
            "update plans set fetched_at = case when fetched_at is null then now() - interval '20 min' end where running_max = 50",
            "update workspaces set charged_seconds = 0, charged_month = (charged_month - interval '1 month')::date
             where slug = 'plenty' and charged_seconds = 0",
            "update board set fair = not fair",
            "delete from pipelines where slug = 'gpu' and (select count(*) from builds) > 60",
            "update workers set seen_at = seen_at - interval '16 s'",
            "select from end_pending((select workspace_id from queues where pending > 0 limit 1), null, 1, 'cancelled', 'user', 'm')",
        ]);
        self.board.execute(change).await;
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[tokio::test]
async fn a_call_by_itself_does_what_it_does_among_others() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 1..4 {
        let mut dice = Dice(seed);
        let mut story = Story::begin().await;
        for _ in 0..150 {
            match dice.below(12) {
                0..5 => story.submit(&mut dice).await,
                5..9 => story.claim(&mut dice).await,
                9..11 => story.end(&mut dice).await,
                _ => story.disturb(&mut dice).await,
            }
        }
        story.board.holds_together().await;
        if story.board.number("select count(*) from previews").await > 0 {
            story.outcomes.push("preview".to_owned());
        }
        seen.extend(story.outcomes);
    }
    for word in [
        "claimed",
        "repeat",
        "none",
        "unauthorized",
        "unverified",
        "success",
        "failed",
        "timed_out",
        "cancelled",
        "kept",
        "preview",
    ] {
        assert!(seen.contains(word), "no {word} in {seen:?}");
    }
}
