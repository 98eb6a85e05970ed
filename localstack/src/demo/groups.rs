//! The control groups of a worker that was killed: the next worker on its builds root would end them, and a demo's has none.

use std::fs;
use std::path::Path;

/// Where a worker lists the groups of its builds root, in a demo's directory.
const LISTED: &str = "board/builds/.groups";
/// How the name of such a group begins.
const NAMED: &str = "callboard-";

/// Removes what the demo in `dir` lists, once its processes have ended. What still has some stays.
pub(super) fn remove(dir: &Path) {
    let listed = fs::read_to_string(dir.join(LISTED)).unwrap_or_default();
    let is_named = |group: &&Path| group.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NAMED));
    for group in listed.lines().map(Path::new).filter(is_named) {
        for task in fs::read_dir(group).into_iter().flatten().flatten() {
            fs::remove_dir(task.path()).ok();
        }
        fs::remove_dir(group).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_lists_and_names_them_so() {
        let worker = include_str!("../../../worker-image/src/isolation/cgroup/parent.rs");
        let listed = Path::new(LISTED).file_name().unwrap().to_str().unwrap();
        for line in [format!("const REMEMBERED: &str = {listed:?};"), format!("const OURS: &str = {NAMED:?};")] {
            assert!(worker.contains(&line), "{line}");
        }
    }

    #[test]
    fn the_groups_that_are_listed_and_named_so_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, other) = (dir.path().join("callboard-1-2"), dir.path().join("other"));
        for group in [&ours, &other] {
            fs::create_dir_all(group.join("task")).unwrap();
        }
        fs::create_dir_all(dir.path().join("board/builds")).unwrap();
        fs::write(dir.path().join(LISTED), format!("{}\n{}\n", ours.display(), other.display())).unwrap();
        remove(dir.path());
        assert!(!ours.exists() && other.join("task").exists());
    }
}
