//! What RunTask is told of one build. Whoever may describe tasks reads it: it names the build and the board, and holds the token that
//! fetches the job once and posts this build's log (docs/decisions/0015), and nothing else of the tenant's.

use super::definition::RUNNER;
use super::settings::{Fit, LaunchType};
use crate::clock::millis;
use crate::config::{Config, Grace};
use crate::input;
use protocol::worker::Job;
use serde::Serialize;
use std::fmt;

/// The longest certificate that a task can be told: its overrides have 8,192 characters in all.
const CERTIFICATE_MAX_BYTES: usize = 6 * 1024;

/// A task that is to be started.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Launch {
    /// The definition's ARN.
    pub definition: String,
    /// The same again starts nothing new.
    pub client_token: String,
    /// The build.
    pub started_by: String,
    /// The container that has the environment.
    pub container: &'static str,
    /// Its environment.
    pub environment: Vec<(&'static str, String)>,
    /// The cluster.
    pub cluster: String,
    /// The subnets.
    pub subnets: Vec<String>,
    /// The security groups.
    pub security_groups: Vec<String>,
    /// Where it runs.
    pub launch_type: LaunchType,
    /// What runs it, in place of the launch type.
    pub capacity_provider: Option<String>,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client_token, started_by, .. } = self;
        f.debug_struct("Launch")
            .field("client_token", client_token)
            .field("started_by", started_by)
            .finish_non_exhaustive()
    }
}

/// What runners are told of the board and of this worker's durations, whatever they run.
#[derive(Clone, Debug)]
pub struct Home {
    url: String,
    certificate: Option<String>,
    grace: Grace,
}

impl Home {
    /// What `config` says.
    ///
    /// # Errors
    ///
    /// If its certificates can't be read, or have no room in a task's overrides.
    pub fn of(config: &Config) -> Result<Self, String> {
        let read = |path| input::text(path).map_err(|error| format!("{}: {error}", path.display()));
        let certificate = config.ca_bundle.as_deref().map(read).transpose()?;
        if certificate.as_ref().is_some_and(|text| text.len() > CERTIFICATE_MAX_BYTES) {
            return Err(format!(
                "the certificates of CALLBOARD_CA_BUNDLE have no room in a task's overrides, which take {CERTIFICATE_MAX_BYTES} bytes: \
                 name a file with the one that is needed"
            ));
        }
        Ok(Self { url: config.api_url.clone(), certificate, grace: config.grace })
    }

    /// The runner's environment, in a task with so many steps' rooms.
    fn environment(&self, job: &Job, rooms: usize) -> Vec<(&'static str, String)> {
        let certificate = self.certificate.clone().map(|text| ("CALLBOARD_CA_PEM", text));
        [
            ("CALLBOARD_URL", self.url.clone()),
            ("CALLBOARD_BUILD", job.build_id.to_string()),
            ("CALLBOARD_LOG_TOKEN", job.log_token.0.clone()),
            ("CALLBOARD_LEASE_TTL_MS", job.lease_ttl_ms.to_string()),
            ("CALLBOARD_LEASE_GRACE_MS", job.lease_grace_ms.to_string()),
            ("CALLBOARD_HEARTBEAT_EVERY_MS", job.heartbeat_every_ms.to_string()),
            ("CALLBOARD_KILL_GRACE_MS", millis(self.grace.kill).to_string()),
            ("CALLBOARD_FENCE_MARGIN_MS", millis(self.grace.fence_margin).to_string()),
            ("CALLBOARD_ROOMS", rooms.to_string()),
        ]
        .into_iter()
        .chain(certificate)
        .collect()
    }
}

impl Launch {
    /// The task of `job`. A build is claimed once in its life, so its number names the claim; `attempt` counts the times that ECS is
    /// known to have made no task of it.
    #[must_use]
    pub fn of(fit: &Fit, home: &Home, job: &Job, rooms: usize, definition: String, attempt: u32) -> Self {
        let settings = &fit.settings;
        Self {
            definition,
            client_token: format!("{}-{attempt}", job.build_id),
            started_by: job.build_id.to_string(),
            container: RUNNER,
            environment: home.environment(job, rooms),
            cluster: fit.cluster.clone(),
            subnets: settings.subnets.clone(),
            security_groups: settings.security_groups.clone(),
            launch_type: settings.launch_type,
            capacity_provider: settings.capacity_provider.clone(),
        }
    }
}

#[cfg(test)]
impl Home {
    /// What tests say.
    pub(super) fn example() -> Self {
        Self { url: "https://board.example.com".into(), certificate: None, grace: Grace::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::ecs::definition::Definition;
    use crate::isolation::ecs::stub::{job, step};
    use protocol::worker::Secret;

    /// A build that says `tenant` in each thing that it can say something in.
    fn tenants() -> Job {
        let mut first = step("tenant-step", "rust:1");
        first.commands = vec!["echo tenant".into()];
        first.env = [("TENANT".to_owned(), "tenant".to_owned())].into();
        let secret = || Secret("tenant".into());
        Job {
            repository: "https://tenant.example.com/tenant.git".into(),
            git_ref: "tenant".into(),
            commit: Some("tenant".into()),
            steps: vec![first.clone()],
            on_cancel: vec![first],
            env: [("TENANT".to_owned(), "tenant".to_owned())].into(),
            secrets: [("TENANT".to_owned(), secret())].into(),
            clone_secret: Some(secret()),
            registry_secrets: [("tenant.example.com".to_owned(), secret())].into(),
            ..job()
        }
    }

    #[test]
    fn nothing_of_the_tenants_is_told_to_ecs() {
        let (fit, job) = (Fit::example(), tenants());
        assert!(serde_json::to_string(&job).unwrap().to_lowercase().matches("tenant").count() > 15);
        let launch = Launch::of(&fit, &Home::example(), &job, 2, "arn".into(), 1);
        let definition = Definition::of(&fit, &["rust:1", "rust:1"]);
        let told = serde_json::to_string(&(launch, definition)).unwrap().to_lowercase();
        assert!(!told.contains("tenant"), "{told}");
    }

    #[test]
    fn the_same_try_is_the_same_task_and_the_next_is_another() {
        let (fit, home, job) = (Fit::example(), Home::example(), job());
        let launch = |attempt| Launch::of(&fit, &home, &job, 1, "arn".into(), attempt);
        assert_eq!(launch(1), launch(1));
        assert_ne!(launch(1).client_token, launch(2).client_token);
        // ECS's most: 64 characters of a token, and 36 of who started a task.
        assert!(launch(u32::MAX).client_token.len() <= 64);
        assert_eq!(launch(1).started_by, job.build_id.to_string());
        assert_eq!(launch(1).started_by.len(), 36);
    }

    #[test]
    fn a_runner_is_told_where_the_board_is_and_until_when_it_may_go_on() {
        let told = Launch::of(&Fit::example(), &Home::example(), &job(), 3, "arn".into(), 1).environment;
        let of = |name: &str| told.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        assert_eq!(of("CALLBOARD_URL"), Some("https://board.example.com"));
        assert_eq!((of("CALLBOARD_LEASE_TTL_MS"), of("CALLBOARD_KILL_GRACE_MS")), (Some("60000"), Some("10000")));
        assert_eq!((of("CALLBOARD_ROOMS"), of("CALLBOARD_CA_PEM")), (Some("3"), None));
    }

    #[test]
    fn a_token_is_not_printed() {
        let launch = Launch::of(&Fit::example(), &Home::example(), &job(), 1, "arn".into(), 1);
        assert!(launch.environment.iter().any(|(_, value)| value == "log-token"));
        assert!(!format!("{launch:?}").contains("log-token"));
    }
}
