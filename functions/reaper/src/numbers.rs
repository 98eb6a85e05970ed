//! What alarms and the dashboard look at, told after each sweep of the schedule: nobody asks a function on Lambda for `/metrics`.

use edge::{Metric, Shell};
use protocol::admin::Swept;
use store::gauges::{self, Gauges};

/// Tells them. A sweep has not failed because its numbers can't be read: then the queue's alarm has none, and the logs say why.
pub(crate) async fn tell(shell: &Shell, swept: &Swept) {
    match gauges::read(&shell.store).await {
        Ok(gauges) => shell.metrics.tell(&values(&gauges, swept)),
        Err(error) => tracing::warn!(%error, "no numbers for CloudWatch"),
    }
}

fn values(gauges: &Gauges, swept: &Swept) -> [(Metric, f64); 6] {
    let ended = swept.lost + swept.overdue + swept.expired;
    [
        (Metric::Backlog, gauges.pending as f64),
        (Metric::RunningBuilds, gauges.running as f64),
        (Metric::Workers, gauges.workers as f64),
        (Metric::OldestAge, gauges.oldest_pending_age_seconds.unwrap_or_default()),
        (Metric::LapsedLeases, gauges.lapsed as f64),
        (Metric::EndedBuilds, ended as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_tells_what_waits_and_runs_for_how_long_which_leases_lapsed_and_what_it_ended() {
        let oldest_pending_age_seconds = Some(90.5);
        let gauges =
            Gauges { pending: 3, running: 5, workers: 2, oldest_pending_age_seconds, lapsed: 2, ..Gauges::default() };
        let swept = Swept { lost: 1, overdue: 2, expired: 4, purged: 8, ..Swept::default() };
        let told = values(&gauges, &swept);
        let wanted = [
            (Metric::Backlog, 3.0),
            (Metric::RunningBuilds, 5.0),
            (Metric::Workers, 2.0),
            (Metric::OldestAge, 90.5),
            (Metric::LapsedLeases, 2.0),
            (Metric::EndedBuilds, 7.0),
        ];
        assert_eq!(told, wanted);
        assert_eq!(values(&Gauges::default(), &Swept::default())[3], (Metric::OldestAge, 0.0));
    }
}
