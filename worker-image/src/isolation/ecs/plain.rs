//! What of ECS's words a tenant may read: not which account runs the builds, nor by which roles. The worker's own log has all of it.

/// Digits of an account's number.
const ACCOUNT_DIGITS: usize = 12;
const HIDDEN: &str = "***";

/// `said` without ARNs and accounts.
#[must_use]
pub fn plain(said: &str) -> String {
    said.split_inclusive(char::is_whitespace).map(word).collect()
}

fn word(word: &str) -> String {
    let Some(at) = word.find("arn:") else {
        return without_accounts(word);
    };
    let end = word.trim_end().len();
    format!("{}{HIDDEN}{}", &word[..at], &word[end..])
}

fn without_accounts(word: &str) -> String {
    let is_digit = |letter: &char| letter.is_ascii_digit();
    let (mut plain, mut rest) = (String::new(), word);
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let digits = rest[at..].chars().take_while(is_digit).count();
        plain.push_str(&rest[..at]);
        plain.push_str(if digits == ACCOUNT_DIGITS { HIDDEN } else { &rest[at..at + digits] });
        rest = &rest[at + digits..];
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_accounts_nor_roles_are_told() {
        for (said, expected) in [
            ("Cluster not found.", "Cluster not found."),
            (
                "User: arn:aws:sts::123456789012:assumed-role/worker/x is not authorized to perform: ecs:RunTask",
                "User: *** is not authorized to perform: ecs:RunTask",
            ),
            ("(arn:aws:iam::1:role/a)\nnext", "(***\nnext"),
            (
                "pull 123456789012.dkr.ecr.eu-central-1.amazonaws.com/app:12",
                "pull ***.dkr.ecr.eu-central-1.amazonaws.com/app:12",
            ),
            ("id 1234567890123", "id 1234567890123"),
        ] {
            assert_eq!(plain(said), expected);
        }
    }
}
