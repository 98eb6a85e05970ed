//! Which migrations may be applied now: those that expand before the functions that need them, those that contract once nothing needs
//! what they take away.

/// A migration of this release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its number; they are applied in this order.
    pub version: i64,
    /// Whether it takes away what functions of the release before may need.
    pub is_contract: bool,
}

/// The database has a migration that this release does not know: a newer release has been there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown(pub i64);

/// Whether a migration contracts, by its name: `0009_contract_drop_phase.sql` does.
#[must_use]
pub fn is_contract(description: &str) -> bool {
    description.split([' ', '_']).next() == Some("contract")
}

/// The migrations to apply, in their order, to a database that has `applied`. Without `contract` they end before the first that
/// contracts: whatever stands behind it may rely on it.
///
/// # Errors
///
/// [`Unknown`] if the database is ahead of this release, or beside it.
pub fn due(known: &[Known], applied: &[i64], contract: bool) -> Result<Vec<i64>, Unknown> {
    if let Some(version) = applied.iter().find(|version| known.iter().all(|one| one.version != **version)) {
        return Err(Unknown(*version));
    }
    let mut missing: Vec<Known> = known.iter().filter(|one| !applied.contains(&one.version)).copied().collect();
    missing.sort_by_key(|one| one.version);
    Ok(missing.iter().take_while(|one| contract || !one.is_contract).map(|one| one.version).collect())
}

/// The newest migration without which the functions of this release can't work: they do with and without those that contract.
#[must_use]
pub fn needed(known: &[Known]) -> i64 {
    known.iter().filter(|one| !one.is_contract).map(|one| one.version).max().unwrap_or(0)
}

/// The index that a migration makes while others write its table, if it is one that does nothing else. sqlx sends it outside of a
/// transaction, which its first line asks for; as one statement, since Postgres makes several that come together a transaction.
#[must_use]
pub fn index_beside_writers(sql: &str) -> Option<&str> {
    let statement = past_comments(sql.strip_prefix("-- no-transaction\n")?).strip_prefix("create ")?;
    let statement = statement.strip_prefix("unique ").unwrap_or(statement);
    let (name, rest) = statement.strip_prefix("index concurrently if not exists ")?.split_once(' ')?;
    let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let is_alone = rest.trim_end().strip_suffix(';').is_some_and(|rest| !rest.contains(';'));
    (is_name && is_alone).then_some(name)
}

fn past_comments(sql: &str) -> &str {
    match sql.strip_prefix("--").and_then(|comment| comment.split_once('\n')) {
        Some((_, rest)) => past_comments(rest),
        None => sql,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Known; 4] = [
        Known { version: 1, is_contract: false },
        Known { version: 2, is_contract: false },
        Known { version: 3, is_contract: true },
        Known { version: 4, is_contract: true },
    ];

    #[track_caller]
    fn check(applied: &[i64], contract: bool, wanted: Result<&[i64], Unknown>) {
        assert_eq!(due(&KNOWN, applied, contract), wanted.map(<[i64]>::to_vec));
    }

    #[test]
    fn what_expands_is_applied_in_order_and_what_contracts_only_when_asked() {
        check(&[], false, Ok(&[1, 2]));
        check(&[1], false, Ok(&[2]));
        check(&[1, 2], false, Ok(&[]));
        check(&[1, 2], true, Ok(&[3, 4]));
        check(&[], true, Ok(&[1, 2, 3, 4]));
        check(&[1, 2, 3, 4], true, Ok(&[]));
    }

    #[test]
    fn what_stands_behind_a_contraction_waits_with_it() {
        let known = [KNOWN[0], KNOWN[2], Known { version: 4, is_contract: false }];
        assert_eq!((due(&known, &[1], false), due(&known, &[1], true)), (Ok(vec![]), Ok(vec![3, 4])));
    }

    #[test]
    fn a_database_with_an_unknown_migration_is_refused() {
        check(&[1, 2, 5], false, Err(Unknown(5)));
        check(&[1, 2, 3, 4, 5], true, Err(Unknown(5)));
    }

    #[test]
    fn functions_need_what_expands_and_can_do_without_what_contracts() {
        assert_eq!((needed(&KNOWN), needed(&[]), needed(&KNOWN[..1])), (2, 0, 1));
    }

    #[test]
    fn the_first_word_of_a_name_says_whether_it_contracts() {
        for (name, contracts) in
            [("contract drop phase", true), ("contract_x", true), ("contracts", false), ("no contract", false)]
        {
            assert_eq!(is_contract(name), contracts, "{name}");
        }
    }

    #[test]
    fn an_index_is_made_beside_writers_only_by_itself_and_in_words_that_can_be_repeated() {
        let made = "index concurrently if not exists builds_x on builds (id)";
        for (sql, wanted) in [
            (format!("-- no-transaction\n-- Why; so.\ncreate {made};\n"), Some("builds_x")),
            (format!("-- no-transaction\ncreate unique {made};"), Some("builds_x")),
            (format!("create {made};"), None),
            (format!("-- Why.\n-- no-transaction\ncreate {made};"), None),
            (format!("-- no-transaction\ncreate {made}; select 1;"), None),
            (format!("-- no-transaction\nselect 1; create {made};"), None),
            ("-- no-transaction\ncreate index concurrently builds_x on builds (id);".into(), None),
            ("-- no-transaction\ncreate index if not exists builds_x on builds (id);".into(), None),
            ("-- no-transaction\ncreate index concurrently if not exists \"x on builds (id);".into(), None),
        ] {
            assert_eq!(index_beside_writers(&sql), wanted, "{sql}");
        }
    }
}
