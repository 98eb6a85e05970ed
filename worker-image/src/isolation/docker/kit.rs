//! What the worker brings into every container: its own binary, which is the first process there too, and what that needs.
//!
//! An image may have another C library, or none. So the binary comes with its own loader and libraries, those that this very
//! process runs with, and is started by that loader. An image of our own is made of the same, without any registry.

use super::daemon::Daemon;
use crate::isolation::plan::INSIDE;
use bollard::body_full;
use bollard::errors::Error;
use bollard::models::ImageInspect;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::TryStreamExt as _;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tokio::task::spawn_blocking;

/// Where the kit is in a container, under [`INSIDE`].
pub(super) const DIRECTORY: &str = "bin";
/// The name of the binary in it.
const BINARY: &str = "callboard-worker";
/// The name of our own image, before its tag.
pub(super) const IMAGE: &str = "callboard-worker";

/// Our own image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnImage {
    /// Its number, by which containers are made of it: daemons complete names each in its way.
    pub id: String,
    /// Its name's tag, which holds a digest of what is in it.
    pub tag: String,
}

/// The binary's parts on this host.
#[derive(Clone, Debug)]
pub(super) struct Kit {
    /// The loader's name in the kit; none if the binary needs no loader.
    loader: Option<String>,
    /// Names in the kit, and where they are on this host.
    parts: Vec<(String, PathBuf)>,
}

impl Kit {
    /// The kit of this process, whose binary is at `binary`.
    ///
    /// # Errors
    ///
    /// If this process can't read what it is made of.
    pub(super) fn of_this_process(binary: &Path) -> io::Result<Self> {
        let libraries = shared_objects(&fs::read_to_string("/proc/self/maps")?, &fs::read_link("/proc/self/exe")?);
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let loader = libraries.iter().map(|path| name(path)).find(|name| is_loader(name));
        let mut parts: Vec<_> = libraries.into_iter().map(|path| (name(&path), path)).collect();
        parts.push((BINARY.into(), binary.to_path_buf()));
        Ok(Self { loader, parts })
    }

    /// How a container starts the binary with `args`.
    #[must_use]
    pub(super) fn command(&self, args: &[&str]) -> Vec<String> {
        let inside = |name: &str| format!("{INSIDE}/{DIRECTORY}/{name}");
        let mut command: Vec<String> = match &self.loader {
            Some(loader) => vec![inside(loader), "--library-path".into(), format!("{INSIDE}/{DIRECTORY}")],
            None => Vec::new(),
        };
        command.push(inside(BINARY));
        command.extend(args.iter().map(|arg| (*arg).to_owned()));
        command
    }

    /// Puts what is missing of it into `directory`, where containers of this host may have it from.
    ///
    /// # Errors
    ///
    /// If something can't be read or written.
    pub(super) fn furnish(&self, directory: &Path) -> io::Result<()> {
        for (name, path) in self.parts.iter().filter(|(name, _)| name != BINARY) {
            let fresh = directory.join(format!("{name}.new"));
            fs::copy(path, &fresh)?;
            fs::set_permissions(&fresh, Permissions::from_mode(0o755))?;
            fs::rename(&fresh, directory.join(name))?;
        }
        Ok(())
    }

    /// Our own image, made if the daemon has not got it.
    ///
    /// # Errors
    ///
    /// If the kit can't be read, or the daemon does not take it.
    pub(super) async fn image(&self, daemon: &Daemon) -> Result<OwnImage, Error> {
        let kit = self.clone();
        let digest = spawn_blocking(move || kit.archive(Sha256::new())).await.map_err(io::Error::other)??.finalize();
        let tag = hex::encode(&digest[..8]);
        let name = format!("{IMAGE}:{tag}");
        if let Ok(ImageInspect { id: Some(id), .. }) = daemon.quick.inspect_image(&name).await {
            return Ok(OwnImage { id, tag });
        }
        let kit = self.clone();
        let archive = spawn_blocking(move || kit.archive(Vec::new())).await.map_err(io::Error::other)??;
        let options = CreateImageOptionsBuilder::default().from_src("-").repo(IMAGE).tag(&tag).build();
        let made = daemon.patient.create_image(Some(options), Some(body_full(archive.into())), None);
        let said: Vec<_> = made.try_collect().await?;
        let id = said.into_iter().filter_map(|said| said.status).rfind(|status| is_id(status));
        Ok(OwnImage { id: id.unwrap_or(name), tag })
    }

    /// Writes the file system of our own image, piece by piece: it is as large as this program, and mostly needed for its digest.
    fn archive<W: Write>(&self, to: W) -> io::Result<W> {
        let mut archive = tar::Builder::new(to);
        let directory = format!("{}/{DIRECTORY}", INSIDE.trim_start_matches('/'));
        for (name, path) in &self.parts {
            let file = File::open(path)?;
            let mut header = tar::Header::new_gnu();
            header.set_size(file.metadata()?.len());
            header.set_mode(0o755);
            archive.append_data(&mut header, format!("{directory}/{name}"), file)?;
        }
        archive.into_inner()
    }
}

/// The files of `maps` that are mapped to be run, without the program itself.
fn shared_objects(maps: &str, program: &Path) -> BTreeSet<PathBuf> {
    let mapped = maps.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (_, rights) = (fields.next()?, fields.next()?);
        let path = fields.nth(3).filter(|path| path.starts_with('/'))?;
        rights.contains('x').then(|| PathBuf::from(path))
    });
    mapped.filter(|path| path != program && path.to_string_lossy().contains(".so")).collect()
}

/// Docker writes the digest's kind before it, Podman does not.
fn is_id(word: &str) -> bool {
    let digest = word.strip_prefix("sha256:").unwrap_or(word);
    digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_loader(name: &str) -> bool {
    name.starts_with("ld-") || name.starts_with("ld64") || name.starts_with("ld.so")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0 r--p 0000 fd:00 1 /opt/a/callboard-worker
55d1 r-xp 0000 fd:00 1 /opt/a/callboard-worker
7f00 r-xp 0000 fd:00 2 /usr/lib/x86_64-linux-gnu/libc.so.6
7f10 r--p 0000 fd:00 3 /usr/lib/locale/locale-archive
7f20 r-xp 0000 fd:00 4 /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
7f30 r-xp 0000 00:00 0 [vdso]
7f40 rw-p 0000 00:00 0
";

    #[test]
    fn the_kit_is_what_this_process_runs_with() {
        let found: Vec<_> = shared_objects(MAPS, Path::new("/opt/a/callboard-worker")).into_iter().collect();
        let libraries = "/usr/lib/x86_64-linux-gnu";
        assert_eq!(
            found,
            [format!("{libraries}/ld-linux-x86-64.so.2"), format!("{libraries}/libc.so.6")].map(PathBuf::from)
        );
    }

    #[test]
    fn an_import_is_answered_with_the_images_number() {
        let digest = "0f".repeat(32);
        assert!(is_id(&digest) && is_id(&format!("sha256:{digest}")));
        assert!(!is_id("Loading layer") && !is_id("sha256:0f") && !is_id(""));
    }

    #[test]
    fn a_program_is_started_by_the_loader_it_came_with() {
        let loader = Some("ld-linux-x86-64.so.2".to_owned());
        let kit = |loader| Kit { loader, parts: Vec::new() };
        let inside = "/run/callboard/bin";
        let by_loader = [&format!("{inside}/ld-linux-x86-64.so.2"), "--library-path", inside];
        assert_eq!(kit(loader).command(&["x"])[..3], by_loader);
        assert_eq!(kit(None).command(&["x"]), [&format!("{inside}/callboard-worker"), "x"]);
    }
}
