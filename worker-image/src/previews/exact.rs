//! Whether a build's directory is exactly `<builds_root>/<build_id>`, and nothing that only looks like it: only that is removed.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// The builds root as it was when the worker took it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Root {
    path: PathBuf,
    id: (u64, u64),
}

impl Root {
    pub(super) fn of(builds_root: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(builds_root)?;
        let id = id(&path)?;
        Ok(Self { path, id })
    }

    /// The directory of `build`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// What is in its place.
    pub(super) fn directory(&self, build: Uuid) -> io::Result<Option<PathBuf>> {
        let wrong =
            |what: &str| Err(io::Error::other(format!("{} is {what}; it is left as it is", self.path.display())));
        if id(&self.path)? != self.id || fs::canonicalize(&self.path)? != self.path {
            return wrong("not the builds root that it was");
        }
        let path = self.path.join(build.to_string());
        let wrong = |what: &str| Err(io::Error::other(format!("{} {what}; it is left as it is", path.display())));
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            Ok(meta) if !meta.is_dir() => return wrong("is no directory"),
            Ok(meta) if meta.dev() != self.id.0 => return wrong("is on another file system"),
            Ok(_) => {}
        }
        if fs::canonicalize(&path)? != path {
            return wrong("leads elsewhere");
        }
        if mounts(&fs::read("/proc/self/mountinfo")?).iter().any(|mount| mount.starts_with(&path)) {
            return wrong("has something mounted on it or in it");
        }
        Ok(Some(path))
    }
}

fn id(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// Where something is mounted, as `mountinfo` says it: blanks and the like are three octal digits after a backslash.
fn mounts(mountinfo: &[u8]) -> Vec<PathBuf> {
    let points = mountinfo.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    points.map(|point| PathBuf::from(std::ffi::OsString::from_vec(unescaped(point)))).collect()
}

fn unescaped(mut text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some((first, rest)) = text.split_first() {
        let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
        match rest.get(..3).filter(|_| *first == b'\\').and_then(octal) {
            Some(byte) => {
                bytes.push(byte);
                text = &rest[3..];
            }
            None => {
                bytes.push(*first);
                text = rest;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    use std::os::unix::fs::symlink;

    fn scene() -> (tempfile::TempDir, PathBuf, Root) {
        let top = tempfile::tempdir().unwrap();
        let builds = top.path().join("builds");
        fs::create_dir(&builds).unwrap();
        let root = Root::of(&builds).unwrap();
        (top, builds, root)
    }

    fn refused(root: &Root, build: Uuid) -> String {
        root.directory(build).unwrap_err().to_string()
    }

    #[test]
    fn a_plain_directory_is_it_and_none_is_none() {
        let (_top, builds, root) = scene();
        let build = Uuid::now_v7();
        assert_eq!(root.directory(build).unwrap(), None);
        fs::create_dir(builds.join(build.to_string())).unwrap();
        assert_eq!(root.directory(build).unwrap(), Some(root.path.join(build.to_string())));
    }

    #[test]
    fn a_link_or_a_file_in_its_place_is_refused() {
        let (top, builds, root) = scene();
        let (elsewhere, build) = (top.path().join("elsewhere"), Uuid::now_v7());
        fs::create_dir(&elsewhere).unwrap();
        let path = builds.join(build.to_string());
        symlink(&elsewhere, &path).unwrap();
        assert!(refused(&root, build).contains("is no directory"));
        fs::remove_file(&path).unwrap();
        symlink("../builds", &path).unwrap();
        assert!(refused(&root, build).contains("is no directory"));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(refused(&root, build).contains("is no directory"));
    }

    #[test]
    fn below_a_parent_that_was_replaced_nothing_is_it() {
        let (top, builds, root) = scene();
        let (build, moved) = (Uuid::now_v7(), top.path().join("moved"));
        fs::create_dir(builds.join(build.to_string())).unwrap();
        fs::rename(&builds, &moved).unwrap();
        fs::create_dir_all(builds.join(build.to_string())).unwrap();
        assert!(refused(&root, build).contains("not the builds root that it was"));
        fs::remove_dir_all(&builds).unwrap();
        symlink(&moved, &builds).unwrap();
        assert!(refused(&root, build).contains("not the builds root that it was"));
        fs::remove_file(&builds).unwrap();
        fs::rename(&moved, &builds).unwrap();
        assert!(root.directory(build).unwrap().is_some());
    }

    #[test]
    fn a_mount_on_it_or_in_it_is_refused() {
        let (_top, builds, root) = scene();
        let build = Uuid::now_v7();
        let path = builds.join(build.to_string());
        for inner in [path.clone(), path.join("workspace/a b")] {
            fs::create_dir_all(&inner).unwrap();
            for (kind, from) in [(Some("tmpfs"), "tmpfs"), (None, "/usr")] {
                let how = if kind.is_some() { MsFlags::empty() } else { MsFlags::MS_BIND };
                if let Err(error) = mount(Some(from), &inner, kind, how, None::<&str>) {
                    return crate::skipped::skip("mount", &error.to_string());
                }
                let found = root.directory(build);
                umount2(&inner, MntFlags::MNT_DETACH).unwrap();
                let said = found.unwrap_err().to_string();
                assert!(said.contains("mounted") || said.contains("another file system"), "{said}");
            }
        }
        assert!(root.directory(build).unwrap().is_some());
    }
}
