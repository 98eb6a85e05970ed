//! The function `previews`, on Lambda or on a socket.

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    edge::main(previews::routes()).await
}
