//! Numbers for CloudWatch, as lines of a function's log in its embedded metric format: no call, no endpoint, no right of a role.

use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The namespace of all of them, which `infra/template.yaml` names too.
const NAMESPACE: &str = "Callboard";

/// What is measured. The alarms and the dashboard of `infra/template.yaml`, and the scaling of `infra/workers.yaml`, have these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Builds that wait.
    Backlog,
    /// Builds that run.
    RunningBuilds,
    /// Workers that ask for builds, or hold one.
    Workers,
    /// How long the oldest of those that wait has waited, in seconds; 0 if none waits.
    OldestAge,
    /// Running builds whose lease has lapsed, and that the reaper has not ended yet.
    LapsedLeases,
    /// Builds that have just ended.
    EndedBuilds,
}

impl Metric {
    fn name(self) -> &'static str {
        match self {
            Self::Backlog => "Backlog",
            Self::RunningBuilds => "RunningBuilds",
            Self::Workers => "Workers",
            Self::OldestAge => "OldestAge",
            Self::LapsedLeases => "LapsedLeases",
            Self::EndedBuilds => "EndedBuilds",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::OldestAge => "Seconds",
            Self::Backlog | Self::RunningBuilds | Self::Workers | Self::LapsedLeases | Self::EndedBuilds => "Count",
        }
    }
}

/// Where numbers go: to the log of this Lambda function, or nowhere. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    function: Option<Arc<str>>,
}

impl Metrics {
    /// Those of the Lambda function of that name; without one, nothing is ever told.
    pub(crate) fn of(function: Option<String>) -> Self {
        Self { function: function.map(Arc::from) }
    }

    /// Tells them, if this is Lambda.
    pub fn tell(&self, values: &[(Metric, f64)]) {
        // CloudWatch wants to know when it was measured; nothing of ours is decided by this clock.
        #[expect(clippy::disallowed_methods)]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if let Some(line) = self.line(values, now.as_millis()) {
            println!("{line}");
        }
    }

    /// The line that tells them, measured at `now`, milliseconds since 1970; `None` outside of Lambda.
    fn line(&self, values: &[(Metric, f64)], now: u128) -> Option<String> {
        let function = self.function.as_deref()?;
        let described: Vec<Value> =
            values.iter().map(|(metric, _)| json!({ "Name": metric.name(), "Unit": metric.unit() })).collect();
        let directive = json!({ "Namespace": NAMESPACE, "Dimensions": [["FunctionName"]], "Metrics": described });
        let mut line = Map::new();
        line.insert("_aws".into(), json!({ "Timestamp": u64::try_from(now).ok()?, "CloudWatchMetrics": [directive] }));
        line.insert("FunctionName".into(), function.into());
        line.extend(values.iter().map(|(metric, value)| (metric.name().into(), (*value).into())));
        Some(Value::Object(line).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: [(Metric, f64); 4] =
        [(Metric::Backlog, 3.0), (Metric::OldestAge, 90.5), (Metric::LapsedLeases, 0.0), (Metric::EndedBuilds, 2.0)];

    #[test]
    fn numbers_are_one_line_as_cloudwatch_reads_it() {
        let line = Metrics::of(Some("board-reaper".into())).line(&VALUES, 1_796_083_200_000).expect("a line");
        let told: Value = serde_json::from_str(&line).expect("JSON");
        let metrics = json!([
            { "Name": "Backlog", "Unit": "Count" },
            { "Name": "OldestAge", "Unit": "Seconds" },
            { "Name": "LapsedLeases", "Unit": "Count" },
            { "Name": "EndedBuilds", "Unit": "Count" },
        ]);
        let directive = json!({ "Namespace": "Callboard", "Dimensions": [["FunctionName"]], "Metrics": metrics });
        assert_eq!(
            told,
            json!({
                "_aws": { "Timestamp": 1_796_083_200_000_u64, "CloudWatchMetrics": [directive] },
                "FunctionName": "board-reaper", "Backlog": 3.0, "OldestAge": 90.5, "LapsedLeases": 0.0, "EndedBuilds": 2.0,
            })
        );
        assert!(!line.contains('\n'));
    }

    #[test]
    fn outside_of_lambda_nothing_is_told() {
        assert_eq!(Metrics::default().line(&VALUES, 0), None);
    }
}
