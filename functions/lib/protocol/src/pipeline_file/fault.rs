//! What is wrong with a pipeline file, and where.

use std::fmt;

/// A place in the file, counted from 1; columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// The key, such as `steps[1].timeout`; empty where the YAML itself is wrong.
    pub key: String,
    /// What, and how to mend it.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "{}: {}", self.place, self.what),
            key => write!(f, "{}: {}: {}", self.place, key, self.what),
        }
    }
}

/// All that is wrong with a file, by line; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl Faults {
    /// One line a fault, each beginning with the file's name: `callboard.yaml:7:5: steps[1].timeout: …`.
    #[must_use]
    pub fn of_file(&self, name: &str) -> String {
        self.0.iter().map(|fault| format!("{name}:{fault}")).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.of_file("callboard.yaml"))
    }
}

impl std::error::Error for Faults {}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self(vec![fault])
    }
}
