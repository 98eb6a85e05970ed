//! The statements of a claim and of a complete, as the server itself logs them: pgbench runs what the board runs, and
//! nothing has to be copied when a statement changes.

use crate::board::Board;
use crate::load;
use crate::postgres::{Postgres, execute};
use crate::seed::CLAIMED;
use crate::server::Combine;
use anyhow::Context as _;
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

/// A pgbench script, and its variables with their values.
pub struct Script {
    /// The script.
    pub text: String,
    /// Names and values.
    pub variables: Vec<(String, String)>,
}

/// One statement as it was run.
struct Logged {
    text: String,
    parameters: Vec<Option<String>>,
}

/// Lets a board over `database`, made as a copy of `template`, claim and complete one build, and makes a script of what it
/// ran for that. The script is good for this database and copies of it, since it bears its worker's token.
pub async fn pair(postgres: &Postgres, template: &str, database: &str) -> anyhow::Result<Script> {
    let board = Board::copy(postgres, template, database, Combine::Off).await?;
    let mut admin = postgres.connect(database).await?;
    let mut worker = board.worker().await?;
    // The first pair sets its connections up.
    let first = load::claim(&mut worker).await?;
    load::succeed(&mut worker, first).await?;
    board.server.stop().await?;

    execute(&mut admin, &format!("alter database {database} set log_statement = 'all'")).await?;
    let board = Board::serve(postgres, database, Combine::Off).await?;
    let mut worker = board.worker().await?;
    let claim = Uuid::new_v4();
    let claimed_from = postgres.log()?.len();
    let build = load::claim_as(&mut worker, claim).await?;
    let completed_from = postgres.log()?.len();
    load::succeed(&mut worker, build).await?;
    let log = postgres.log()?;
    board.stop().await?;

    let mut script = Script { text: String::new(), variables: vec![(CLAIMED.into(), Uuid::nil().to_string())] };
    let known = [(claim, "gen_random_uuid()".to_owned()), (build, format!("nullif(:{CLAIMED}, '')::uuid"))];
    for (words, takes) in [(&log[claimed_from..completed_from], true), (&log[completed_from..], false)] {
        let statements = read(words);
        anyhow::ensure!(!statements.is_empty(), "the server's log holds no statement of the call");
        for (at, statement) in statements.iter().enumerate() {
            script.add(&mut admin, statement, &known, takes && at + 1 == statements.len()).await?;
        }
    }
    Ok(script)
}

impl Script {
    /// Adds a statement; one that takes a build keeps its id for those that follow.
    async fn add(
        &mut self,
        conn: &mut PgConnection,
        statement: &Logged,
        known: &[(Uuid, String)],
        takes: bool,
    ) -> anyhow::Result<()> {
        let types = types(conn, &statement.text).await?;
        let mut text = plain(&statement.text);
        let number = self.text.lines().count();
        for (at, value) in statement.parameters.iter().enumerate().rev() {
            let kind = types.get(at).context("a parameter without a type")?;
            let said = self.spoken(format!("s{number}_{at}"), value.as_deref(), kind, known);
            text = text.replace(&format!("${}", at + 1), &said);
        }
        self.text.push_str(text.trim().trim_end_matches(';'));
        self.text.push_str(if takes { " \\aset\n" } else { ";\n" });
        Ok(())
    }

    /// A parameter as the script has it: what differs from call to call is made by it, what does not is a variable (which
    /// pgbench refuses to be empty).
    fn spoken(&mut self, name: String, value: Option<&str>, kind: &str, known: &[(Uuid, String)]) -> String {
        let Some(value) = value else { return format!("null::{kind}") };
        if value.is_empty() {
            return format!("''::{kind}");
        }
        let own = format!(":{name}");
        let mut said = own.clone();
        for (id, made) in known {
            let id = id.to_string();
            if value == id {
                return format!("({made})");
            }
            if value.contains(&id) {
                said = format!("replace({said}, '{id}', ({made})::text)");
            }
        }
        self.variables.push((name, value.to_owned()));
        if said == own { format!("{own}::{kind}") } else { format!("({said})::{kind}") }
    }
}

/// The types of a statement's parameters, as the server infers them.
async fn types(conn: &mut PgConnection, text: &str) -> anyhow::Result<Vec<String>> {
    execute(conn, &format!("prepare asked as {text}")).await?;
    let query = "select parameter_types::text[] from pg_prepared_statements where name = 'asked'";
    let types = sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut *conn).await?;
    execute(conn, "deallocate asked").await?;
    Ok(types)
}

/// A statement in one line, without what the board's driver reads out of the names of columns (`"build!"`).
fn plain(text: &str) -> String {
    let mut words = text.split('"');
    let mut plain = words.next().unwrap_or_default().to_owned();
    for (at, word) in words.enumerate() {
        let name = if at % 2 == 0 { word.split(['!', '?', ':']).next().unwrap_or(word) } else { word };
        plain.push('"');
        plain.push_str(name);
    }
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The board's statements in a piece of the server's log, in order, without those that its driver asks types with.
fn read(log: &str) -> Vec<Logged> {
    let mut statements: Vec<Logged> = Vec::new();
    let mut entries: Vec<String> = Vec::new();
    for line in log.lines() {
        match (line.strip_prefix('\t'), entries.last_mut()) {
            (Some(more), Some(entry)) => {
                entry.push('\n');
                entry.push_str(more);
            }
            _ => entries.push(line.to_owned()),
        }
    }
    for entry in entries.iter().filter_map(|entry| entry.strip_prefix("callboard|")) {
        if let Some(text) = entry.strip_prefix("LOG:  execute ").and_then(|rest| rest.split_once(": ")) {
            statements.push(Logged { text: text.1.to_owned(), parameters: Vec::new() });
        } else if let Some(text) = entry.strip_prefix("LOG:  statement: ") {
            statements.push(Logged { text: text.to_owned(), parameters: Vec::new() });
        } else if let (Some((_, list)), Some(last)) = (parameters(entry), statements.last_mut()) {
            last.parameters = values(list);
        }
    }
    statements.retain(|statement| !statement.text.contains("pg_catalog"));
    statements
}

fn parameters(entry: &str) -> Option<(&str, &str)> {
    let detail = entry.strip_prefix("DETAIL:  ")?;
    detail.split_once("arameters: ")
}

/// Reads `$1 = 'it''s', $2 = NULL`.
fn values(list: &str) -> Vec<Option<String>> {
    let (mut values, mut rest) = (Vec::new(), list);
    while let Some((_, value)) = rest.split_once(" = ") {
        let Some(quoted) = value.strip_prefix('\'') else {
            values.push(None);
            rest = value.split_once(", ").map_or("", |(_, rest)| rest);
            continue;
        };
        let end = end_of(quoted);
        values.push(Some(quoted[..end].replace("''", "'")));
        rest = &quoted[end..];
    }
    values
}

/// Where a quoted value ends: at a quote that is not doubled.
fn end_of(quoted: &str) -> usize {
    let bytes = quoted.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'\'', Some(b'\'')) => at += 2,
            (b'\'', _) => return at,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logged_statement_is_read_with_its_parameters() {
        let log = "callboard|LOG:  execute sqlx_s_1: select $1,\n\t\t$2\ncallboard|DETAIL:  parameters: $1 = 'it''s, $2 = x', $2 = NULL, $3 = '{}'\nbench|LOG:  statement: commit";
        let statements = read(log);
        assert_eq!(statements.len(), 1);
        assert_eq!(statements[0].parameters, [Some("it's, $2 = x".to_owned()), None, Some("{}".to_owned())]);
    }

    #[test]
    fn names_of_columns_lose_what_the_driver_reads() {
        assert_eq!(plain("select a as \"b!\", c as \"d: Json<X>\"\n from e"), "select a as \"b\", c as \"d\" from e");
    }
}
