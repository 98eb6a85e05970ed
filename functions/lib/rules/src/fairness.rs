//! Whose turn it is (SPEC.md, Claim: order). The database repeats it as an index and a window; a test holds the two equal.

/// Which of the builds that may start goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The oldest of all workspaces.
    #[default]
    Oldest,
    /// The oldest of the workspace with the fewest running builds.
    Fair,
}

impl Order {
    /// The word for it in settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Oldest => "oldest",
            Self::Fair => "fair",
        }
    }

    /// The order that `word` names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Oldest, Self::Fair].into_iter().find(|order| order.as_str() == word)
    }
}

/// A workspace that may start a build now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// How many of its builds run.
    pub running: u32,
    /// The number of its oldest pending build.
    pub head: i64,
}

/// The place of the contender whose oldest build starts next. `None` if there are none.
#[must_use]
pub fn next(order: Order, contenders: &[Contender]) -> Option<usize> {
    let rank = |contender: &Contender| match order {
        Order::Oldest => (0, contender.head),
        Order::Fair => (contender.running, contender.head),
    };
    (0..contenders.len()).min_by_key(|place| rank(&contenders[*place]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(order: Order, contenders: &[(u32, i64)], expected: Option<usize>) {
        let contenders: Vec<_> =
            contenders.iter().map(|(running, head)| Contender { running: *running, head: *head }).collect();
        assert_eq!(next(order, &contenders), expected);
    }

    #[test]
    fn the_oldest_goes_first_whoever_it_belongs_to() {
        check(Order::Oldest, &[(0, 7), (9, 3), (1, 5)], Some(1));
        check(Order::Oldest, &[], None);
    }

    #[test]
    fn fair_takes_the_workspace_with_the_fewest_running_and_of_two_the_older_build() {
        check(Order::Fair, &[(2, 1), (1, 9), (1, 8)], Some(2));
        check(Order::Fair, &[], None);
    }

    proptest! {
        #[test]
        fn under_fair_nobody_starts_while_another_with_fewer_running_could(all in prop::collection::vec((0_u32..5, 0_i64..100), 1..20)) {
            let contenders: Vec<_> = all.iter().map(|(running, head)| Contender { running: *running, head: *head }).collect();
            let taken = contenders[next(Order::Fair, &contenders).expect("there are some")];
            prop_assert!(contenders.iter().all(|other| taken.running <= other.running));
        }
    }
}
