//! The function `migrate`, on Lambda only.

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    migrate::on_lambda().await
}
