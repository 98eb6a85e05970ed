//! What a keeper does from its start to its end.

use super::forward::{Door, Forward};
use super::health::{Found, Health};
use super::log::{Log, ToLog};
use super::orders::Orders;
use super::port;
use super::shown::Shown;
use super::talk::Ask;
use crate::descriptors;
use crate::egress::{Proxy, Refusals};
use crate::guard::client;
use crate::isolation::bubblewrap::names;
use crate::isolation::plan::ContainerOrders;
use crate::isolation::{Ended, Exceeded, Running, ServiceNetwork};
use crate::logs::{Reading, read_to};
use crate::mask::Masks;
use crate::network::{Contained, Network, Service};
use futures::future::BoxFuture;
use rules::preview::{Seen, Stage};
use std::collections::BTreeSet;
use std::fs;
use std::future::pending;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

/// How often a port is looked for where all are taken.
const PORT_EVERY: Duration = Duration::from_secs(1);
/// How often what it last wrote is told.
const TAIL_EVERY: Duration = Duration::from_secs(10);
/// How much longer than the grace an end may take before its guard is given up.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long what it wrote is read after its end.
const OUTPUT: Duration = Duration::from_secs(2);

/// Why a preview is over.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Over {
    /// It was to end.
    Asked,
    /// It failed, and how.
    Failed(Stage, String),
}

pub(super) struct Life {
    orders: Orders,
    shown: Arc<Shown>,
    log: Arc<Log>,
    masks: Arc<Masks>,
    places: Arc<Semaphore>,
    /// Ports that another preview has on the board.
    refused: BTreeSet<u16>,
    forward: Option<Forward>,
}

impl Life {
    pub(super) fn new(orders: Orders, shown: Arc<Shown>, log: Arc<Log>, descriptors: u64) -> Self {
        let masks = Arc::new(Masks::new(orders.secrets.iter().map(String::as_str)));
        let places = Arc::new(Semaphore::new(descriptors::connections(descriptors)));
        Self { orders, shown, log, masks, places, refused: BTreeSet::new(), forward: None }
    }

    /// Returns when nothing of it runs and its port is let go.
    pub(super) async fn live(mut self, mut asked: Receiver<Ask>) {
        let over = match self.bind_first(&mut asked).await {
            Some((port, listener)) => self.serve(port, listener, &mut asked).await,
            None => Over::Asked,
        };
        if let Some(forward) = self.forward.take() {
            forward.end().await;
        }
        let log = Arc::clone(&self.log);
        match over {
            Over::Asked => self.shown.change(|report| report.log_tail = log.tail()),
            Over::Failed(stage, why) => {
                let why = self.masks.text(&why);
                self.log.say(&why);
                self.shown.change(|report| {
                    (report.state, report.stage, report.message) = (Seen::Failed, Some(stage), Some(why));
                    (report.url, report.log_tail) = (None, log.tail());
                });
            }
        }
    }

    /// Looks for a port until there is one; `None` if it is to end before.
    async fn bind_first(&mut self, asked: &mut Receiver<Ask>) -> Option<(u16, TcpListener)> {
        loop {
            match self.bind() {
                Ok(bound) => return Some(bound),
                Err(error) => {
                    let (ports, address) = (self.orders.settings.ports, self.orders.settings.address);
                    let why = format!("no port of {}-{} on {address}: {error}", ports.first, ports.last);
                    self.shown.change(|report| (report.no_port, report.message) = (true, Some(why)));
                }
            }
            tokio::select! {
                ask = asked.recv() => match ask {
                    Some(Ask::Stop) => {
                        self.ends();
                        return None;
                    }
                    Some(Ask::Watch | Ask::Rebind(_)) | None => {}
                },
                () = sleep(PORT_EVERY) => {}
            }
        }
    }

    /// A port that was refused is tried again once all others are taken: whoever had it may have let it go.
    fn bind(&mut self) -> io::Result<(u16, TcpListener)> {
        let (settings, build) = (&self.orders.settings, self.orders.build);
        let bound = port::bind(settings.address, settings.ports, build, &self.refused);
        if bound.is_err() {
            self.refused.clear();
        }
        bound
    }

    fn ends(&self) {
        self.shown.change(|report| report.state = Seen::Destroying);
    }

    async fn serve(&mut self, port: u16, listener: TcpListener, asked: &mut Receiver<Ask>) -> Over {
        let equipped = match self.equip().await {
            Ok(equipped) => equipped,
            Err(error) => return Over::Failed(Stage::Start, format!("its network can't be made: {error}")),
        };
        let over = match self.open(port, listener) {
            Ok(door) => self.run(&equipped, door, asked).await,
            Err(error) => Over::Failed(Stage::Start, format!("connections can't be carried: {error}")),
        };
        equipped.end().await;
        over
    }

    /// The way out, and the network, which has the way in where it is a process.
    async fn equip(&mut self) -> io::Result<Equipped> {
        let Orders { site, build, binary, run_as, port, door, .. } = &self.orders;
        let socket = site.join(names::EGRESS);
        for left in [&socket, door] {
            match fs::remove_file(left) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        let (log, masks) = (Arc::clone(&self.log), Arc::clone(&self.masks));
        let refusals: Refusals = Arc::new(move |line: String| log.say(&masks.text(&line)));
        let (service, build) = (Service { port: *port, door }, build.to_string());
        let proxy = Proxy::start(self.orders.way(socket.clone()), refusals).await?;
        let network = match &self.orders.network {
            ServiceNetwork::Process => {
                let network = Network::start(binary, &build, &socket, *run_as, Some(service)).await?;
                self.orders.errand.enter(network.inside);
                Around::Process(network)
            }
            ServiceNetwork::Container(orders) => {
                let network = Contained::start(binary, &build, ContainerOrders::clone(orders), None, pending()).await?;
                self.orders.errand.join(&network.joined);
                Around::Container(network)
            }
        };
        Ok(Equipped { proxy, network })
    }

    /// From now on users are let in: the port is told once it is bound and this is so.
    fn open(&mut self, port: u16, listener: TcpListener) -> io::Result<Door> {
        let door = Door::of(&self.orders.door, Arc::clone(&self.places))?;
        self.forward = Some(Forward::start(listener, door.clone())?);
        self.bound(port);
        Ok(door)
    }

    fn bound(&self, port: u16) {
        let url = self.orders.settings.url(port);
        self.shown.change(|report| {
            (report.port, report.url, report.no_port, report.message) = (Some(port), Some(url), false, None);
        });
    }

    async fn run(&mut self, equipped: &Equipped, door: Door, asked: &mut Receiver<Ask>) -> Over {
        if let Some(why) = equipped.network.weak() {
            self.log.say(&format!("only programs that heed HTTP_PROXY and the like get out ({why})"));
        }
        let (binary, build) = (&self.orders.binary, self.orders.build.to_string());
        let running = match client::start(binary, &build, &self.orders.errand).await {
            Ok(running) => running,
            Err(error) => return Over::Failed(Stage::Start, format!("it could not be started: {error}")),
        };
        let Running { stdout, stderr, control, mut ended } = running;
        let outputs = [
            read_to(stdout, Arc::clone(&self.masks), ToLog(Arc::clone(&self.log))),
            read_to(stderr, Arc::clone(&self.masks), ToLog(Arc::clone(&self.log))),
        ];
        let over = match self.watch(&door, &equipped.network, &mut ended, asked).await {
            (over, true) => over,
            (over, false) => {
                control.terminate();
                let patience = Duration::from_millis(self.orders.kill_grace_ms) + PATIENCE;
                // With `ended` the guard is dropped, and with the guard its sandbox.
                timeout(patience, ended).await.ok();
                over
            }
        };
        until_read(outputs).await;
        if over == Over::Asked || !self.orders.errand.is_kept() {
            self.orders.errand.end().await;
        }
        over
    }

    /// Until it is over; says whether the service is so by itself.
    async fn watch(
        &mut self,
        door: &Door,
        network: &Around,
        ended: &mut BoxFuture<'static, Ended>,
        asked: &mut Receiver<Ask>,
    ) -> (Over, bool) {
        let (mut asking, mut answered) = (JoinSet::new(), false);
        let mut found = self.health(door).watch(&mut asking);
        let mut tails = interval(TAIL_EVERY);
        loop {
            tokio::select! {
                ended = &mut *ended => return (self.ended(&ended, answered), true),
                ended = network.broken() => {
                    let why = format!("the service's network broke: {}", ended.told());
                    return (Over::Failed(stage(answered), why), false);
                }
                ask = asked.recv() => match ask {
                    Some(Ask::Stop) => {
                        self.ends();
                        return (Over::Asked, false);
                    }
                    Some(Ask::Rebind(port)) => {
                        self.refused.insert(port);
                        self.rebind(door).await;
                    }
                    Some(Ask::Watch) | None => {}
                },
                found = found.recv() => match found {
                    Some(Found::Answers) => {
                        answered = true;
                        let log = Arc::clone(&self.log);
                        self.shown.change(|report| (report.state, report.log_tail) = (Seen::Running, log.tail()));
                    }
                    Some(Found::Silent(why)) => return (Over::Failed(stage(answered), why), false),
                    None => return (Over::Failed(Stage::Internal, "nobody asks after it any more".into()), false),
                },
                () = sleep(PORT_EVERY), if self.is_refused() => self.rebind(door).await,
                _ = tails.tick() => {
                    let log = Arc::clone(&self.log);
                    self.shown.change(|report| report.log_tail = log.tail());
                }
            }
        }
    }

    fn health(&self, door: &Door) -> Health {
        Health {
            door: door.clone(),
            port: self.orders.port,
            path: self.orders.health_path.clone(),
            start: self.orders.settings.start,
            every: self.orders.settings.health_every,
        }
    }

    fn ended(&self, ended: &Ended, answered: bool) -> Over {
        let why = match ended {
            Ended::Exited { exceeded: Some(Exceeded::Memory), .. } => "the service ran out of memory".into(),
            Ended::Exited { exceeded: Some(Exceeded::Disk), .. } => "the service filled its disk".into(),
            Ended::Exited { code, exceeded: None } if answered => format!("the service ended with exit code {code}"),
            Ended::Exited { code, exceeded: None } => {
                format!("the service ended with exit code {code} before {} answered", self.orders.health_path)
            }
            Ended::NeverStarted(why) => format!("the sandbox could not be started: {why}"),
            Ended::Broken(why) => format!("the sandbox was lost: {why}"),
            Ended::Fenced => "the sandbox was ended".into(),
        };
        Over::Failed(stage(answered), why)
    }

    /// Binds another port before it lets go of the one that the board refused. Without any other it keeps that one, and looks on.
    async fn rebind(&mut self, door: &Door) {
        let Some(refused) = self.shown.watch().borrow().port.filter(|port| self.refused.contains(port)) else {
            return;
        };
        let bound = self.bind();
        // Forgotten where nothing else is free; but this one is still not to be had.
        self.refused.insert(refused);
        match bound.and_then(|(port, listener)| Ok((port, Forward::start(listener, door.clone())?))) {
            Ok((port, forward)) => {
                if let Some(before) = self.forward.replace(forward) {
                    before.end().await;
                }
                self.refused.remove(&refused);
                self.bound(port);
            }
            Err(_) => self.shown.change(|report| report.no_port = true),
        }
    }

    fn is_refused(&self) -> bool {
        self.shown.watch().borrow().port.is_some_and(|port| self.refused.contains(&port))
    }
}

/// What the service shares with nobody.
struct Equipped {
    proxy: Proxy,
    network: Around,
}

impl Equipped {
    async fn end(self) {
        tokio::join!(self.network.end(), self.proxy.end());
    }
}

/// The network around a service.
enum Around {
    Process(Network),
    Container(Contained),
}

impl Around {
    fn weak(&self) -> Option<&str> {
        match self {
            Self::Process(network) => network.weak.as_deref(),
            Self::Container(network) => network.weak.as_deref(),
        }
    }

    /// Waits until a container's is gone though nobody asked it to end; of a process nobody is told.
    async fn broken(&self) -> Ended {
        match self {
            Self::Process(_) => pending().await,
            Self::Container(network) => network.broken().await,
        }
    }

    async fn end(self) {
        match self {
            Self::Process(network) => network.end().await,
            Self::Container(network) => network.end().await,
        }
    }
}

async fn until_read(outputs: [Reading; 2]) {
    let [stdout, stderr] = outputs;
    tokio::join!(stdout.end(OUTPUT), stderr.end(OUTPUT));
}

fn stage(answered: bool) -> Stage {
    if answered { Stage::Run } else { Stage::Start }
}
