//! The function `reaper`, on Lambda: a sweep at each event of its schedule, its route to requests.

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    reaper::on_lambda().await
}
