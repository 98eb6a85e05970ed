//! The rule on whose report is taken, and the statement that repeats it, in every case there is.

use crate::Board;
use crate::fetches::{Held, claimed_states};
use protocol::runner::Report;
use rules::Status;
use rules::report::{self, Before, Claimed, Decision};
use serde_json::json;
use store::reports::{self, Reported, Told};
use uuid::Uuid;

#[derive(Clone, Copy, Debug)]
struct Case {
    status: Status,
    fetched_by: Option<Uuid>,
    before: Option<Before>,
    is_lapsed: bool,
}

impl Case {
    /// Every one there can be, of a build that was claimed, and some that the board never lets be; `fetcher` is who reports.
    fn all(fetcher: Uuid) -> Vec<Self> {
        let mut all = Vec::new();
        for status in claimed_states() {
            for fetched_by in [None, Some(fetcher), Some(Uuid::new_v4())] {
                for before in [None, Some(Before::Same), Some(Before::Other)] {
                    all.extend([false, true].map(|is_lapsed| Self { status, fetched_by, before, is_lapsed }));
                }
            }
        }
        all
    }

    async fn on(self, board: &Board) -> Uuid {
        let held = Held::new(board).await;
        let build = held.build;
        if let Some(fetcher) = self.fetched_by {
            let _ = held.fetch(board, fetcher).await.ok();
        }
        if let Some(before) = self.before {
            let before = serde_json::to_string(&said(before == Before::Same)).expect("JSON");
            board.execute(&format!("insert into reports (build_id, report) values ('{build}', '{before}')")).await;
        }
        if self.is_lapsed {
            board.age(build, 61).await;
        }
        held.become_so(board, self.status).await;
        build
    }
}

/// The report of these tests, or another one.
fn said(is_same: bool) -> Report {
    serde_json::from_value(json!({ "outcome": if is_same { "failed" } else { "success" } })).expect("a report")
}

#[tokio::test]
async fn sql_takes_a_report_where_the_rule_does_and_nowhere_else_in_every_case_there_is() {
    let board = Board::new().await;
    let (fetcher, holder) = (Uuid::new_v4(), edge::WorkerToken::of(&board.worker).id);
    for case in Case::all(fetcher) {
        let build = case.on(&board).await;
        let got = reports::store(&board.shell.store, build, &holder, fetcher, &said(true)).await.expect("an answer");
        let decision = match got {
            Reported::Stored => Some(Decision::Store),
            Reported::Repeated => Some(Decision::Repeat),
            Reported::Ended(status, _) => (status == case.status).then_some(Decision::Ended),
            Reported::Stranger => Some(Decision::Stranger),
            Reported::Conflict => Some(Decision::Conflict),
            // What the rule stores and the guard does not.
            Reported::TryAgain | Reported::Unauthorized | Reported::NotFound => None,
        };
        let claimed = Claimed { status: case.status, fetched_by: case.fetched_by, before: case.before };
        assert_eq!(decision, Some(report::report(&claimed, &fetcher)), "{case:?}");
        let stored = case.before.map(|before| before == Before::Same).or((got == Reported::Stored).then_some(true));
        let like = stored.map(|is_same| serde_json::to_string(&said(is_same)).expect("JSON")).unwrap_or_default();
        let rows = format!(
            "select count(*) from reports where build_id = '{build}' and report::text::jsonb = nullif('{like}', '')::jsonb"
        );
        assert_eq!(board.number(&rows).await, i64::from(stored.is_some()), "{case:?}");
    }
}

#[tokio::test]
async fn in_no_case_does_a_token_that_is_not_the_claims_report_or_get_told() {
    let board = Board::new().await;
    let token = || async { edge::WorkerToken::of(&board.token(protocol::admin::TokenKind::Worker, None).await) };
    let (other, revoked) = (token().await, token().await);
    board.execute(&format!("update tokens set revoked_at = now() where id = '{}'", revoked.id)).await;
    let (fetcher, store, report) = (Uuid::new_v4(), &board.shell.store, said(true));
    for case in Case::all(fetcher) {
        let build = case.on(&board).await;
        let stored = || async { board.number("select count(*) from reports").await };
        let before = stored().await;
        let asked = |id| reports::store(store, build, id, fetcher, &report);
        assert!(matches!(asked(&other.id).await, Ok(Reported::NotFound)), "{case:?}");
        assert!(matches!(reports::told(store, build, other.parts()).await, Ok(Told::NotFound)), "{case:?}");
        board.execute(&format!("update builds set claimed_by = '{}' where id = '{build}'", revoked.id)).await;
        assert!(matches!(asked(&revoked.id).await, Ok(Reported::Unauthorized)), "{case:?}");
        assert!(matches!(reports::told(store, build, revoked.parts()).await, Ok(Told::Unauthorized)), "{case:?}");
        assert_eq!(stored().await, before, "{case:?}");
    }
}
