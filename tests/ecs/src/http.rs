//! AWS JSON 1.1 on a socket ("Making API requests" of the ECS reference), and the paths that are for tests alone.

use crate::actions;
use crate::ecs::{Call, Ecs, Given, now};
use crate::faults::Fault;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::task::Stop;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use uuid::Uuid;

const TARGET: &str = "AmazonEC2ContainerServiceV20141113.";
const JSON: &str = "application/x-amz-json-1.1";
/// The actions whose words stay with AWS.
const GIVING: [&str; 4] = ["RegisterTaskDefinition", "RunTask", "StopTask", "TagResource"];

/// On an answer that does not arrive.
#[derive(Clone, Copy)]
struct Lost;

pub(crate) async fn serve(listener: TcpListener, ecs: Arc<Ecs>) {
    let routes = routes(ecs);
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(connection(stream, routes.clone()));
    }
}

/// An error of its service ends a connection without an answer.
async fn connection(stream: TcpStream, routes: Router) {
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let routes = routes.clone();
        async move {
            let response = routes.oneshot(request.map(Body::new)).await.unwrap_or_else(|never| match never {});
            match response.extensions().get::<Lost>() {
                Some(Lost) => Err(io::Error::other("the answer is lost")),
                None => Ok(response),
            }
        }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

fn routes(ecs: Arc<Ecs>) -> Router {
    Router::new()
        .route("/", post(call))
        .route("/_faults", post(fault))
        .route("/_settings", get(settings).put(set))
        .route("/_calls", get(calls))
        .route("/_given", get(given))
        .route("/_left", get(left))
        .route("/_output/{task}/{container}", get(output))
        .with_state(ecs)
}

async fn call(State(ecs): State<Arc<Ecs>>, headers: HeaderMap, body: Bytes) -> Response {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let action = text("x-amz-target").strip_prefix(TARGET).unwrap_or_default().to_owned();
    let at_ms = u64::try_from(ecs.age().as_millis()).unwrap_or(u64::MAX);
    let result = answer(&ecs, &action, &text("content-type"), &body);
    let mut said = result.as_ref().map_or_else(|refusal| refusal.kind, |_| "ok").to_owned();
    let mut response = shown(&result);
    let is_lost = |fault: &Fault| matches!(fault, Fault::LostAnswer { action: of, .. } if *of == action);
    let mut state = ecs.lock();
    if state.faults.take(is_lost).is_some() {
        response.extensions_mut().insert(Lost);
        said = "lost".into();
    }
    if GIVING.contains(&action.as_str()) {
        state.given.push(Given { action: action.clone(), text: String::from_utf8_lossy(&body).into_owned() });
    }
    state.calls.push(Call { action, at_ms, answer: said });
    response
}

fn answer(ecs: &Arc<Ecs>, action: &str, content_type: &str, body: &[u8]) -> Result<Value, Refusal> {
    if content_type != JSON {
        return Err(Refusal::serialization(format!("The content type is not {JSON}.")));
    }
    refuse_by_faults(ecs, action)?;
    let body: Value = serde_json::from_slice(body).map_err(|error| Refusal::serialization(error.to_string()))?;
    actions::act(ecs, action, body)
}

fn refuse_by_faults(ecs: &Ecs, action: &str) -> Result<(), Refusal> {
    let mut state = ecs.lock();
    if state.faults.take(|fault| matches!(fault, Fault::ServerError { action: of, .. } if of == action)).is_some() {
        return Err(Refusal::server());
    }
    let throttled = |fault: &Fault| matches!(fault, Fault::Throttled { action: of, .. } if of == action);
    let is_told = state.faults.take(throttled).is_some();
    let throttle = state.settings.throttles.get(action).copied();
    let is_over = throttle.is_some_and(|throttle| !state.buckets.take(action, throttle, ecs.age()));
    if is_told || is_over { Err(Refusal::throttled()) } else { Ok(()) }
}

fn shown(result: &Result<Value, Refusal>) -> Response {
    let (status, body) = match result {
        Ok(body) => (200, body.to_string()),
        Err(refusal) => (refusal.status, refusal.body().to_string()),
    };
    let mut response = body.into_response();
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    if let Ok(number) = HeaderValue::from_str(&Uuid::new_v4().to_string()) {
        headers.insert("x-amzn-requestid", number);
    }
    response
}

/// Makes something go wrong; of a task that is not there, it says so.
pub(crate) fn inject(ecs: &Ecs, fault: Fault) -> Result<(), String> {
    let (named, stop) = match &fault {
        Fault::SpotInterruption { task } => (task, Stop::new("SpotInterruption", "Your Spot Task was interrupted.")),
        Fault::HostLost { task } => {
            let why = "The infrastructure that hosted the task is lost.";
            (task, Stop { is_lost: true, ..Stop::new("TerminationNotice", why) })
        }
        Fault::ServerError { .. }
        | Fault::Throttled { .. }
        | Fault::LostAnswer { .. }
        | Fault::NotPlaced { .. }
        | Fault::Unpullable { .. } => {
            ecs.lock().faults.add(fault);
            return Ok(());
        }
    };
    let id = named.rsplit('/').next().unwrap_or(named);
    ecs.with(id, |task| task.end(stop, now())).ok_or_else(|| format!("there is no task {named}"))
}

async fn fault(State(ecs): State<Arc<Ecs>>, Json(fault): Json<Fault>) -> Result<StatusCode, (StatusCode, String)> {
    inject(&ecs, fault).map(|()| StatusCode::NO_CONTENT).map_err(|why| (StatusCode::NOT_FOUND, why))
}

async fn settings(State(ecs): State<Arc<Ecs>>) -> Json<Settings> {
    Json(ecs.settings())
}

async fn set(State(ecs): State<Arc<Ecs>>, Json(settings): Json<Settings>) -> StatusCode {
    ecs.lock().settings = settings;
    StatusCode::NO_CONTENT
}

async fn calls(State(ecs): State<Arc<Ecs>>) -> Json<Vec<Call>> {
    Json(ecs.lock().calls.clone())
}

async fn given(State(ecs): State<Arc<Ecs>>) -> Json<Vec<Given>> {
    Json(ecs.lock().given.clone())
}

async fn left(State(ecs): State<Arc<Ecs>>) -> Response {
    match ecs.machine.left().await {
        Ok(left) => Json(left).into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

async fn output(State(ecs): State<Arc<Ecs>>, Path((task, container)): Path<(String, String)>) -> String {
    ecs.output(&task, &container).await
}
