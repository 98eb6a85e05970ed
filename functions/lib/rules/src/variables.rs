//! Which of two variables of one name wins. The board and its workers each put a part of an environment together, so both ask here.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Whose a variable is. Of one name the later one here wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Callboard's own, such as `PATH` and `CI`.
    Callboard,
    /// The pipeline's `env`.
    Pipeline,
    /// The `env` that a build was submitted with; also the build's as it is kept, the pipeline's among it.
    Build,
    /// A secret of the workspace that the pipeline names.
    Secret,
    /// What the step, or the preview, says of itself.
    Own,
}

/// For each name the variable that wins, and whose it is. Of two of one origin the later wins.
pub fn winners<V>(variables: impl IntoIterator<Item = (Origin, BTreeMap<String, V>)>) -> BTreeMap<String, (Origin, V)> {
    let mut winners = BTreeMap::new();
    for (origin, of_origin) in variables {
        for (name, value) in of_origin {
            match winners.entry(name) {
                Entry::Vacant(place) => {
                    place.insert((origin, value));
                }
                Entry::Occupied(mut held) if held.get().0 <= origin => {
                    held.insert((origin, value));
                }
                Entry::Occupied(_) => {}
            }
        }
    }
    winners
}

/// The variables that win, by name.
pub fn environment<V>(variables: impl IntoIterator<Item = (Origin, BTreeMap<String, V>)>) -> BTreeMap<String, V> {
    winners(variables).into_iter().map(|(name, (_, value))| (name, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    const ALL: [Origin; 5] = [Origin::Callboard, Origin::Pipeline, Origin::Build, Origin::Secret, Origin::Own];

    fn of(origin: Origin, name: &str) -> (Origin, BTreeMap<String, &'static str>) {
        let word = ["callboard", "pipeline", "build", "secret", "own"][origin as usize];
        (origin, BTreeMap::from([(name.to_owned(), word)]))
    }

    #[test]
    fn a_steps_own_wins_over_a_secret_over_the_builds_over_the_pipelines_over_ours() {
        for count in 1..=ALL.len() {
            let given = ALL[..count].iter().map(|origin| of(*origin, "A"));
            let expected = ["callboard", "pipeline", "build", "secret", "own"][count - 1];
            assert_eq!(environment(given), BTreeMap::from([("A".to_owned(), expected)]));
        }
    }

    proptest! {
        #[test]
        fn each_name_has_the_value_of_its_highest_origin_in_whatever_order_they_come(
            given in prop::collection::vec((select(ALL.to_vec()), prop::collection::btree_map("[A-C]", 0..100_u8, 0..4)), 0..8),
        ) {
            let won = winners(given.clone());
            let names = given.iter().flat_map(|(_, of)| of.keys());
            prop_assert_eq!(names.clone().filter(|name| !won.contains_key(*name)).count(), 0);
            for (name, (origin, value)) in &won {
                let having: Vec<_> = given.iter().filter_map(|(of, them)| Some((*of, *them.get(name)?))).collect();
                let highest = having.iter().map(|(of, _)| *of).max();
                prop_assert_eq!(Some(*origin), highest);
                prop_assert_eq!(having.iter().rfind(|(of, _)| of == origin).map(|(_, value)| value), Some(value));
            }
            prop_assert_eq!(environment(given).len(), won.len());
        }
    }
}
