//! Which indexes migrations make, and beside whom.

use rules::migrations::index_beside_writers;
use std::collections::BTreeSet;

/// From this one on. There was no release before, so no database with rows was brought to earlier ones.
const FIRST_BUSY: u32 = 12;
/// The indexes of earlier ones on tables that were there: made while nobody could write.
const WHILE_NOBODY_WROTE: [&str; 4] = [
    "3: create index builds_pending on builds (workspace_id, class_id, number) where status = 'pending'",
    "3: create index builds_pending_age on builds (created_at) where status = 'pending'",
    "3: create index builds_running on builds (id) where status = 'running'",
    "3: create index plans_age on plans (fetched_at) where fetched_at is not null",
];

/// Each migration's number, name and text.
fn migrations() -> Vec<(u32, String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("migrations") {
        let path = entry.expect("a file").path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let number = name.split_once('_').and_then(|(number, _)| number.parse().ok());
        if let Some(number) = number {
            all.push((number, name, std::fs::read_to_string(&path).expect("a migration")));
        }
    }
    all.sort();
    all
}

/// The statements of a migration, in small letters and single spaces, without comments.
fn statements(text: &str) -> Vec<String> {
    let bare: Vec<&str> = text.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code)).collect();
    let words = bare.join(" ").to_lowercase();
    words.split(';').map(|one| one.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn after<'a>(statement: &'a str, word: &str) -> Option<&'a str> {
    let rest = statement.split_once(word)?.1;
    Some(rest.trim_start_matches("if not exists ").split([' ', '(']).next().unwrap_or_default())
}

/// The statements of `text` that make an index of a table that `text` does not make: nobody writes there meanwhile, unless it is beside writers.
fn blocking(text: &str) -> Vec<String> {
    if index_beside_writers(text).is_some() {
        return Vec::new();
    }
    let all = statements(text);
    let new: BTreeSet<&str> = all.iter().filter_map(|one| after(one, "create table ")).collect();
    let makes_index = |one: &str| {
        let is_index = one.contains("create index ") || one.contains("create unique index ");
        let by_constraint = one.contains("alter table ")
            && !one.contains("using index")
            && [" unique", " primary key", " exclude "].iter().any(|word| one.contains(word));
        let table = if is_index { after(one, " on ") } else { after(one, "alter table ") };
        (is_index || by_constraint) && !table.is_some_and(|table| new.contains(table))
    };
    all.iter().filter(|one| makes_index(one)).cloned().collect()
}

#[test]
fn an_index_of_a_table_that_has_rows_is_made_beside_writers() {
    for (number, name, text) in migrations().into_iter().filter(|(number, ..)| *number >= FIRST_BUSY) {
        let wanted = "make it in a migration of its own: `-- no-transaction` in the first line, and then only \
                      `create index concurrently if not exists NAME on …;` (CONTRIBUTING.md)";
        assert_eq!(blocking(&text), Vec::<String>::new(), "{number}, {name}: {wanted}");
        let is_outside = text.starts_with("-- no-transaction");
        assert!(!is_outside || index_beside_writers(&text).is_some(), "{name} is outside of a transaction; {wanted}");
    }
}

#[test]
fn earlier_ones_are_known_for_what_they_are() {
    let earlier = migrations().into_iter().filter(|(number, ..)| *number < FIRST_BUSY);
    let found: Vec<String> = earlier
        .flat_map(|(number, _, text)| blocking(&text).into_iter().map(move |one| format!("{number}: {one}")))
        .collect();
    assert_eq!(found, WHILE_NOBODY_WROTE);
}

#[test]
fn what_keeps_writers_out_is_found_however_it_is_written() {
    for text in [
        "create index x on builds (id);",
        "CREATE UNIQUE INDEX x\n    on builds (id);",
        "create table a (id int);\ncreate index x on builds (id);",
        "-- no-transaction\ncreate index concurrently x on builds (id);",
        "alter table builds add constraint x unique (id);",
        "alter table builds add column x text unique;",
    ] {
        assert_eq!(blocking(text).len(), 1, "{text}");
    }
    for text in [
        "create table a (id int unique);\ncreate index x on a (id);",
        "-- no-transaction\ncreate index concurrently if not exists x on builds (id);",
        "alter table builds add column x text; -- create index x on builds (x);",
    ] {
        assert_eq!(blocking(text), Vec::<String>::new(), "{text}");
    }
}
