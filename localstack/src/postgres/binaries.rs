//! Where the server's binaries are: the system's newest, or those of the release that made the data, since no other serves
//! them; else a download of our own.

use crate::download;
use anyhow::bail;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where distributions put the server's binaries, besides PATH.
const PLACES: [&str; 3] = ["/usr/lib/postgresql", "/usr/pgsql", "/usr/local/pgsql"];

/// The binaries for `data`, which may not exist yet. A download is kept in `<dir>/postgres-binaries`.
pub(super) async fn for_data(dir: &Path, data: &Path) -> anyhow::Result<PathBuf> {
    let release = release_of(data);
    let bin = match find(release).or_else(|| find(None)) {
        Some(bin) => bin,
        None => download::bin(&dir.join("postgres-binaries")).await?,
    };
    match release.filter(|release| binaries_release(&bin) != Some(*release)) {
        None => Ok(bin),
        Some(release) => bail!(
            "{} was made by Postgres {release}, which this machine does not have: install that release beside the one \
             there is, or take another --dir",
            data.display()
        ),
    }
}

/// The newest of the server's binaries on this host; of one release, where there are data already.
fn find(release: Option<u32>) -> Option<PathBuf> {
    let mut places: Vec<PathBuf> = PLACES.iter().flat_map(|place| versions(Path::new(place))).collect();
    places.sort_by_key(|bin| std::cmp::Reverse(version_of(bin)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    places.extend(std::env::split_paths(&path));
    let fits = |bin: &Path| release.is_none() || binaries_release(bin) == release;
    places.into_iter().find(|bin| is_whole(bin) && fits(bin))
}

/// The release that made the data; `None` if there are none.
fn release_of(data: &Path) -> Option<u32> {
    fs::read_to_string(data.join("PG_VERSION")).ok()?.trim().parse().ok()
}

/// Asks the server which release it is: `postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)`.
fn binaries_release(bin: &Path) -> Option<u32> {
    let said = Command::new(bin.join("postgres")).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    said.split_once("(PostgreSQL) ")?.1.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// Whether all that we call is in a directory.
pub(crate) fn is_whole(bin: &Path) -> bool {
    ["postgres", "initdb"].iter().all(|tool| bin.join(tool).exists())
}

fn versions(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().join("bin")).chain([place.join("bin")]).collect()
}

fn version_of(bin: &Path) -> u32 {
    let name = bin.parent().and_then(Path::file_name).and_then(OsStr::to_str).unwrap_or("");
    name.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_release_that_is_not_here_are_refused_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("PG_VERSION"), "9\n").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let refused = runtime.block_on(for_data(dir.path(), dir.path())).unwrap_err().to_string();
        assert!(refused.contains("was made by Postgres 9") && refused.contains("--dir"), "{refused}");
    }

    #[test]
    fn the_binaries_of_the_release_that_made_the_data_are_found() {
        let newest = find(None).expect("the tests need a Postgres");
        assert!(binaries_release(&newest).is_some());
        assert_eq!(find(binaries_release(&newest)), Some(newest));
        assert_eq!(find(Some(9)), None);
    }
}
