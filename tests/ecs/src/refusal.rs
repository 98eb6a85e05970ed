//! What AWS answers instead of a result ("Common errors", and each action's own).

use serde_json::{Value, json};

/// An error of AWS JSON 1.1: its `__type`, and its HTTP status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) kind: &'static str,
    pub(crate) status: u16,
    pub(crate) message: String,
    /// Of a ConflictException alone: the tasks that the client token has made.
    resource_ids: Option<Vec<String>>,
}

impl Refusal {
    fn new(kind: &'static str, status: u16, message: impl Into<String>) -> Self {
        Self { kind, status, message: message.into(), resource_ids: None }
    }

    /// 400: it can't be done, for a reason that is the caller's.
    pub(crate) fn client(message: impl Into<String>) -> Self {
        Self::new("ClientException", 400, message)
    }

    /// 400: a parameter is not as it must be.
    pub(crate) fn parameter(message: impl Into<String>) -> Self {
        Self::new("InvalidParameterException", 400, message)
    }

    /// 400: the body is not what the action takes.
    pub(crate) fn serialization(message: impl Into<String>) -> Self {
        Self::new("SerializationException", 400, message)
    }

    /// 400: no such cluster.
    pub(crate) fn cluster() -> Self {
        Self::new("ClusterNotFoundException", 400, "Cluster not found.")
    }

    /// 400: no such resource.
    pub(crate) fn resource(message: impl Into<String>) -> Self {
        Self::new("ResourceNotFoundException", 400, message)
    }

    /// 400: the client token stands for another request.
    pub(crate) fn conflict(tasks: Vec<String>) -> Self {
        let message = "The provided clientToken is already in use with a different RunTask request.";
        Self { resource_ids: Some(tasks), ..Self::new("ConflictException", 400, message) }
    }

    /// 400: too many calls.
    pub(crate) fn throttled() -> Self {
        Self::new("ThrottlingException", 400, "Rate exceeded")
    }

    /// 400: there is no such action, or this fake lacks it.
    pub(crate) fn action() -> Self {
        Self::new("UnknownOperationException", 400, "The fake has no such action.")
    }

    /// 500: AWS's own trouble.
    pub(crate) fn server() -> Self {
        Self::new("ServerException", 500, "Service Unavailable. Please try again later.")
    }

    pub(crate) fn body(&self) -> Value {
        let mut body = json!({ "__type": self.kind, "message": self.message });
        if let Some(ids) = &self.resource_ids {
            body["resourceIds"] = json!(ids);
        }
        body
    }
}
