//! The invariants of previews in the schema, and its words.

use super::{FakeHost, board, destroy, running, succeeded};
use crate::database::refused;
use rules::preview::{Actor, Stage, State, WaitingFor};

#[tokio::test]
async fn every_check_of_a_preview_refuses_what_breaks_it() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let live = running(&board, &mut host).await;
    let starting = succeeded(&board).await;
    for (build, change, name) in [
        (starting, "status = 'paused'", "previews_status_known"),
        (starting, "status = 'failed', waiting_for = null", "previews_failed_has_a_stage"),
        (starting, "stage = 'start'", "previews_failed_has_a_stage"),
        (starting, "status = 'failed', waiting_for = null, stage = 'mood'", "previews_stage_known"),
        (starting, "waiting_for = 'godot'", "previews_waiting_for_known"),
        (starting, "status = 'destroying'", "previews_wait_only_while_starting"),
        (starting, "status = 'running', waiting_for = null", "previews_running_is_reached"),
        (starting, "url = 'javascript:alert(1)'", "previews_url_is_one"),
        (starting, "message = repeat('x', 1025)", "previews_message_is_short"),
        (starting, "log_tail = repeat('x', 16385)", "previews_log_tail_is_short"),
        (starting, "ttl_seconds = 0", "previews_ttl_is_positive"),
        (starting, "port = 1", "previews_port_has_a_host"),
        (starting, "host_id = 'nobody'", "previews_have_a_known_host"),
        (starting, "destroyed_at = now()", "previews_destroyed_has_an_end"),
        (live, "url = null", "previews_running_is_reached"),
        (live, "placed = false", "previews_running_is_reached"),
        (live, "port = 65536", "ports_are_ports"),
        (live, "status = 'expired'", "previews_place_only_while_live"),
    ] {
        refused(&board, &format!("update previews set {change} where build_id = '{build}'"), name).await;
    }
    let twice = format!(
        "insert into previews (workspace_id, build_id, token_id, ttl_seconds, retain_failed, expires_at)
         select workspace_id, build_id, token_id, 1, false, now() from previews where build_id = '{live}'"
    );
    refused(&board, &twice, "previews_are_one_a_build").await;
    let stolen = format!("update port_leases set preview_id = (select id from previews where build_id = '{starting}')");
    board.execute(&stolen).await;
    let second = "insert into port_leases (token_id, host_id, port, preview_id)
        select l.token_id, l.host_id, l.port, p.id from port_leases l, previews p where p.id <> l.preview_id";
    refused(&board, second, "port_leases_pkey").await;
    let other = "insert into port_leases (token_id, host_id, port, preview_id) select token_id, host_id, 5, preview_id from port_leases";
    refused(&board, other, "port_leases_are_one_a_preview").await;
}

#[tokio::test]
async fn a_destroyed_preview_is_never_changed_and_its_build_is_kept() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = running(&board, &mut host).await;
    destroy(&board, build).await;
    host.settle(&board).await;
    for change in ["status = 'destroying', destroyed_at = null", "version = version + 1", "expires_at = now()"] {
        refused(&board, &format!("update previews set {change}"), "previews_destroyed_is_final").await;
    }
    refused(&board, &format!("delete from builds where id = '{build}'"), "previews_build_id_fkey").await;
}

#[tokio::test]
async fn the_schema_lets_a_preview_move_as_the_rules_do() {
    let board = board().await;
    for from in State::ALL {
        for to in State::ALL {
            let rule = Actor::ALL.iter().any(|actor| from.may_become(*to, *actor));
            let schema =
                board.number(&format!("select preview_may_become('{from}', '{to}')::integer::bigint")).await == 1;
            assert_eq!(schema, rule, "{from} to {to}");
        }
    }
    let build = succeeded(&board).await;
    let moved = format!("update previews set status = 'expired', waiting_for = null where build_id = '{build}'");
    refused(&board, &moved, "previews_move_as_they_may").await;
}

#[tokio::test]
async fn the_words_of_the_schema_are_those_of_the_rules() {
    let board = board().await;
    let words = |name: &'static str| board.check_words(name);
    let of = |all: Vec<&str>| all.into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words("previews_status_known").await, of(State::ALL.iter().map(|word| word.as_str()).collect()));
    assert_eq!(words("previews_stage_known").await, of(Stage::ALL.iter().map(|word| word.as_str()).collect()));
    assert_eq!(
        words("previews_waiting_for_known").await,
        of(WaitingFor::ALL.iter().map(|word| word.as_str()).collect())
    );
}
