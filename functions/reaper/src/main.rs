//! The scheduled function: one sweep an event.

use edge::{Config, Shell, telemetry};
use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::start(None, None, true)?;
    let shell = &Shell::new(Config::from_env()?)?;
    lambda_runtime::run(service_fn(|_: LambdaEvent<serde_json::Value>| async move {
        let swept = reaper::sweep(shell).await?;
        Ok::<_, Error>(serde_json::to_value(swept)?)
    }))
    .await
}
