//! What the demo builds: the sample, or a repository of the caller's; and its pipeline, from its file or proposed.
//!
//! All is read from what HEAD holds, out of our own copy: that is what is built. The working tree, where a file may be a pipe
//! or a link to anything, is only compared with it.

use crate::clean::plain;
use crate::git_https::GitHttps;
use crate::input::PIPELINE_MAX_BYTES;
use crate::propose::{self, KNOWN};
use crate::say;
use anyhow::{Context as _, anyhow, bail};
use protocol::pipeline::PipelineSpec;
use protocol::pipeline_file::{self, Given};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use tokio::process::Command;
use tokio::task::spawn_blocking;

const SAMPLE: [(&str, &str); 3] = [
    ("callboard.yaml", include_str!("../../sample/callboard.yaml")),
    ("roman.c", include_str!("../../sample/roman.c")),
    ("test.sh", include_str!("../../sample/test.sh")),
];

/// A pipeline whose step takes long enough to lose its worker.
const LONG: &str = "name: long\nsteps:\n  - name: work\n    run: |\n      for second in $(seq 600); do echo \"still working, second $second\"; sleep 1; done\n";

/// The first that it says.
pub(super) const FIRST_WORDS: &str = "still working, second 1";

const FILE: &str = "callboard.yaml";
/// The largest file that is read.
const FILE_MAX_BYTES: u64 = PIPELINE_MAX_BYTES as u64;
/// What a proposed file says where nobody knows the repository's address.
const PLACEHOLDER: &str = "https://git.example/you/app.git";

/// A repository and its pipeline.
pub(super) struct Source {
    /// The pipeline's name.
    pub(super) slug: String,
    /// What it runs.
    pub(super) spec: PipelineSpec,
    /// The repository, for people.
    pub(super) name: String,
}

impl Source {
    /// Reads the `callboard.yaml` that HEAD holds; without one, proposes a pipeline and shows it.
    ///
    /// # Errors
    ///
    /// If there is one that can't be read, also if it is only in the working tree: another one is never built instead.
    pub(super) async fn read(repository: &Path, git: &GitHttps, of_caller: bool) -> anyhow::Result<Self> {
        let shown = plain(&repository.display().to_string());
        let name = if of_caller { shown.clone() } else { "a sample".into() };
        let tree = tree(git).await?;
        let committed = match tree.get(FILE) {
            Some(entry) => Some(entry.read(git).await.with_context(|| format!("{FILE} in HEAD of {shown}"))?),
            None => None,
        };
        let worktree = repository.to_owned();
        let unlike = spawn_blocking({
            let committed = committed.clone();
            move || unlike(&worktree, committed.as_deref())
        });
        let unlike = unlike.await?;
        match committed {
            Some(text) => {
                if unlike {
                    say::out(format_args!("{FILE} has changes that are not committed: the committed one is used"))?;
                }
                Self::of_file(&text, git, name)
            }
            None if unlike => bail!(
                "{shown}/{FILE} is not committed, and what is built is HEAD: commit it (git add {FILE}; git commit), or \
                 move it away to have one proposed"
            ),
            None => Self::proposed(repository, &shown, &tree, git, name).await,
        }
    }

    fn of_file(text: &str, git: &GitHttps, name: String) -> anyhow::Result<Self> {
        let url = git.url();
        let read = pipeline_file::parse(text, Given { name: Some("demo"), repository: Some(&url) });
        let mut read = read.map_err(|faults| anyhow!("{FILE} can't be a pipeline\n{}", faults.of_file(FILE)))?;
        // What is served is HEAD, as `main`.
        read.spec.default_ref = "main".into();
        Ok(Self { slug: read.slug, spec: read.spec, name })
    }

    async fn proposed(
        repository: &Path,
        shown: &str,
        tree: &BTreeMap<String, Entry>,
        git: &GitHttps,
        name: String,
    ) -> anyhow::Result<Self> {
        let Some((from, spec)) = propose::propose(|file| tree.contains_key(file), &git.url()) else {
            bail!("HEAD of {shown} has no {FILE}, and none of {} to propose one from", KNOWN.join(", "));
        };
        let text = to_keep(repository, &spec, git.origin(repository).await);
        say::out(format_args!("No {FILE}: proposed from {from}; keep it if it suits you.\n\n{text}"))?;
        Ok(Self { slug: "demo".into(), spec, name })
    }
}

/// The proposed file as it makes sense outside the demo, whose own address is gone with it.
fn to_keep(repository: &Path, spec: &PipelineSpec, origin: Option<String>) -> String {
    let slug = repository.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let slug = slug.filter(|slug| rules::pipeline::is_slug(slug)).unwrap_or_else(|| "app".into());
    let is_known = origin.is_some();
    let mut spec = spec.clone();
    spec.repository = origin.unwrap_or_else(|| PLACEHOLDER.into());
    let text = pipeline_file::write(&slug, &spec);
    let line = format!("repository: {PLACEHOLDER}\n");
    if is_known {
        text
    } else {
        text.replace(&line, &format!("{}   # put your repository's https address here\n", line.trim_end()))
    }
}

/// A file, or something else, that HEAD holds at its top.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    mode: String,
    object: String,
    /// Of a file.
    size: Option<u64>,
}

/// Those of HEAD that a pipeline can come from.
async fn tree(git: &GitHttps) -> anyhow::Result<BTreeMap<String, Entry>> {
    let mut args = vec!["ls-tree", "-z", "-l", "refs/heads/main", "--", FILE];
    args.extend(KNOWN);
    let listed = git.git(&args).await.context("what HEAD holds can't be read")?;
    Ok(String::from_utf8_lossy(&listed).split('\0').filter_map(entry).collect())
}

/// `100644 blob <object> <size>\t<name>`; other things than files have the size `-`.
fn entry(line: &str) -> Option<(String, Entry)> {
    let (about, name) = line.split_once('\t')?;
    let mut fields = about.split_whitespace();
    let (mode, _kind, object) = (fields.next()?.to_owned(), fields.next()?, fields.next()?.to_owned());
    Some((name.to_owned(), Entry { mode, object, size: fields.next()?.parse().ok() }))
}

impl Entry {
    async fn read(&self, git: &GitHttps) -> anyhow::Result<String> {
        match self.mode.as_str() {
            "100644" | "100755" | "100664" => {}
            "120000" => bail!("is a link: commit the file itself in its place"),
            "040000" => bail!("is a directory: a pipeline is a file of that name"),
            _ => bail!("is no file: a pipeline is a file of that name"),
        }
        if self.size.is_none_or(|size| size > FILE_MAX_BYTES) {
            bail!("is larger than {} KiB: no pipeline is; commit a smaller one", FILE_MAX_BYTES / 1024);
        }
        let bytes = git.git(&["cat-file", "blob", &self.object]).await.context("can't be read")?;
        String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            anyhow!("is not UTF-8 text (line {line}): save it as UTF-8, and commit that")
        })
    }
}

/// Whether the working tree's file is another one than HEAD's. Whatever stands there, looking at it does not take long.
fn unlike(repository: &Path, committed: Option<&str>) -> bool {
    if fs::symlink_metadata(repository.join(".git")).is_err() {
        // A bare repository has no working tree.
        return false;
    }
    let file = repository.join(FILE);
    match (fs::symlink_metadata(&file), committed) {
        (Err(error), None) => error.kind() != io::ErrorKind::NotFound,
        (Err(_), Some(_)) | (Ok(_), None) => true,
        (Ok(metadata), Some(committed)) => !metadata.is_file() || !holds(&file, committed).unwrap_or(false),
    }
}

/// Whether a file holds a text, whichever way its lines end.
fn holds(file: &Path, text: &str) -> io::Result<bool> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    let mut bytes = Vec::new();
    if file.metadata()?.is_file() {
        file.take(2 * FILE_MAX_BYTES).read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n") == text.replace("\r\n", "\n"))
}

/// Makes the sample's repository in `dir`.
pub(super) async fn sample(dir: &Path, long: bool) -> anyhow::Result<PathBuf> {
    fs::create_dir(dir)?;
    if long {
        fs::write(dir.join(FILE), LONG)?;
    } else {
        for (name, text) in SAMPLE {
            fs::write(dir.join(name), text)?;
        }
    }
    let identity = ["-c", "user.name=callboard", "-c", "user.email=callboard@localhost", "-c", "commit.gpgsign=false"];
    for args in
        [&["init", "--quiet", "--initial-branch=main"][..], &["add", "."], &["commit", "--quiet", "-m", "A sample"]]
    {
        let mut git = Command::new("git");
        git.arg("-C").arg(dir).args(identity).args(args).env("GIT_CONFIG_GLOBAL", "/dev/null").kill_on_drop(true);
        let status = git.status().await.context("git can't be run: install it")?;
        if !status.success() {
            bail!("git {} ended with {status}", args[0]);
        }
    }
    Ok(dir.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command as Now;
    use tempfile::TempDir;

    const PIPELINE: &str = "name: app\nsteps:\n  - name: a\n    run: make\n";

    /// A repository whose HEAD holds a Makefile and what `prepare` makes of it.
    fn repository(prepare: impl FnOnce(&Path)) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join("Makefile"), "all:\n").unwrap();
        prepare(dir.path());
        git(dir.path(), &["init", "-q", "-b", "trunk"]);
        git(dir.path(), &["add", "-A"]);
        git(dir.path(), &["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "first"]);
        dir
    }

    fn git(dir: &Path, args: &[&str]) {
        let status = Now::new("git").arg("-C").arg(dir).args(args).env("GIT_CONFIG_GLOBAL", "/dev/null").status();
        assert!(status.unwrap().success(), "git {args:?}");
    }

    async fn read(repository: &Path) -> Result<Source, String> {
        let dir = tempfile::tempdir().unwrap();
        let git = GitHttps::serve(repository, dir.path()).await.unwrap();
        let read = tokio::time::timeout(std::time::Duration::from_secs(30), Source::read(repository, &git, true));
        read.await.expect("nothing is waited for").map_err(|error| format!("{error:#}"))
    }

    #[track_caller]
    fn refused(read: Result<Source, String>, words: &[&str]) {
        let refused = read.err().expect("no other pipeline is built in its place");
        assert!(words.iter().all(|word| refused.contains(word)), "{refused}");
    }

    fn write(text: &'static [u8]) -> impl FnOnce(&Path) {
        move |dir| fs::write(dir.join(FILE), text).unwrap()
    }

    #[tokio::test]
    async fn a_file_that_cant_be_read_is_an_error_and_never_another_pipeline() {
        refused(read(repository(write(b"name: x\n# caf\xe9\n")).path()).await, &[FILE, "UTF-8", "line 2"]);
        let large = vec![b'#'; 1024 * 1024 + 1].leak();
        refused(read(repository(write(large)).path()).await, &[FILE, "larger than 1024 KiB"]);
        let link = repository(|dir| std::os::unix::fs::symlink("/dev/zero", dir.join(FILE)).unwrap());
        refused(read(link.path()).await, &[FILE, "is a link"]);
        let directory = repository(|dir| {
            fs::create_dir(dir.join(FILE)).unwrap();
            fs::write(dir.join(FILE).join("x"), "").unwrap();
        });
        refused(read(directory.path()).await, &[FILE, "is a directory"]);
        refused(read(repository(write(b"steps: 3\n")).path()).await, &["callboard.yaml:1"]);
    }

    #[tokio::test]
    async fn what_stands_in_the_working_tree_alone_is_an_error_whatever_it_is() {
        let made = repository(|_| {});
        let file = made.path().join(FILE);
        fs::write(&file, PIPELINE).unwrap();
        refused(read(made.path()).await, &[FILE, "not committed", "git add"]);
        fs::remove_file(&file).unwrap();
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        refused(read(made.path()).await, &[FILE, "not committed"]);
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        refused(read(made.path()).await, &[FILE, "not committed"]);
    }

    #[tokio::test]
    async fn the_committed_file_is_used_also_where_the_working_tree_has_another() {
        let made = repository(write(PIPELINE.as_bytes()));
        let file = made.path().join(FILE);
        assert!(!unlike(made.path(), Some(PIPELINE)));
        fs::write(&file, PIPELINE.replace('\n', "\r\n")).unwrap();
        assert!(!unlike(made.path(), Some(PIPELINE)));
        fs::write(&file, PIPELINE.replace("make", "exit 9")).unwrap();
        assert!(unlike(made.path(), Some(PIPELINE)));
        assert_eq!(read(made.path()).await.unwrap().spec.steps[0].commands, ["make"]);
        fs::remove_file(&file).unwrap();
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(unlike(made.path(), Some(PIPELINE)));
        assert_eq!(read(made.path()).await.unwrap().spec.steps[0].commands, ["make"]);
    }

    #[tokio::test]
    async fn a_bare_repository_has_the_file_of_its_head() {
        let made = repository(write(PIPELINE.as_bytes()));
        let bare = tempfile::tempdir().unwrap();
        git(bare.path(), &["clone", "-q", "--bare", &made.path().display().to_string(), "bare.git"]);
        assert_eq!(read(&bare.path().join("bare.git")).await.unwrap().spec.steps[0].commands, ["make"]);
    }

    #[tokio::test]
    async fn a_proposed_file_names_an_address_that_outlives_the_demo() {
        let made = repository(|_| {});
        let dir = tempfile::tempdir().unwrap();
        let served = GitHttps::serve(made.path(), dir.path()).await.unwrap();
        let (_, spec) = propose::propose(|file| file == "Makefile", &served.url()).unwrap();
        let text = to_keep(Path::new("/src/App"), &spec, served.origin(made.path()).await);
        assert!(text.starts_with("name: app\n") && !text.contains("127.0.0.1"), "{text}");
        assert!(text.contains("repository: https://git.example/you/app.git   # put your"), "{text}");
        for (origin, kept) in [
            ("https://git.example/acme/app.git", true),
            ("https://user:password@git.example/acme/app.git", false),
            ("git@git.example:acme/app.git", false),
        ] {
            git(made.path(), &["config", "remote.origin.url", origin]);
            assert_eq!(served.origin(made.path()).await.as_deref(), kept.then_some(origin));
        }
        let text = to_keep(Path::new("/src/x"), &spec, Some("https://git.example/acme/app.git".into()));
        assert!(text.contains("repository: https://git.example/acme/app.git\n"), "{text}");
    }
}
