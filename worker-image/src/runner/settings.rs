//! What a runner is told by its task: variables of its container, and nothing of the tenant's.

use crate::config::{Grace, Token};
use crate::isolation::Limits;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use uuid::Uuid;

/// How many containers of steps a task can have besides the runner's and the clone's.
const ROOMS_MAX: u8 = 8;
/// Memory, CPU and disk are the task's to limit, processes a room's.
const LIMITS: Limits = Limits { memory_bytes: 0, processes: 4096, cpu_millis: 0, disk_bytes: 0 };

/// What a runner is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the control plane is: `http(s)://host:port`, without a path's last `/`.
    pub url: String,
    /// The build.
    pub build: Uuid,
    /// Its log token.
    pub log_token: Token,
    /// Certificates (PEM) to trust besides the system's: for the control plane and for the clone.
    pub pem: Option<String>,
    /// How long the lease of the build's worker lasts each time.
    pub lease_ttl_ms: u64,
    /// How long after the lease's end the board may call the build lost.
    pub lease_grace_ms: u64,
    /// How often the board is to hear of the runner.
    pub every: Duration,
    /// The durations within which things must have ended.
    pub grace: Grace,
    /// What a room may take.
    pub limits: Limits,
    /// How many rooms of steps the task has.
    pub rooms: u8,
    /// How long the rooms may take to be there.
    pub rooms_within: Duration,
    /// Where things are.
    pub place: Place,
}

/// Where things are in the task's containers. A test has them elsewhere.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where rooms find the runner.
    pub socket: PathBuf,
    /// The runner's own directory.
    pub directory: PathBuf,
    /// The workspace, here and in every room.
    pub workspace: PathBuf,
    /// Where a room has the files of its program, which it makes and removes.
    pub inside: String,
}

impl Settings {
    /// Reads the variables that `of` has.
    ///
    /// # Errors
    ///
    /// Which of them is missing or can't be. No value is in it.
    pub fn read(of: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let variables = Variables(of);
        let url = variables.needed::<String>("CALLBOARD_URL")?.trim_end_matches('/').to_owned();
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err("CALLBOARD_URL must begin with https:// or http://".into());
        }
        let rooms = variables.needed("CALLBOARD_ROOMS")?;
        if rooms > ROOMS_MAX {
            return Err(format!("CALLBOARD_ROOMS must be {ROOMS_MAX} at most"));
        }
        let place = Place {
            socket: variables.or("CALLBOARD_RUNNER_SOCKET", shim::SOCKET.into())?,
            directory: variables.or("CALLBOARD_RUNNER_DIRECTORY", "/run/callboard/build".into())?,
            workspace: variables.or("CALLBOARD_RUNNER_WORKSPACE", "/workspace".into())?,
            inside: variables.or("CALLBOARD_RUNNER_INSIDE", "/tmp/.callboard".into())?,
        };
        let grace = Grace {
            kill: variables.needed_ms("CALLBOARD_KILL_GRACE_MS")?,
            fence_margin: variables.ms("CALLBOARD_FENCE_MARGIN_MS", Grace::default().fence_margin)?,
            ..Grace::default()
        };
        Ok(Self {
            url,
            build: variables.needed("CALLBOARD_BUILD")?,
            log_token: Token(variables.needed("CALLBOARD_LOG_TOKEN")?),
            pem: variables.get("CALLBOARD_CA_PEM"),
            lease_ttl_ms: variables.needed("CALLBOARD_LEASE_TTL_MS")?,
            lease_grace_ms: variables.needed("CALLBOARD_LEASE_GRACE_MS")?,
            every: variables.needed_ms("CALLBOARD_HEARTBEAT_EVERY_MS")?,
            grace,
            limits: LIMITS,
            rooms,
            rooms_within: variables.ms("CALLBOARD_RUNNER_ROOMS_WITHIN_MS", Duration::from_secs(600))?,
            place,
        })
    }
}

struct Variables<F>(F);

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    /// One that is empty is as good as none.
    fn get(&self, name: &str) -> Option<String> {
        self.0(name).filter(|value| !value.trim().is_empty())
    }

    fn needed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T, String> {
        let value = self.get(name).ok_or_else(|| format!("{name} is not set"))?;
        value.trim().parse().map_err(|_| format!("{name} is none"))
    }

    fn or<T: FromStr<Err: Display>>(&self, name: &str, usual: T) -> Result<T, String> {
        if self.get(name).is_some() { self.needed(name) } else { Ok(usual) }
    }

    fn needed_ms(&self, name: &str) -> Result<Duration, String> {
        self.needed(name).map(Duration::from_millis)
    }

    fn ms(&self, name: &str, usual: Duration) -> Result<Duration, String> {
        if self.get(name).is_some() { self.needed_ms(name) } else { Ok(usual) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: [(&str, &str); 8] = [
        ("CALLBOARD_URL", "https://board.example.com/"),
        ("CALLBOARD_BUILD", "0191e3a8-6c1d-7b3a-9d0e-5a2f7c8b9e10"),
        ("CALLBOARD_LOG_TOKEN", "not-a-real-token"),
        ("CALLBOARD_LEASE_TTL_MS", "60000"),
        ("CALLBOARD_LEASE_GRACE_MS", "120000"),
        ("CALLBOARD_HEARTBEAT_EVERY_MS", "30000"),
        ("CALLBOARD_KILL_GRACE_MS", "10000"),
        ("CALLBOARD_ROOMS", "8"),
    ];

    fn read(but: (&str, &str)) -> Result<Settings, String> {
        Settings::read(|name| {
            let told = TOLD.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            let told = if but.0 == name { Some(but.1) } else { told };
            told.map(str::to_owned)
        })
    }

    #[test]
    fn all_that_has_no_default_is_needed() {
        assert_eq!(read(("", "")).unwrap().url, "https://board.example.com");
        for (name, _) in TOLD {
            assert_eq!(read((name, " ")).unwrap_err(), format!("{name} is not set"));
        }
    }

    #[test]
    fn what_can_not_be_is_named_and_not_shown() {
        for (name, value) in [
            ("CALLBOARD_URL", "ftp://hunter2"),
            ("CALLBOARD_BUILD", "hunter2"),
            ("CALLBOARD_ROOMS", "9"),
            ("CALLBOARD_LEASE_TTL_MS", "hunter2"),
            ("CALLBOARD_FENCE_MARGIN_MS", "hunter2"),
        ] {
            let bad = read((name, value)).unwrap_err();
            assert!(bad.contains(name) && !bad.contains("hunter2"), "{bad}");
        }
        assert!(!format!("{:?}", read(("", "")).unwrap()).contains("not-a-real-token"));
    }
}
