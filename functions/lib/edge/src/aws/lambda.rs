//! Events instead of a socket: a request of API Gateway's goes to the routes, any other to what is scheduled.
//!
//! The surroundings are made at the first call, since an instance's start must not wait for Secrets Manager. They hold one
//! connection, which is looked after before each call: Lambda freezes an instance between two, for minutes, and the other side
//! may have closed it meanwhile.

use super::database_user::DatabaseUser;
use super::metrics::Metrics;
use super::secrets::{SecretsManager, Unfetched};
use super::service::credentials;
use super::tasks::Tasks;
use crate::config::BadSetting;
use crate::{Config, Rejection, Routes, Shell, app};
use axum::Router;
use axum::response::{IntoResponse as _, Response};
use lambda_http::request::LambdaRequest;
use lambda_http::{Adapter, Error, LambdaEvent, Request, service_fn};
use serde_json::Value;
use std::convert::Infallible;
use tokio::sync::OnceCell;
use tower::{Service as _, ServiceExt as _};

/// An ARN or a name of a secret with the database's name and password, instead of those in `CALLBOARD_DATABASE_URL`.
const DATABASE_SECRET: &str = "CALLBOARD_DATABASE_SECRET";
/// The ARN of a user of the database whom the function's role may connect as, instead of a password: `arn:aws:rds-db:…:dbuser:…/NAME`.
const DATABASE_USER: &str = "CALLBOARD_DATABASE_USER_ARN";
/// An ARN or a name of a secret with what `CALLBOARD_SECRETS_KEY` would have.
const KEY_SECRET: &str = "CALLBOARD_KEY_SECRET";
/// Stands for the key until it is fetched, so that other settings are checked when an instance starts.
const NO_KEY: &str = "unfetched:0000000000000000000000000000000000000000000000000000000000000000";

const NO_USER: &str = "not a user of the database; give arn:aws:rds-db:REGION:ACCOUNT:dbuser:RESOURCE/NAME";

/// Serves `routes` to requests of API Gateway.
///
/// # Errors
///
/// A setting that can't be used, or the Lambda runtime's own.
pub async fn run(routes: Routes) -> Result<(), Error> {
    let instance = &Instance::new(routes, from_env)?;
    lambda_http::run(service_fn(move |request: Request| instance.answer(request))).await
}

/// Serves `routes` to requests of API Gateway, which carry a token, and does what is `due` at any other event, which it is given and which only
/// AWS's own services and roles can send.
///
/// # Errors
///
/// A setting that can't be used, or the Lambda runtime's own.
pub async fn run_scheduled<F>(routes: Routes, due: fn(Shell, Value) -> F) -> Result<(), Error>
where
    F: Future<Output = Result<Value, Rejection>> + Send + 'static,
{
    let instance = &Instance::new(routes, from_env)?;
    let serve = service_fn(move |event: LambdaEvent<Value>| async move {
        if is_request(&event.payload) {
            let request: LambdaRequest = serde_json::from_value(event.payload)?;
            let mut routes = Adapter::from(service_fn(move |request: Request| instance.answer(request)));
            let answer = routes.call(LambdaEvent::new(request, event.context)).await?;
            return Ok::<_, Error>(serde_json::to_value(answer)?);
        }
        let (shell, _) = instance.ready().await?;
        Ok(due(shell.clone(), event.payload).await?)
    });
    lambda_http::lambda_runtime::run(serve).await
}

/// Whether an event is somebody's request. API Gateway and function URLs always say whose, and a caller can't leave it out.
fn is_request(event: &Value) -> bool {
    event.get("requestContext").is_some()
}

fn from_env(name: &'static str) -> Option<String> {
    // With `Config::from_env`, the one place that reads the environment.
    #[expect(clippy::disallowed_methods)]
    std::env::var(name).ok()
}

type Lookup = fn(&'static str) -> Option<String>;

struct Instance {
    routes: Routes,
    lookup: Lookup,
    made: OnceCell<(Shell, Router)>,
    secrets: OnceCell<SecretsManager>,
    user: Option<DatabaseUser>,
}

impl Instance {
    fn new(routes: Routes, lookup: Lookup) -> Result<Self, BadSetting> {
        let checked = |name| lookup(name).or_else(|| (name == "CALLBOARD_SECRETS_KEY").then(|| NO_KEY.into()));
        let is_complete = lookup(KEY_SECRET).is_none();
        Config::read(|name| if is_complete { lookup(name) } else { checked(name) })?;
        let user = match lookup(DATABASE_USER).filter(|arn| !arn.is_empty()) {
            Some(arn) => Some(DatabaseUser::of(&arn).ok_or_else(|| BadSetting::new(DATABASE_USER, NO_USER))?),
            None => None,
        };
        Ok(Self { routes, lookup, made: OnceCell::new(), secrets: OnceCell::new(), user })
    }

    async fn answer(&self, request: Request) -> Result<Response, Infallible> {
        match self.ready().await {
            Ok((_, routes)) => routes.clone().oneshot(request).await,
            Err(rejection) => Ok(rejection.into_response()),
        }
    }

    /// The surroundings with a connection that answers, by a password that is right.
    async fn ready(&self) -> Result<&(Shell, Router), Rejection> {
        let made = self.made.get_or_try_init(|| self.make()).await?;
        if self.user.is_some() {
            // A connection may be opened at any call, and yesterday's password is none.
            self.log_in(&made.0).await?;
        }
        match made.0.store.revive().await {
            Ok(()) => Ok(made),
            Err(store::Error::Refused(_)) if self.user.is_none() && (self.lookup)(DATABASE_SECRET).is_some() => {
                tracing::info!("the database's password has changed");
                self.log_in(&made.0).await?;
                made.0.store.revive().await?;
                Ok(made)
            }
            // A route may do without, and says so itself if it does not.
            Err(error) => {
                tracing::warn!(%error, "no connection");
                Ok(made)
            }
        }
    }

    async fn make(&self) -> Result<(Shell, Router), Rejection> {
        let key = match (self.lookup)(KEY_SECRET) {
            Some(id) => Some(self.manager().await?.value(&id).await.map_err(unfetched)?),
            None => None,
        };
        let settings = |name| key.clone().filter(|_| name == "CALLBOARD_SECRETS_KEY").or_else(|| (self.lookup)(name));
        let config = Config::read(settings).map_err(|bad| Rejection::Internal(bad.to_string()))?;
        let mut shell = Shell::new(config).map_err(|bad| Rejection::Internal(bad.to_string()))?;
        shell.metrics = Metrics::of((self.lookup)("AWS_LAMBDA_FUNCTION_NAME"));
        shell.tasks = Tasks::of(self.lookup).map_err(|bad| Rejection::Internal(bad.to_string()))?;
        self.log_in(&shell).await?;
        let routes = app(self.routes.clone(), shell.clone());
        Ok((shell, routes))
    }

    /// Has new connections opened as the role's user, or with the secret's name and password, if there is one.
    async fn log_in(&self, shell: &Shell) -> Result<(), Rejection> {
        if let Some(user) = &self.user {
            let who = credentials(self.lookup).map_err(|bad| Rejection::Internal(bad.to_string()))?;
            let (host, port) = shell.store.address();
            shell.store.identify(Some(&user.name), &user.password(&host, port, &who));
        } else if let Some(id) = (self.lookup)(DATABASE_SECRET) {
            let login = self.manager().await?.login(&id).await.map_err(unfetched)?;
            shell.store.identify(login.username.as_deref(), &login.password);
        }
        Ok(())
    }

    async fn manager(&self) -> Result<&SecretsManager, Rejection> {
        let made = self.secrets.get_or_try_init(|| async { SecretsManager::new(self.lookup) });
        made.await.map_err(|bad| Rejection::Internal(bad.to_string()))
    }
}

fn unfetched(why: Unfetched) -> Rejection {
    Rejection::Unfetched(why.to_string())
}
