//! Which worker may take which build (SPEC.md, Claim: routing). The database repeats it in `worker_covers`; a test holds the two
//! equal.

/// What a build needs of a worker. Builds that need the same are of one class, and each workspace has a queue for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Labels that it must have: sorted, each once.
    pub requires: Vec<String>,
    /// Whether a step runs on the host's own files: a worker with bubblewrap.
    pub host: bool,
    /// Whether a step runs in an image: a worker with docker or ecs.
    pub image: bool,
}

/// The image of steps that run on the host's own files.
pub const HOST: &str = "host";

impl Needs {
    /// What a build with these labels and steps' images needs.
    pub fn of<'a>(requires: &[String], images: impl IntoIterator<Item = &'a str>) -> Self {
        let mut needs = Self { requires: requires.to_vec(), host: false, image: false };
        needs.requires.sort_unstable();
        needs.requires.dedup();
        for image in images {
            needs.host |= image == HOST;
            needs.image |= image != HOST;
        }
        needs
    }

    /// Whether a worker with these back ends and labels may take it.
    #[must_use]
    pub fn covered_by(&self, isolation: &[String], labels: &[String]) -> bool {
        let has = |back_end: &str| isolation.iter().any(|own| own == back_end);
        self.requires.iter().all(|label| labels.contains(label))
            && (!self.host || has("bubblewrap"))
            && (!self.image || has("docker") || has("ecs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn check(requires: &[&str], images: &[&str], isolation: &[&str], labels: &[&str], expected: bool) {
        let needs = Needs::of(&words(requires), images.iter().copied());
        assert_eq!(needs.covered_by(&words(isolation), &words(labels)), expected);
    }

    #[test]
    fn a_worker_needs_every_label_and_may_have_more() {
        check(&[], &["host"], &["bubblewrap"], &[], true);
        check(&["arch=arm64"], &["host"], &["bubblewrap"], &[], false);
        check(&["arch=arm64"], &["host"], &["bubblewrap"], &["arch=arm64", "big"], true);
        check(&["arch=arm64", "gpu"], &["host"], &["bubblewrap"], &["arch=arm64", "big"], false);
    }

    #[test]
    fn a_worker_needs_a_back_end_for_every_image() {
        check(&[], &["host"], &["docker"], &[], false);
        check(&[], &["alpine:3"], &["bubblewrap"], &[], false);
        check(&[], &["alpine:3"], &["docker"], &[], true);
        check(&[], &["alpine:3"], &["ecs"], &[], true);
        check(&[], &["host", "alpine:3"], &["docker"], &[], false);
        check(&[], &["host", "alpine:3"], &["bubblewrap", "docker"], &[], true);
        check(&[], &["host"], &[], &[], false);
    }

    proptest! {
        #[test]
        fn the_order_of_labels_makes_no_class(mut labels in prop::collection::vec("[a-c]", 0..5)) {
            let first = Needs::of(&labels, ["host"]);
            labels.reverse();
            labels.extend(labels.clone());
            prop_assert_eq!(Needs::of(&labels, ["host"]), first);
        }
    }
}
