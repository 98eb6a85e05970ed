//! How tasks of ECS are made.

use crate::isolation::ecs::{LaunchType, Settings};
use clap::Args;

/// Of all who run builds there, or say whether they could.
#[derive(Debug, Args)]
pub(super) struct EcsArgs {
    /// The cluster that builds run in, by its name or ARN.
    #[arg(long, env = "CALLBOARD_ECS_CLUSTER")]
    ecs_cluster: Option<String>,
    /// A subnet of builds; may be repeated.
    #[arg(long, env = "CALLBOARD_ECS_SUBNETS", value_delimiter = ',')]
    ecs_subnets: Vec<String>,
    /// A security group of builds; may be repeated.
    #[arg(long, env = "CALLBOARD_ECS_SECURITY_GROUPS", value_delimiter = ',')]
    ecs_security_groups: Vec<String>,
    /// The image of worker-image/Dockerfile, which each build's task has beside its steps' own.
    #[arg(long, env = "CALLBOARD_ECS_RUNNER_IMAGE")]
    ecs_runner_image: Option<String>,
    /// The role by which ECS pulls images from private repositories.
    #[arg(long, env = "CALLBOARD_ECS_EXECUTION_ROLE_ARN")]
    ecs_execution_role_arn: Option<String>,
    /// CPU of a build, in 1,024ths of one.
    #[arg(long, env = "CALLBOARD_ECS_CPU", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(128..=196_608))]
    ecs_cpu: u32,
    /// Memory of a build, in MiB.
    #[arg(long, env = "CALLBOARD_ECS_MEMORY", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(512..))]
    ecs_memory: u32,
    /// Where ECS runs builds.
    #[arg(long, env = "CALLBOARD_ECS_LAUNCH_TYPE", value_enum, ignore_case = true, default_value = "FARGATE")]
    ecs_launch_type: LaunchType,
    /// A capacity provider in the place of the launch type's own, such as FARGATE_SPOT.
    #[arg(long, env = "CALLBOARD_ECS_CAPACITY_PROVIDER")]
    ecs_capacity_provider: Option<String>,
    /// Disk of a build on Fargate, in GiB; without it, 20.
    #[arg(long, env = "CALLBOARD_ECS_EPHEMERAL_GIB", value_parser = clap::value_parser!(u32).range(21..=200))]
    ecs_ephemeral_gib: Option<u32>,
}

impl EcsArgs {
    pub(super) fn settings(&self) -> Settings {
        Settings {
            cluster: self.ecs_cluster.clone(),
            subnets: self.ecs_subnets.clone(),
            security_groups: self.ecs_security_groups.clone(),
            runner_image: self.ecs_runner_image.clone(),
            execution_role_arn: self.ecs_execution_role_arn.clone(),
            cpu: self.ecs_cpu,
            memory_mib: self.ecs_memory,
            launch_type: self.ecs_launch_type,
            capacity_provider: self.ecs_capacity_provider.clone(),
            ephemeral_gib: self.ecs_ephemeral_gib,
        }
    }
}
