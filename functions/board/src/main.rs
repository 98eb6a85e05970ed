//! The function `board`, on Lambda or on a socket.

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    edge::main(board::routes()).await
}
