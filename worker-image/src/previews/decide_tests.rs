use super::*;
use crate::previews::folder::of;
use uuid::Uuid;

fn here(state: Seen, port: Option<u16>) -> Found {
    Found { said: PreviewReport { port, ..of(Uuid::nil(), state) }, lives: None, busy: None, lost: Lost::Missing }
}

fn alive(state: Seen) -> Found {
    let report = PreviewReport { port: Some(7), url: Some("http://x/".into()), ..of(Uuid::nil(), state) };
    Found { said: report.clone(), lives: Some(report), busy: None, lost: Lost::Killed }
}

fn busy(found: Found, busy: Busy) -> Found {
    Found { busy: Some(busy), ..found }
}

#[test]
fn a_workspace_that_is_kept_is_started_and_nothing_else_is() {
    assert_eq!(deed(Order::Start, &here(Seen::Kept, None)), Some(Deed::Start));
    assert_eq!(deed(Order::Start, &busy(here(Seen::Kept, None), Busy::Starts)), None);
    for state in [Seen::Starting, Seen::Running, Seen::Failed, Seen::Destroying, Seen::Destroyed] {
        assert_eq!(deed(Order::Start, &here(state, None)), None, "{state}");
        assert_eq!(deed(Order::Start, &alive(state)), None, "{state}");
    }
}

#[test]
fn who_waits_or_is_kept_is_left_alone() {
    for state in Seen::ALL {
        for order in [Order::Wait, Order::Keep] {
            assert_eq!(deed(order, &here(*state, Some(7))), None);
            assert_eq!(deed(order, &alive(*state)), None);
        }
    }
}

#[test]
fn a_destroy_is_done_until_nothing_runs_and_its_port_is_free() {
    let destroy = Some(Deed::End(End::Destroy));
    for state in [Seen::Kept, Seen::Starting, Seen::Running, Seen::Failed, Seen::Destroying] {
        assert_eq!(deed(Order::Destroy, &here(state, None)), destroy, "{state}");
    }
    assert_eq!(deed(Order::Destroy, &here(Seen::Destroyed, Some(7))), destroy);
    assert_eq!(deed(Order::Destroy, &alive(Seen::Destroyed)), destroy);
    assert_eq!(deed(Order::Destroy, &here(Seen::Destroyed, None)), None);
    assert_eq!(deed(Order::Destroy, &busy(alive(Seen::Running), Busy::Ends)), None, "it is being done");
}

#[test]
fn a_stop_leaves_what_has_failed_and_a_forget_takes_all() {
    assert_eq!(deed(Order::Stop, &alive(Seen::Running)), Some(Deed::End(End::Stop)));
    assert_eq!(deed(Order::Stop, &here(Seen::Failed, Some(7))), Some(Deed::End(End::Stop)));
    assert_eq!(deed(Order::Stop, &here(Seen::Failed, None)), None);
    for state in Seen::ALL {
        assert_eq!(deed(Order::Forget, &here(*state, None)), Some(Deed::End(End::Forget)));
        assert_eq!(deed(Order::Forget, &alive(*state)), Some(Deed::End(End::Forget)));
    }
}

#[test]
fn only_a_keeper_that_lives_binds_another_port() {
    assert_eq!(deed(Order::Rebind, &alive(Seen::Running)), Some(Deed::Rebind(7)));
    assert_eq!(deed(Order::Rebind, &here(Seen::Running, Some(7))), None);
}

#[test]
fn one_whose_keeper_is_gone_without_a_word_has_failed_and_is_ended() {
    for state in [Seen::Starting, Seen::Running] {
        for lost in [Lost::Killed, Lost::Silent] {
            let gone = Found { lost, ..here(state, Some(7)) };
            assert_eq!(due(&gone), Some(Deed::End(End::Lost(lost))));
            let told = report(&gone);
            assert_eq!((told.state, told.stage, told.port), (Seen::Failed, Some(Stage::Run), Some(7)));
        }
        let found = here(state, Some(7));
        assert_eq!(due(&found), Some(Deed::End(End::Lost(Lost::Missing))));
        assert_eq!(report(&found).stage, Some(Stage::Recovery));
        assert_eq!(due(&busy(found, Busy::Starts)), None, "its keeper is on its way");
    }
}

#[test]
fn what_was_ended_by_half_is_ended() {
    assert_eq!(due(&here(Seen::Failed, Some(7))), Some(Deed::End(End::Stop)));
    assert_eq!(due(&here(Seen::Destroying, None)), Some(Deed::End(End::Stop)));
    for found in [here(Seen::Failed, None), here(Seen::Kept, None), here(Seen::Destroyed, None), alive(Seen::Failed)] {
        assert_eq!(due(&found), None, "{found:?}");
    }
}

#[test]
fn what_is_told_is_what_is_so() {
    assert_eq!(report(&here(Seen::Kept, None)).state, Seen::Kept);
    assert_eq!(report(&busy(here(Seen::Kept, None), Busy::Starts)).state, Seen::Starting);
    let running = report(&alive(Seen::Running));
    assert_eq!((running.state, running.url.as_deref()), (Seen::Running, Some("http://x/")));
    let starting = report(&alive(Seen::Starting));
    assert_eq!((starting.port, starting.url), (Some(7), None), "people are sent to what answers");
    assert_eq!(report(&busy(alive(Seen::Running), Busy::Ends)).state, Seen::Destroying);
    assert_eq!(report(&busy(here(Seen::Failed, Some(7)), Busy::Ends)).state, Seen::Failed);
}

#[test]
fn what_is_over_and_known_as_such_rests() {
    let known = |state, port| PreviewReport { version: Some(1), port, ..of(Uuid::nil(), state) };
    assert!(rests(&known(Seen::Destroyed, None)) && rests(&known(Seen::Failed, None)));
    assert!(!rests(&known(Seen::Destroyed, Some(7))) && !rests(&known(Seen::Running, None)));
    assert!(!rests(&of(Uuid::nil(), Seen::Destroyed)), "its version is to be learnt");
}
