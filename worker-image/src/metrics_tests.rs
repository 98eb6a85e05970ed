use super::*;

#[test]
fn what_was_counted_is_told() {
    let metrics = Metrics::default();
    metrics.claimed(Answer::Build, Duration::from_millis(20));
    metrics.claimed(Answer::Nothing, Duration::from_millis(5));
    metrics.ended(Status::Failed, Some(EndReason::StepFailed));
    metrics.ended(Status::Success, None);
    metrics.beat(false);
    let standing = Standing { slots: 3, free_bytes: Some(7) };
    let text = metrics.text(&standing, Boot::now());
    for line in [
        "callboard_worker_claims_total{answer=\"build\"} 1\n",
        "callboard_worker_claims_total{answer=\"failed\"} 0\n",
        "callboard_worker_claim_wait_ms_total 25\n",
        "callboard_worker_builds_ended_total{status=\"failed\",reason=\"step_failed\"} 1\n",
        "callboard_worker_builds_ended_total{status=\"success\",reason=\"\"} 1\n",
        "callboard_worker_heartbeats_total{result=\"failed\"} 1\n",
        "callboard_worker_slots 3\n",
        "callboard_worker_free_bytes 7\n",
        "callboard_worker_builds_held 0\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
}

#[test]
fn previews_are_counted_by_how_they_are_once_they_were_looked_at() {
    let metrics = Metrics::default();
    let text = || metrics.text(&Standing { slots: 1, free_bytes: None }, Boot::now());
    assert!(!text().contains("preview"));
    let of = |state: &str, port: Option<u16>| {
        let report = serde_json::json!({ "build_id": Uuid::nil(), "state": state, "port": port });
        serde_json::from_value(report).expect("a report")
    };
    let reports = [of("running", Some(41_000)), of("running", Some(41_001)), of("failed", None)];
    metrics.previews(&reports, PortRange { first: 41_000, last: 41_009 });
    let text = text();
    for line in [
        "previews{state=\"failed\"} 1\n",
        "previews{state=\"running\"} 2\n",
        "preview_ports_used 2\n",
        "preview_ports 10\n",
    ] {
        assert!(text.contains(&format!("callboard_worker_{line}")), "{line:?} is not in {text}");
    }
}

#[test]
fn a_loop_that_stands_still_is_not_well() {
    let metrics = Metrics::default();
    assert_eq!(metrics.health(Boot::now().plus(2 * TURN_MAX)), Ok(()), "it has not begun");
    metrics.turned();
    let turned_at = Boot(metrics.turned_at.load(Relaxed));
    assert_eq!(metrics.health(turned_at.plus(TURN_MAX)), Ok(()));
    assert!(metrics.health(turned_at.plus(TURN_MAX + Duration::from_millis(1))).is_err());
    metrics.turns_no_more();
    assert_eq!(metrics.health(turned_at.plus(2 * TURN_MAX)), Ok(()), "a draining worker is well");
}
