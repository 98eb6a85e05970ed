//! A task of an ECS service is ended by a scale-in or a deployment whenever ECS likes, unless it is protected. A worker in such a task
//! holds the protection as long as it claims or has builds, and lets go of it only together with claiming: it *steps aside*.
//!
//! It is asked of ECS's agent, at the address that the agent gives every task; elsewhere there is none, and nothing happens here. A task that
//! can't be protected claims all the same: SIGTERM drains it, as it does anywhere.

mod agent;
pub mod rule;

use crate::backoff::jittered;
use crate::clock::Boot;
use agent::{Agent, Answer};
use rule::{Because, Standing};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

/// How often the first protection is asked for before claims begin without it.
const TRIES: u32 = 3;
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// How a worker's task is protected.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where ECS's agent is; without it, there is no protection.
    pub agent: Option<String>,
    /// How often the protection is renewed, and ECS asked whether it wants fewer workers (60 s).
    pub renew_every: Duration,
    /// After how long without a build the worker steps aside (5 min); without it, only when ECS wants fewer.
    pub idle: Option<Duration>,
    /// For how long it steps aside (60 s).
    pub aside: Duration,
}

/// The protection of this worker's task.
#[derive(Debug)]
pub struct Protection {
    held: Option<Arc<Held>>,
    settings: Settings,
    idle_since: Boot,
    /// How often in a row it stepped aside for nothing.
    in_vain: u32,
    renewing: JoinSet<()>,
}

/// What the renewals and the claim loop share.
#[derive(Debug)]
struct Held {
    /// One call at a time, so that none that is late undoes another.
    agent: tokio::sync::Mutex<Agent>,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    /// Whether it is to be protected.
    wanted: bool,
    /// Whether it is, or may be still.
    protected: bool,
    blocked_since: Option<Boot>,
    /// What was told last, so that the same is not told every minute.
    trouble: Option<String>,
    /// When the last of the builds that were claimed must have ended.
    busy_until: Boot,
}

impl Protection {
    /// Protects this task, if it is one, before its first claim, and from then on.
    pub async fn begin(settings: &Settings) -> Self {
        let agent = settings.agent.as_deref().map(Agent::new).transpose().unwrap_or_else(|error| {
            warn!(%error, "ECS's agent can't be asked, so this task is not protected from scale-in");
            None
        });
        let held = agent.map(|agent| Arc::new(Held::new(agent)));
        let mut protection =
            Self { held, settings: settings.clone(), idle_since: Boot::now(), in_vain: 0, renewing: JoinSet::new() };
        protection.take().await;
        if let Some(held) = protection.held.clone() {
            let every = settings.renew_every;
            protection.renewing.spawn(async move { held.renew(every).await });
        }
        protection
    }

    /// A build was claimed that ends within `deadline`.
    pub fn claimed(&mut self, deadline: Duration) {
        self.in_vain = 0;
        if let Some(held) = &self.held {
            let mut now = held.now();
            now.busy_until = now.busy_until.max(Boot::now().plus(deadline));
        }
    }

    /// Whether the worker, which has so many builds, is to step aside now, and why.
    pub fn wants_aside(&mut self, builds: usize) -> Option<Because> {
        let (now, held) = (Boot::now(), self.held.as_ref()?.now());
        if builds > 0 {
            self.idle_since = now;
        }
        let blocked_for = held.blocked_since.filter(|_| held.protected).map(|since| now.since(since));
        let standing = Standing { builds, idle_for: now.since(self.idle_since), blocked_for };
        rule::steps_aside(standing, rule::patience(self.settings.idle, self.in_vain), self.settings.renew_every)
    }

    /// Lets go, for ECS to end this task if it wants to. The worker must not claim, and have no builds. For how long it is to wait.
    pub async fn release(&mut self) -> Duration {
        self.in_vain = self.in_vain.saturating_add(1);
        match &self.held {
            Some(held) if held.release().await => self.settings.aside,
            Some(_) | None => Duration::ZERO,
        }
    }

    /// Protects the task again, or for the first time.
    pub async fn take(&mut self) {
        self.idle_since = Boot::now();
        if let Some(held) = &self.held {
            held.take().await;
        }
    }
}

impl Held {
    fn new(agent: Agent) -> Self {
        let (blocked_since, trouble, busy_until) = (None, None, Boot::now());
        let now = Now { wanted: false, protected: false, blocked_since, trouble, busy_until };
        Self { agent: tokio::sync::Mutex::new(agent), now: Mutex::new(now) }
    }

    async fn take(&self) {
        self.now().wanted = true;
        for _ in 1..TRIES {
            if self.protect().await {
                return;
            }
            sleep(BETWEEN_TRIES).await;
        }
        self.protect().await;
    }

    async fn renew(&self, every: Duration) {
        loop {
            sleep(jittered(every)).await;
            self.protect().await;
        }
    }

    /// Asks for protection, if that is wanted; whether there was an answer.
    async fn protect(&self) -> bool {
        let agent = self.agent.lock().await;
        if !self.now().wanted {
            return true;
        }
        let minutes = rule::minutes(self.now().busy_until.since(Boot::now()));
        let answer = agent.set(Some(minutes)).await;
        self.note(&answer, minutes);
        !matches!(answer, Answer::Failed(_))
    }

    async fn release(&self) -> bool {
        self.now().wanted = false;
        let answer = self.agent.lock().await.set(None).await;
        let mut now = self.now();
        now.blocked_since = None;
        match answer {
            Answer::Done => {
                (now.protected, now.trouble) = (false, None);
                info!("this task is not protected from scale-in any more");
                true
            }
            Answer::Blocked | Answer::Failed(_) => {
                warn!(?answer, "the protection from scale-in can't be given up");
                false
            }
        }
    }

    fn note(&self, answer: &Answer, minutes: u32) {
        let mut now = self.now();
        let trouble = match answer {
            Answer::Done => {
                if !now.protected || now.trouble.is_some() {
                    info!(minutes, "this task is protected from scale-in");
                }
                (now.protected, now.blocked_since) = (true, None);
                None
            }
            Answer::Blocked => {
                now.blocked_since.get_or_insert_with(Boot::now);
                Some("the service has more protected tasks than it wants".to_owned())
            }
            Answer::Failed(why) => Some(why.clone()),
        };
        if let Some(why) = trouble.as_ref().filter(|_| now.trouble != trouble) {
            warn!(why, protected = now.protected, "no protection from scale-in was given; it is asked for again");
        }
        now.trouble = trouble;
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
