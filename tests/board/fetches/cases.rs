//! The rule on who gets a job, and the statement that repeats it, in every case there is.

use super::{Held, claimed_states};
use crate::Board;
use protocol::admin::TokenKind;
use rules::fetch::{self, Claimed, Decision};
use rules::{Status, Timestamp};
use store::fetches::{self, Fetched};
use uuid::Uuid;

/// A build whose job is asked for, and whose words for it the statement and the rule are to share.
#[derive(Clone, Copy, Debug)]
struct Case {
    status: Status,
    is_lapsed: bool,
    before: Option<Uuid>,
}

impl Case {
    /// Every one there can be, of a build that was claimed; `fetcher` is who asks.
    fn all(fetcher: Uuid) -> impl Iterator<Item = Self> {
        let befores = [None, Some(fetcher), Some(Uuid::new_v4())];
        claimed_states().flat_map(move |status| {
            [false, true]
                .into_iter()
                .flat_map(move |is_lapsed| befores.into_iter().map(move |before| Self { status, is_lapsed, before }))
        })
    }

    async fn on(self, board: &Board) -> Held {
        let held = Held::new(board).await;
        if let Some(before) = self.before {
            let _ = held.fetch(board, before).await.ok();
        }
        if self.is_lapsed {
            board.age(held.build, 61).await;
        }
        held.become_so(board, self.status).await;
        held
    }

    fn decided(self, fetcher: Uuid) -> Decision {
        let lease_expires_at = Timestamp(if self.is_lapsed { -1 } else { 1 });
        let claimed = Claimed { status: self.status, lease_expires_at, fetched_by: self.before };
        fetch::fetch(&claimed, &fetcher, Timestamp(0))
    }
}

#[tokio::test]
async fn sql_gives_a_job_where_the_rule_does_and_nowhere_else_in_every_case_there_is() {
    let board = Board::new().await;
    let (fetcher, holder) = (Uuid::new_v4(), edge::WorkerToken::of(&board.worker).id);
    for case in Case::all(fetcher) {
        let held = case.on(&board).await;
        let got = fetches::fetch(&board.shell.store, held.build, &holder, fetcher).await.expect("an answer");
        let said = match got {
            Fetched::Job(_) => Some(Decision::Job),
            Fetched::Ended(status, _) => (status == case.status).then_some(Decision::Ended),
            Fetched::Taken => Some(Decision::Taken),
            Fetched::Lapsed => Some(Decision::Lapsed),
            // What the rule gives and the guard does not.
            Fetched::TryAgain | Fetched::Unauthorized | Fetched::NotFound => None,
        };
        assert_eq!(said, Some(case.decided(fetcher)), "{case:?}");
        let has = format!("select count(*) from builds where id = '{}' and job_fetch_id = '{fetcher}'", held.build);
        let has_it = case.before == Some(fetcher) || said == Some(Decision::Job);
        assert_eq!(board.number(&has).await, i64::from(has_it), "{case:?}");
    }
}

#[tokio::test]
async fn in_no_case_does_a_token_that_is_not_the_claims_get_a_job() {
    let board = Board::new().await;
    let other = edge::WorkerToken::of(&board.token(TokenKind::Worker, None).await).id;
    let revoked = edge::WorkerToken::of(&board.token(TokenKind::Worker, None).await).id;
    board.execute(&format!("update tokens set revoked_at = now() where id = '{revoked}'")).await;
    let fetcher = Uuid::new_v4();
    for case in Case::all(fetcher) {
        let held = case.on(&board).await;
        let asked = |token| fetches::fetch(&board.shell.store, held.build, token, fetcher);
        assert!(matches!(asked(&other).await, Ok(Fetched::NotFound)), "{case:?}");
        assert!(matches!(asked(&revoked).await, Ok(Fetched::Unauthorized)), "{case:?}");
        board.execute(&format!("update builds set claimed_by = '{revoked}' where id = '{}'", held.build)).await;
        assert!(matches!(asked(&revoked).await, Ok(Fetched::Unauthorized)), "{case:?}");
    }
}
