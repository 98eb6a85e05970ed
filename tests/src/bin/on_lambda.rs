//! Every function's routes by `edge::main`, as a function's own `main` serves its own; or the reaper, as its own does.

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    match std::env::args().nth(1).as_deref() {
        Some("reaper") => reaper::on_lambda().await,
        Some(_) | None => edge::main(localstack::routes()).await,
    }
}
