//! What may stand in a pipeline: names, variables, timeouts, counts. Each rule names the field it is about.

/// The most steps a pipeline may have.
pub const STEPS_MAX: usize = 64;
/// The most commands a step may have.
pub const COMMANDS_MAX: usize = 256;
/// The most variables, of a pipeline, a step or a build.
pub const ENV_MAX: usize = 256;
/// The longest value of a variable, in bytes.
pub const ENV_VALUE_MAX_BYTES: usize = 32 * 1024;
/// The longest command, in bytes.
pub const COMMAND_MAX_BYTES: usize = 64 * 1024;
/// The longest value of a secret, in bytes.
pub const SECRET_MAX_BYTES: usize = 64 * 1024;

/// Whether `slug` may name a pipeline or a workspace: 1 to 63 of `a-z`, `0-9` and `-`, not at either end a `-`.
#[must_use]
pub fn is_slug(slug: &str) -> bool {
    (1..=63).contains(&slug.len())
        && !slug.starts_with('-')
        && !slug.ends_with('-')
        && slug.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Whether `name` may name a variable or a secret: a letter or `_`, then letters, digits and `_`, at most 128.
/// Names that begin with `CALLBOARD_` are ours.
#[must_use]
pub fn is_env_name(name: &str) -> bool {
    let first_is_fine = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first_is_fine
        && name.len() <= 128
        && !name.starts_with("CALLBOARD_")
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether `value` may be a variable's value: no NUL, at most [`ENV_VALUE_MAX_BYTES`].
#[must_use]
pub fn is_env_value(value: &str) -> bool {
    value.len() <= ENV_VALUE_MAX_BYTES && !value.contains('\0')
}

/// Whether `name` may name a step: 1 to 64 visible characters or spaces, no space at either end.
#[must_use]
pub fn is_step_name(name: &str) -> bool {
    (1..=64).contains(&name.chars().count()) && name.trim() == name && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: impl Fn(&str) -> bool, fine: &[&str], bad: &[&str]) {
        for word in fine {
            assert!(rule(word), "{word:?}");
        }
        for word in bad {
            assert!(!rule(word), "{word:?}");
        }
    }

    #[test]
    fn names_of_pipelines_and_workspaces() {
        check(is_slug, &["a", "web-1", &"a".repeat(63)], &["", "-a", "a-", "A", "a_b", "a b", "é", &"a".repeat(64)]);
    }

    #[test]
    fn names_of_variables() {
        let long = "A".repeat(128);
        check(is_env_name, &["A", "_a1", &long], &["", "1A", "A=B", "A B", "A\0", "CALLBOARD_URL", &"A".repeat(129)]);
    }

    #[test]
    fn values_of_variables() {
        let (long, longer) = ("a".repeat(ENV_VALUE_MAX_BYTES), "a".repeat(ENV_VALUE_MAX_BYTES + 1));
        check(is_env_value, &["", "a=b\n", &long], &["a\0", &longer]);
    }

    #[test]
    fn names_of_steps() {
        check(is_step_name, &["test", "unit tests", "é"], &["", " a", "a ", "a\nb", &"a".repeat(65)]);
    }
}
