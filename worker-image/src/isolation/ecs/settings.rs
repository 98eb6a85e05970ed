//! What an operator says about ECS tasks.

use clap::ValueEnum;
use serde::Serialize;

/// Where ECS runs a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "UPPERCASE")]
#[value(rename_all = "UPPER")]
pub enum LaunchType {
    /// On a machine of AWS's, one for each task.
    #[default]
    Fargate,
    /// On the cluster's own instances.
    Ec2,
}

/// How ECS tasks are made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster, by its name or ARN.
    pub cluster: Option<String>,
    /// The subnets that tasks are in.
    pub subnets: Vec<String>,
    /// The security groups of tasks.
    pub security_groups: Vec<String>,
    /// The image of `worker-image/Dockerfile`, whose runner and shim a task has.
    pub runner_image: Option<String>,
    /// The role that ECS pulls images with.
    pub execution_role_arn: Option<String>,
    /// CPU of a task, in 1,024ths of one.
    pub cpu: u32,
    /// Memory of a task, in MiB.
    pub memory_mib: u32,
    /// Where tasks run.
    pub launch_type: LaunchType,
    /// A capacity provider, such as `FARGATE_SPOT`, in place of the launch type's own.
    pub capacity_provider: Option<String>,
    /// Disk of a task, in GiB, where it is not the usual.
    pub ephemeral_gib: Option<u32>,
}

/// Settings that lack nothing.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The cluster.
    pub cluster: String,
    /// The runner's image.
    pub runner_image: String,
    /// The rest.
    pub settings: Settings,
}

impl Settings {
    /// The same, if nothing is missing.
    ///
    /// # Errors
    ///
    /// What is missing, for a person.
    pub fn fit(&self) -> Result<Fit, String> {
        let named =
            |value: &Option<String>, variable: &str| value.clone().ok_or_else(|| format!("{variable} is not set"));
        let cluster = named(&self.cluster, "CALLBOARD_ECS_CLUSTER")?;
        let runner_image = named(&self.runner_image, "CALLBOARD_ECS_RUNNER_IMAGE")?;
        if self.subnets.is_empty() {
            return Err("CALLBOARD_ECS_SUBNETS is not set".into());
        }
        Ok(Fit { cluster, runner_image, settings: self.clone() })
    }
}

#[cfg(test)]
impl Fit {
    /// What tests say.
    pub(super) fn example() -> Self {
        let settings = Settings {
            cluster: Some("builds".into()),
            subnets: vec!["subnet-1".into()],
            security_groups: vec!["sg-1".into()],
            runner_image: Some("registry.example/callboard-worker:1".into()),
            execution_role_arn: None,
            cpu: 1024,
            memory_mib: 4096,
            launch_type: LaunchType::Fargate,
            capacity_provider: None,
            ephemeral_gib: None,
        };
        settings.fit().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_by_its_variable() {
        let whole = Fit::example().settings;
        for (settings, variable) in [
            (Settings { cluster: None, ..whole.clone() }, "CALLBOARD_ECS_CLUSTER"),
            (Settings { runner_image: None, ..whole.clone() }, "CALLBOARD_ECS_RUNNER_IMAGE"),
            (Settings { subnets: Vec::new(), ..whole.clone() }, "CALLBOARD_ECS_SUBNETS"),
        ] {
            assert!(settings.fit().unwrap_err().contains(variable), "{variable}");
        }
    }
}
