//! A host that does at once what it is told, on paper: it starts nothing and binds nothing.

use crate::Board;
use protocol::preview::{PortRange, PreviewOrder, PreviewOrders, PreviewReport, PreviewSync};
use rules::preview::{Order, Seen, Stage};
use std::collections::BTreeMap;
use uuid::Uuid;

/// A host.
#[derive(Clone, Debug)]
pub(crate) struct FakeHost {
    pub(crate) token: String,
    pub(crate) id: String,
    pub(crate) ports: PortRange,
    /// Its previews as it finds them, by build.
    pub(crate) previews: BTreeMap<Uuid, PreviewReport>,
    /// What it was told last.
    pub(crate) told: BTreeMap<Uuid, PreviewOrder>,
    pub(crate) next_port: u16,
}

/// A report that a workspace is kept.
pub(crate) fn kept(build_id: Uuid) -> PreviewReport {
    PreviewReport {
        build_id,
        state: Seen::Kept,
        version: None,
        stage: None,
        port: None,
        no_port: false,
        url: None,
        message: None,
        log_tail: None,
    }
}

impl FakeHost {
    /// A host of the board's worker token.
    pub(crate) fn of(board: &Board) -> Self {
        Self {
            token: board.worker.clone(),
            id: "h1".into(),
            ports: PortRange { first: 20_000, last: 29_999 },
            previews: BTreeMap::new(),
            told: BTreeMap::new(),
            next_port: 20_000,
        }
    }

    /// Keeps the workspace of a build.
    pub(crate) fn keep(&mut self, build: Uuid) {
        self.previews.insert(build, kept(build));
    }

    /// What its next sync says.
    pub(crate) fn says(&self) -> PreviewSync {
        PreviewSync { host_id: self.id.clone(), ports: self.ports, previews: self.previews.values().cloned().collect() }
    }

    /// Sends `sync` and returns what it is told, without doing it.
    pub(crate) async fn send(&self, board: &Board, sync: &PreviewSync) -> crate::scenario::Answer {
        let body = serde_json::to_value(sync).expect("JSON");
        board.call(http::Method::POST, "/internal/worker/previews/sync", &self.token, &body).await
    }

    /// One sync; what it is told is noted and done.
    pub(crate) async fn sync(&mut self, board: &Board) {
        let answer = self.send(board, &self.says()).await.ok();
        let orders: PreviewOrders = serde_json::from_value(answer).expect("orders");
        self.told.clear();
        for order in orders.previews {
            self.obey(&order);
            self.told.insert(order.build_id, order);
        }
    }

    /// Syncs until it is told nothing new.
    pub(crate) async fn settle(&mut self, board: &Board) {
        for _ in 0..10 {
            let before = (self.previews.clone(), self.told.clone());
            self.sync(board).await;
            if before == (self.previews.clone(), self.told.clone()) {
                return;
            }
        }
        panic!("it never settles: {:?}", self.told);
    }

    fn obey(&mut self, order: &PreviewOrder) {
        if order.order == Order::Forget {
            self.previews.remove(&order.build_id);
            return;
        }
        let port = self.next_port;
        let report = self.previews.entry(order.build_id).or_insert_with(|| kept(order.build_id));
        report.version = order.version;
        match order.order {
            Order::Start => {
                let run = order.run.as_ref().expect("what to run");
                assert!(run.port > 0 && !run.commands.is_empty());
                report.state = Seen::Running;
                report.port = Some(port);
                report.url = Some(format!("http://127.0.0.1:{port}"));
                self.next_port += 1;
            }
            Order::Rebind => {
                report.port = Some(port);
                report.url = Some(format!("http://127.0.0.1:{port}"));
                self.next_port += 1;
            }
            Order::Stop => self.fails(order.build_id, Stage::Run),
            Order::Destroy => {
                report.state = Seen::Destroyed;
                (report.port, report.url) = (None, None);
            }
            Order::Wait | Order::Keep | Order::Forget => {}
        }
    }

    /// Finds that a preview failed; its port is free again.
    pub(crate) fn fails(&mut self, build: Uuid, stage: Stage) {
        let report = self.previews.get_mut(&build).expect("a preview of this host");
        report.state = Seen::Failed;
        report.stage = Some(stage);
        (report.port, report.url) = (None, None);
    }

    /// The order for a build in the last sync.
    pub(crate) fn order(&self, build: Uuid) -> Option<Order> {
        self.told.get(&build).map(|told| told.order)
    }
}
