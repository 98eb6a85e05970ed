//! A build's network in a container of our own image, whose namespace the build's other containers join.

use super::process::{Ready, ready};
use crate::guard::client;
use crate::isolation::plan::{ContainerOrders, Errand};
use crate::isolation::{Control, Ended, Running};
use crate::lease::{Hold, Lease};
use crate::mark::Mark;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, ready as at_once};
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

/// How long it may take to end.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// How a container gets into a build's network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The container whose network it shares.
    pub container: String,
    /// The port on loopback that is the proxy.
    pub proxy_port: u16,
}

/// A running one. It ends when this is dropped as well, but then its container may be left.
pub struct Contained {
    control: Arc<dyn Control>,
    ended: Shared<BoxFuture<'static, Ended>>,
    /// For renewals to reach it, if it is for as long as a lease.
    held: Option<Hold>,
    /// The way into it.
    pub joined: Joined,
    /// Why only programs that heed the proxy's variables get out, if so.
    pub weak: Option<String>,
}

impl fmt::Debug for Contained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contained").field("joined", &self.joined).finish_non_exhaustive()
    }
}

impl Contained {
    /// Starts it for `build`, whose proxy must be there. Its guard hears of the renewals of `lease` from the beginning. It is given up
    /// once `ends` comes.
    ///
    /// # Errors
    ///
    /// Why there can be none. Nothing of it is left.
    pub async fn start(
        binary: &Path,
        build: &str,
        orders: ContainerOrders,
        lease: Option<&Arc<Lease>>,
        ends: impl Future<Output = ()>,
    ) -> io::Result<Self> {
        match fs::remove_file(&orders.ended_mark) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        Mark::make(&orders.ended_mark)?;
        let container = orders.name.clone();
        let errand = Errand::Container(Box::new(orders));
        let Running { stdout, control, ended, .. } = client::start(binary, build, &errand).await?;
        let ended = and_gone(ended, errand).boxed().shared();
        let held = lease.map(|lease| lease.hold_beside(Arc::clone(&control)));
        let ready = tokio::select! {
            ready = ready(stdout) => ready,
            () = ends => Err(io::Error::other("its build has ended")),
        };
        match ready {
            Ok(Ready { proxy_port, weak }) => {
                let joined = Joined { container, proxy_port };
                Ok(Self { control, ended, held, joined, weak })
            }
            Err(error) => {
                control.kill();
                match timeout(END_PATIENCE, ended).await {
                    Ok(Ended::NeverStarted(why) | Ended::Broken(why)) => Err(io::Error::other(why)),
                    Ok(Ended::Fenced) => Err(io::Error::other(Ended::Fenced.told())),
                    Ok(Ended::Exited { .. }) | Err(_) => Err(error),
                }
            }
        }
    }

    /// Waits until it has ended, though nobody asked it to. May be dropped and called again.
    pub async fn broken(&self) -> Ended {
        self.ended.clone().await
    }

    /// Ends it, and waits until it is gone.
    pub async fn end(self) {
        drop(self.held);
        self.control.kill();
        timeout(END_PATIENCE, self.ended).await.ok();
    }
}

/// A guard that was killed has not removed its container.
async fn and_gone(ended: BoxFuture<'static, Ended>, errand: Errand) -> Ended {
    let ended = ended.await;
    if matches!(ended, Ended::Broken(_)) {
        errand.end().await;
    }
    ended
}

/// What happens to one beside its build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Only programs that heed the proxy's variables get out, and why.
    Weak(String),
    /// It is gone, though nobody asked it to end, and with it all ways out.
    Broken(Ended),
}

/// One that is made while its build goes on. It ends when this is dropped, a while later.
#[derive(Debug)]
pub struct Coming {
    awaited: Awaited,
    ending: DropGuard,
    living: JoinHandle<()>,
}

impl Coming {
    /// Has one made beside the build, by `start`, which is told when it is to be given up.
    pub fn begin<S>(
        start: impl FnOnce(WaitForCancellationFutureOwned) -> S,
        tell: impl Fn(News) + Send + 'static,
    ) -> Self
    where
        S: Future<Output = io::Result<Contained>> + Send + 'static,
    {
        let (coming, here) = oneshot::channel();
        let ends = CancellationToken::new();
        let ending = ends.clone().drop_guard();
        let starting = start(ends.clone().cancelled_owned());
        let living = tokio::spawn(async move {
            match starting.await {
                Ok(contained) => {
                    contained.weak.clone().map(News::Weak).map(&tell);
                    coming.send(Ok(contained.joined.clone())).ok();
                    tokio::select! {
                        biased;
                        () = ends.cancelled() => {}
                        ended = contained.broken() => tell(News::Broken(ended)),
                    }
                    contained.end().await;
                }
                Err(error) => drop(coming.send(Err(error.to_string()))),
            }
        });
        let here = async move { here.await.unwrap_or_else(|_| Err("it has ended".into())) };
        Self { awaited: Awaited(here.boxed().shared()), ending, living }
    }

    /// The way into it.
    #[must_use]
    pub fn awaited(&self) -> Awaited {
        self.awaited.clone()
    }

    /// Ends it, and waits until it is gone, but not for ever.
    pub async fn end(self) {
        drop(self.ending);
        timeout(END_PATIENCE, self.living).await.ok();
    }
}

/// The way into a network that may not be there yet.
#[derive(Clone)]
pub struct Awaited(Shared<BoxFuture<'static, Result<Joined, String>>>);

impl Awaited {
    /// Of one that is there.
    #[must_use]
    pub fn of(joined: Joined) -> Self {
        Self(at_once(Ok(joined)).boxed().shared())
    }

    /// Waits for it. May be dropped and called again.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub async fn joined(&self) -> Result<Joined, String> {
        self.0.clone().await
    }
}

impl fmt::Debug for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Awaited").field(&self.0.peek()).finish()
    }
}
