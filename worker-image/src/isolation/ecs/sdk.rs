//! ECS by AWS's SDK: the only file that names one. Each call is made once; whoever asks tries again.

use super::calls::{Answer, Calls, Described, Ran, Room, Seen, Trouble};
use super::definition::{Container, Definition, Mount, RUNNER};
use super::launch::Launch;
use super::settings::LaunchType;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_ecs::Client;
use aws_sdk_ecs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_ecs::types;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use futures::FutureExt as _;
use std::time::Duration;

/// How long one call may take.
const CALL: Duration = Duration::from_secs(15);

/// Words by which ECS says that it is too much now, whatever it calls that.
const LATER: [&str; 3] = ["Capacity is unavailable", "capacity limit exceeded", "reached the limit on the number"];

#[derive(Debug)]
pub(super) struct Sdk {
    client: Client,
    cluster: String,
}

impl Sdk {
    /// With the credentials, the region and the address that the environment has, as AWS's own tools find them.
    pub(super) async fn new(cluster: &str) -> Self {
        let https =
            aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
        let loader = aws_config::defaults(BehaviorVersion::latest()).http_client(https);
        Self::over(&loader.retry_config(RetryConfig::disabled()).timeout_config(timeouts()).load().await, cluster)
    }

    fn over(config: &SdkConfig, cluster: &str) -> Self {
        Self { client: Client::new(config), cluster: cluster.to_owned() }
    }

    async fn run_task(&self, launch: &Launch) -> Result<Ran, Trouble> {
        let environment = launch
            .environment
            .iter()
            .map(|(name, value)| types::KeyValuePair::builder().name(*name).value(value).build());
        let container = types::ContainerOverride::builder()
            .name(launch.container)
            .set_environment(Some(environment.collect()))
            .build();
        let network = types::AwsVpcConfiguration::builder()
            .set_subnets(Some(launch.subnets.clone()))
            .set_security_groups(Some(launch.security_groups.clone()))
            .assign_public_ip(types::AssignPublicIp::Disabled)
            .build()
            .map_err(unbuilt)?;
        let run = self
            .client
            .run_task()
            .cluster(&launch.cluster)
            .task_definition(&launch.definition)
            .client_token(&launch.client_token)
            .started_by(&launch.started_by)
            .count(1)
            .enable_execute_command(false)
            .enable_ecs_managed_tags(false)
            .network_configuration(types::NetworkConfiguration::builder().awsvpc_configuration(network).build())
            .overrides(types::TaskOverride::builder().container_overrides(container).build());
        let run = match &launch.capacity_provider {
            Some(provider) => {
                let item = types::CapacityProviderStrategyItem::builder().capacity_provider(provider).weight(1).build();
                run.capacity_provider_strategy(item.map_err(unbuilt)?)
            }
            None => run.launch_type(where_it_runs(launch.launch_type).0),
        };
        let answer = run.send().await.map_err(trouble)?;
        if let Some(arn) = answer.tasks().iter().find_map(|task| task.task_arn()) {
            return Ok(Ran::Task(arn.to_owned()));
        }
        let failures = answer.failures().iter().map(|failure| {
            let (reason, detail) = (failure.reason().unwrap_or("no reason"), failure.detail().unwrap_or_default());
            format!("{reason} {detail}").trim_end().to_owned()
        });
        Ok(Ran::Failed(failures.collect::<Vec<_>>().join("; ")))
    }

    async fn register_definition(&self, definition: &Definition) -> Result<String, Trouble> {
        let containers: Result<Vec<_>, _> =
            definition.containers.iter().map(|one| container(one, definition)).collect();
        let volumes = definition.volumes.iter().map(|name| types::Volume::builder().name(name).build());
        let disk = definition
            .ephemeral_gib
            .map(|gib| types::EphemeralStorage::builder().size_in_gib(i32::try_from(gib).unwrap_or(i32::MAX)).build());
        let platform = types::RuntimePlatform::builder()
            .cpu_architecture(definition.architecture.into())
            .operating_system_family(types::OsFamily::Linux)
            .build();
        let register = self
            .client
            .register_task_definition()
            .family(&definition.family)
            .requires_compatibilities(where_it_runs(definition.launch_type).1)
            .network_mode(types::NetworkMode::Awsvpc)
            .cpu(definition.cpu.to_string())
            .memory(definition.memory_mib.to_string())
            .set_ephemeral_storage(disk)
            .set_execution_role_arn(definition.execution_role_arn.clone())
            .runtime_platform(platform)
            .set_volumes(Some(volumes.collect()))
            .set_container_definitions(Some(containers?));
        let answer = register.send().await.map_err(trouble)?;
        let arn = answer.task_definition().and_then(|definition| definition.task_definition_arn());
        arn.map(str::to_owned).ok_or_else(|| Trouble::Refused("ECS names no definition".into()))
    }

    async fn found_definition(&self, family: &str) -> Result<Option<String>, Trouble> {
        match self.client.describe_task_definition().task_definition(family).send().await {
            Ok(answer) => {
                let arn = answer.task_definition().and_then(|definition| definition.task_definition_arn());
                Ok(arn.map(str::to_owned))
            }
            // ECS has no code of its own for one that is not there.
            Err(error) if error.message().is_some_and(|why| why.starts_with("Unable to describe task definition")) => {
                Ok(None)
            }
            Err(error) => Err(trouble(error)),
        }
    }

    async fn describe_tasks(&self, tasks: &[String]) -> Result<Described, Trouble> {
        let describe = self.client.describe_tasks().cluster(&self.cluster).set_tasks(Some(tasks.to_vec()));
        let answer = describe.send().await.map_err(trouble)?;
        let missing = answer.failures().iter().filter(|failure| failure.reason() == Some("MISSING"));
        let missing = missing.filter_map(|failure| failure.arn().map(str::to_owned)).collect();
        Ok(Described { tasks: answer.tasks().iter().map(seen).collect(), missing })
    }

    async fn list_tasks(&self, started_by: Option<&str>) -> Result<Vec<String>, Trouble> {
        let list = self.client.list_tasks().cluster(&self.cluster).set_started_by(started_by.map(str::to_owned));
        let arns: Result<Vec<String>, _> = list.into_paginator().items().send().collect().await;
        arns.map_err(trouble)
    }
}

impl Calls for Sdk {
    fn definition<'a>(&'a self, family: &'a str) -> Answer<'a, Option<String>> {
        self.found_definition(family).boxed()
    }

    fn register<'a>(&'a self, definition: &'a Definition) -> Answer<'a, String> {
        self.register_definition(definition).boxed()
    }

    fn run<'a>(&'a self, launch: &'a Launch) -> Answer<'a, Ran> {
        self.run_task(launch).boxed()
    }

    fn describe<'a>(&'a self, tasks: &'a [String]) -> Answer<'a, Described> {
        self.describe_tasks(tasks).boxed()
    }

    fn stop<'a>(&'a self, task: &'a str, reason: &'a str) -> Answer<'a, ()> {
        let stop = self.client.stop_task().cluster(&self.cluster).task(task).reason(reason).send();
        async { stop.await.map(drop).map_err(trouble) }.boxed()
    }

    fn list<'a>(&'a self, started_by: Option<&'a str>) -> Answer<'a, Vec<String>> {
        self.list_tasks(started_by).boxed()
    }
}

fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder().operation_timeout(CALL).build()
}

fn where_it_runs(launch_type: LaunchType) -> (types::LaunchType, types::Compatibility) {
    match launch_type {
        LaunchType::Fargate => (types::LaunchType::Fargate, types::Compatibility::Fargate),
        LaunchType::Ec2 => (types::LaunchType::Ec2, types::Compatibility::Ec2),
    }
}

fn container(container: &Container, definition: &Definition) -> Result<types::ContainerDefinition, Trouble> {
    let list = |words: &[String]| Some(words.to_vec()).filter(|words| !words.is_empty());
    let start = container.after_runner.then(|| {
        let runner = types::ContainerDependency::builder().container_name(RUNNER);
        runner.condition(types::ContainerCondition::Start).build()
    });
    let none = types::KernelCapabilities::builder().drop("ALL").build();
    // Fargate refuses security options.
    let options = (definition.launch_type == LaunchType::Ec2).then(|| vec!["no-new-privileges".to_owned()]);
    Ok(types::ContainerDefinition::builder()
        .name(&container.name)
        .image(&container.image)
        .essential(container.essential)
        .set_entry_point(list(&container.entry_point))
        .set_command(list(&container.command))
        .user(container.user)
        .readonly_root_filesystem(true)
        .linux_parameters(types::LinuxParameters::builder().capabilities(none).build())
        .set_docker_security_options(options)
        .stop_timeout(i32::try_from(container.stop_seconds).unwrap_or(i32::MAX))
        .set_depends_on(start.transpose().map_err(unbuilt)?.map(|start| vec![start]))
        .set_mount_points(Some(container.mounts.iter().map(mount).collect()))
        .build())
}

fn mount(mount: &Mount) -> types::MountPoint {
    let point = types::MountPoint::builder().source_volume(&mount.volume).container_path(&mount.path);
    point.read_only(mount.read_only).build()
}

fn seen(task: &types::Task) -> Seen {
    let ended_at = task.execution_stopped_at().or_else(|| task.stopped_at());
    let owned = |word: Option<&str>| word.map(str::to_owned);
    let room = |container: &types::Container| Room {
        name: container.name().unwrap_or_default().to_owned(),
        exit_code: container.exit_code(),
        reason: owned(container.reason()),
    };
    Seen {
        arn: task.task_arn().unwrap_or_default().to_owned(),
        started_by: owned(task.started_by()),
        definition: owned(task.task_definition_arn()),
        status: task.last_status().unwrap_or_default().to_owned(),
        stop_code: task.stop_code().map(|code| code.as_str().to_owned()),
        stopped_reason: owned(task.stopped_reason()),
        created_at_ms: task.created_at().and_then(|at| at.to_millis().ok()),
        ended_at_ms: ended_at.and_then(|at| at.to_millis().ok()),
        containers: task.containers().iter().map(room).collect(),
    }
}

/// What we ask for lacks something: never, unless the SDK wants more than it did.
fn unbuilt(error: aws_sdk_ecs::error::BuildError) -> Trouble {
    Trouble::Refused(error.to_string())
}

/// What an error means. ECS names its refusals by code, but some only by words.
fn trouble<E>(error: SdkError<E>) -> Trouble
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let Some(service) = error.as_service_error() else {
        let why = DisplayErrorContext(&error).to_string();
        return if matches!(error, SdkError::ConstructionFailure(_)) {
            Trouble::Refused(why)
        } else {
            Trouble::Unanswered(why)
        };
    };
    let (code, message) = (service.code().unwrap_or("no code"), service.message().unwrap_or_default());
    let status = error.raw_response().map_or(0, |response| response.status().as_u16());
    meaning(status, code, message)
}

fn meaning(status: u16, code: &str, message: &str) -> Trouble {
    let why = format!("{code}: {message}");
    let is_throttle = code.contains("Throttl") || code.contains("TooManyRequests") || code == "RequestLimitExceeded";
    if is_throttle || status == 429 || LATER.iter().any(|words| message.contains(words)) {
        Trouble::Throttled(why)
    } else if status >= 500 || code.starts_with("Expired") {
        Trouble::Unanswered(why)
    } else {
        Trouble::Refused(why)
    }
}

#[cfg(test)]
#[path = "sdk_tests.rs"]
mod tests;
