//! Every function's routes by `edge::main`, as a function's own `main` serves its own.

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    edge::main(localstack::routes()).await
}
