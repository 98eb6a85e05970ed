//! What reports mean, one by one and in any order.

use super::super::Actor;
use super::*;
use proptest::prelude::*;
use proptest::sample::select;

fn held(state: State) -> Held {
    let live = matches!(state, State::Starting | State::Running);
    Held {
        state,
        version: 3,
        adopted: true,
        placed: live,
        room: true,
        port: (state == State::Running).then_some(4000),
        waiting: None,
        message: None,
    }
}

fn said(seen: Seen) -> Said {
    let port = (seen == Seen::Running).then_some(4000);
    Said { seen, version: Some(3), stage: None, port, no_port: false, message: None }
}

fn check(state: State, seen: Seen, expected: Option<(State, Option<Stage>)>) {
    let next = take_in(&held(state), &said(seen));
    assert_eq!(next.map(|next| (next.state, next.stage)), expected, "{state}, {seen}");
}

#[test]
fn a_service_that_answers_runs_and_one_that_never_did_failed_at_its_start() {
    check(State::Starting, Seen::Starting, None);
    check(State::Starting, Seen::Running, Some((State::Running, None)));
    check(State::Starting, Seen::Failed, Some((State::Failed, Some(Stage::Start))));
    check(State::Running, Seen::Failed, Some((State::Failed, Some(Stage::Run))));
    check(State::Running, Seen::Running, None);
}

#[test]
fn what_a_recovery_finds_missing_has_failed_there() {
    check(State::Running, Seen::Kept, Some((State::Failed, Some(Stage::Recovery))));
    check(State::Running, Seen::Destroyed, Some((State::Failed, Some(Stage::Recovery))));
    check(State::Starting, Seen::Destroyed, Some((State::Failed, Some(Stage::Recovery))));
    check(State::Starting, Seen::Kept, None);
}

#[test]
fn the_host_names_the_stage_if_it_knows_better() {
    let report = Said { stage: Some(Stage::Unsupported), ..said(Seen::Failed) };
    assert_eq!(take_in(&held(State::Starting), &report).and_then(|next| next.stage), Some(Stage::Unsupported));
}

#[test]
fn a_teardown_is_over_once_the_port_is_free() {
    let destroying = Held { port: Some(4000), ..held(State::Destroying) };
    let half = Said { port: Some(4000), message: Some("the port is still bound".into()), ..said(Seen::Destroyed) };
    let next = take_in(&destroying, &half).expect("the message is new");
    assert_eq!((next.state, next.port), (State::Destroying, Some(4000)));
    assert_eq!(next.message.as_deref(), Some("the port is still bound"));
    let next = take_in(&destroying, &said(Seen::Destroyed)).expect("over");
    assert_eq!((next.state, next.port), (State::Destroyed, None));
}

#[test]
fn a_failed_preview_keeps_its_lease_until_the_port_is_free() {
    let running = held(State::Running);
    let next = take_in(&running, &Said { port: Some(4000), ..said(Seen::Failed) }).expect("failed");
    assert_eq!((next.state, next.port), (State::Failed, Some(4000)));
    let failed = Held { port: Some(4000), ..held(State::Failed) };
    assert_eq!(take_in(&failed, &said(Seen::Failed)).map(|next| next.port), Some(None));
    assert_eq!(take_in(&Held { port: None, ..failed }, &Said { port: Some(9), ..said(Seen::Failed) }), None);
}

#[test]
fn a_preview_without_a_place_waits_visibly_and_one_with_room_gets_one() {
    let waiting = Held { placed: false, room: false, ..held(State::Starting) };
    let next = take_in(&waiting, &said(Seen::Kept)).expect("it waits now");
    assert_eq!((next.waiting, next.place), (Some(WaitingFor::Quota), false));
    let waiting = Held { waiting: next.waiting, ..waiting };
    assert_eq!(take_in(&waiting, &said(Seen::Kept)), None, "it waits already");
    let next = take_in(&Held { room: true, ..waiting }, &said(Seen::Kept)).expect("a place");
    assert_eq!((next.waiting, next.place), (None, true));
    assert_eq!(
        take_in(&Held { placed: false, room: false, ..held(State::Starting) }, &said(Seen::Running))
            .map(|next| next.state),
        Some(State::Starting)
    );
}

#[test]
fn a_range_without_a_free_port_is_waited_for_visibly() {
    let report = Said { no_port: true, ..said(Seen::Starting) };
    let next = take_in(&held(State::Starting), &report).expect("it waits now");
    assert_eq!(next.waiting, Some(WaitingFor::Port));
    let waiting = Held { waiting: Some(WaitingFor::Port), ..held(State::Starting) };
    assert_eq!(take_in(&waiting, &report), None);
    assert_eq!(take_in(&waiting, &said(Seen::Starting)).map(|next| next.waiting), Some(None));
}

#[test]
fn a_service_without_a_port_does_not_run() {
    let report = Said { port: None, ..said(Seen::Running) };
    assert_eq!(take_in(&held(State::Starting), &report), None);
}

#[test]
fn a_report_of_another_version_changes_nothing_unless_nobody_has_taken_it_up() {
    for version in [None, Some(2), Some(4)] {
        assert_eq!(take_in(&held(State::Starting), &Said { version, ..said(Seen::Failed) }), None);
    }
    let fresh = Held { adopted: false, placed: false, waiting: Some(WaitingFor::Host), ..held(State::Starting) };
    let next = take_in(&fresh, &Said { version: None, ..said(Seen::Kept) }).expect("taken up");
    assert_eq!((next.state, next.waiting, next.place), (State::Starting, None, true));
}

#[test]
fn what_a_host_is_told() {
    let order = |state, seen| order(Some(&held(state)), seen, false);
    assert_eq!(order(State::Starting, Some(Seen::Kept)), Order::Start);
    assert_eq!(order(State::Starting, None), Order::Start);
    assert_eq!(order(State::Starting, Some(Seen::Starting)), Order::Keep);
    for seen in [None, Some(Seen::Running), Some(Seen::Kept)] {
        assert_eq!(order(State::Running, seen), Order::Keep);
        assert_eq!(order(State::Expired, seen), Order::Keep);
        assert_eq!(order(State::Destroying, seen), Order::Destroy);
    }
    assert_eq!(order(State::Failed, Some(Seen::Running)), Order::Stop);
    assert_eq!(order(State::Failed, Some(Seen::Failed)), Order::Keep);
    assert_eq!(order(State::Destroyed, Some(Seen::Running)), Order::Destroy);
    assert_eq!(order(State::Destroyed, Some(Seen::Destroyed)), Order::Keep);
    let waiting = Held { placed: false, ..held(State::Starting) };
    assert_eq!(super::order(Some(&waiting), Some(Seen::Kept), false), Order::Wait);
    assert_eq!(super::order(None, Some(Seen::Kept), true), Order::Wait);
    assert_eq!(super::order(None, Some(Seen::Running), false), Order::Forget);
}

fn any_held() -> impl Strategy<Value = Held> {
    let port = prop::option::of(4000_u16..4003);
    let waiting = prop::option::of(select(WaitingFor::ALL));
    (select(State::ALL), 1_i64..5, any::<(bool, bool, bool)>(), port, waiting).prop_map(
        |(state, version, (adopted, placed, room), port, waiting)| Held {
            state,
            version,
            adopted,
            placed: placed && state.is_live(),
            room,
            port,
            waiting,
            message: None,
        },
    )
}

fn any_said() -> impl Strategy<Value = Said> {
    let stage = prop::option::of(select(Stage::ALL));
    let port = prop::option::of(4000_u16..4003);
    (select(Seen::ALL), prop::option::of(1_i64..5), stage, port, any::<bool>())
        .prop_map(|(seen, version, stage, port, no_port)| Said { seen, version, stage, port, no_port, message: None })
}

/// The row after a change that met no refusal.
fn after(held: &Held, next: &Next) -> Held {
    Held {
        state: next.state,
        version: held.version + 1,
        adopted: true,
        placed: (held.placed || next.place) && next.state.is_live(),
        port: next.port,
        waiting: next.waiting,
        message: next.message.clone(),
        ..held.clone()
    }
}

proptest! {
    #[test]
    fn a_report_moves_a_preview_only_as_a_host_may(held in any_held(), said in any_said()) {
        if let Some(next) = take_in(&held, &said) {
            prop_assert!(held.state == next.state || held.state.may_become(next.state, Actor::Host));
            prop_assert_eq!(next.stage.is_some(), next.state == State::Failed && held.state != State::Failed);
            prop_assert!(next.waiting.is_none() || next.state == State::Starting);
            prop_assert!(next.state != State::Destroyed || next.port.is_none());
        }
    }

    #[test]
    fn the_same_report_twice_changes_nothing_the_second_time(held in any_held(), said in any_said()) {
        if let Some(next) = take_in(&held, &said) {
            let held = after(&held, &next);
            prop_assert_eq!(take_in(&held, &said), None, "as it was sent");
            let known = Said { version: Some(held.version), ..said };
            if let Some(again) = take_in(&held, &known) {
                // Only what needed a place first may go on from there.
                prop_assert!(next.place && again.state != held.state || again.state != State::Starting || again.port != held.port);
            }
        }
    }

    #[test]
    fn of_reports_in_any_order_only_those_that_knew_the_row_count(
        held in any_held(), reports in prop::collection::vec(any_said(), 1..12),
    ) {
        let mut row = held;
        for said in reports {
            let before = row.clone();
            if let Some(next) = take_in(&row, &said) {
                prop_assert!(!before.adopted || said.version == Some(before.version));
                row = after(&row, &next);
            }
            prop_assert!(!before.state.is_final() || row == before);
        }
    }

    #[test]
    fn a_host_is_never_told_to_end_what_is_to_live(held in any_held(), seen in prop::option::of(select(Seen::ALL))) {
        let told = order(Some(&held), seen, false);
        if held.state.is_live() {
            prop_assert!(!matches!(told, Order::Stop | Order::Destroy | Order::Forget));
        }
        prop_assert_eq!(told == Order::Destroy, held.state == State::Destroying || (held.state == State::Destroyed
            && matches!(seen, Some(Seen::Starting | Seen::Running | Seen::Failed | Seen::Destroying))));
    }
}
