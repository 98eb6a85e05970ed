//! Amazon ECS, asked which tasks a build has, and to stop them.

use super::service::{Kind, Service, Unanswered};
use crate::config::BadSetting;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use uuid::Uuid;

/// The cluster in which workers start their builds' tasks: its ARN, or its name.
const CLUSTER: &str = "CALLBOARD_ECS_CLUSTER";
const KIND: Kind = Kind { name: "ecs", endpoint: "AWS_ENDPOINT_URL_ECS", prefix: "AmazonEC2ContainerServiceV20141113" };

/// The tasks of one cluster, each started by its worker as the build's. Cheap to clone.
#[derive(Clone)]
pub struct Tasks(Arc<Inner>);

struct Inner {
    service: Service,
    cluster: String,
}

/// Why tasks may still run.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unstopped {
    /// It does not answer: no endpoint in this network, or a certificate of somebody else.
    #[error("ECS does not answer")]
    Unreachable,
    /// It refuses: the role may not, there is no such cluster, or it is asked too often.
    #[error("ECS refuses {0} with status {1} ({2})")]
    Refused(&'static str, u16, String),
    /// What it says is no list of tasks.
    #[error("ECS lists tasks in a way that is not known")]
    Unreadable,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    task_arns: Vec<String>,
}

impl Tasks {
    /// Those of the cluster that `lookup` names. `None`: it names none.
    ///
    /// # Errors
    ///
    /// [`BadSetting`] if one of Lambda's own variables is missing.
    pub(crate) fn of(lookup: impl Fn(&'static str) -> Option<String>) -> Result<Option<Self>, BadSetting> {
        let Some(cluster) = lookup(CLUSTER).filter(|cluster| !cluster.is_empty()) else { return Ok(None) };
        let service = Service::new(lookup, KIND)?;
        Ok(Some(Self(Arc::new(Inner { service, cluster }))))
    }

    /// Has every task of `build` stopped that runs or is to run; how many there were.
    ///
    /// # Errors
    ///
    /// [`Unstopped`]: some may run on, and the same again will find them.
    pub async fn stop(&self, build: Uuid, reason: &str) -> Result<usize, Unstopped> {
        let Inner { service, cluster } = &*self.0;
        // No other filter may stand beside this one. It leaves out what is stopping already, as any list does that asks for nothing else; and a
        // page has room for 100 tasks, more than any build has.
        let question = json!({ "cluster": cluster, "startedBy": build });
        let listed = service.ask("ListTasks", &question).await.map_err(|why| unstopped("ListTasks", why))?;
        let Listed { task_arns } = serde_json::from_slice(&listed).map_err(|_| Unstopped::Unreadable)?;
        for task in &task_arns {
            let order = json!({ "cluster": cluster, "task": task, "reason": reason });
            service.ask("StopTask", &order).await.map_err(|why| unstopped("StopTask", why))?;
        }
        Ok(task_arns.len())
    }
}

fn unstopped(action: &'static str, why: Unanswered) -> Unstopped {
    match why {
        Unanswered::Unreachable => Unstopped::Unreachable,
        Unanswered::Refused(status, kind) => Unstopped::Refused(action, status, kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[(&'static str, &str)]) -> Result<Option<Tasks>, BadSetting> {
        Tasks::of(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn there_are_tasks_where_a_cluster_is_named_and_only_there() {
        let role =
            [("AWS_REGION", "eu-west-1"), ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"), ("AWS_SECRET_ACCESS_KEY", "key")];
        let named = |cluster| of(&[&role[..], &[(CLUSTER, cluster)]].concat());
        assert!(matches!(of(&role), Ok(None)));
        assert!(matches!(named(""), Ok(None)));
        assert!(matches!(named("builds"), Ok(Some(_))));
        assert_eq!(of(&[(CLUSTER, "builds")]).err().map(|bad| bad.name), Some("AWS_REGION"));
    }
}
