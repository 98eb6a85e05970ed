//! What a step's shell is given: its commands, each shown before it runs, and its environment.

use crate::isolation::bubblewrap::path_variable;
use crate::isolation::plan::Env;
use crate::logs::Cue;
use protocol::pipeline::Step;
use protocol::worker::{Job, Secret};
use rules::variables::{Origin, environment};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The script of `commands`, run by `sh -e`: in order, in one shell, until the first that fails.
///
/// Each is evaluated by itself, so that one that ends in a backslash or within quotes does not go on into what follows. `-e`
/// alone goes on after `false && true`, so each command's exit code is looked at as well. Before each stands what shows it:
/// its `cue` in both outputs, or else itself. Of that nothing goes into a file of the step's (`exec >FILE`), nor does `set -x`
/// show it.
#[must_use]
pub fn script(commands: &[String], cue: Option<&Cue>) -> String {
    let mut script = String::new();
    for (number, command) in commands.iter().enumerate() {
        script.push_str(ENDED);
        script.push_str(&match cue {
            Some(cue) => cues(&cue.format(number)),
            None => {
                format!("[ -f /proc/self/fd/1 ] || printf '%s\\n' {}\n", quoted(&format!("$ {}", command.trim_end())))
            }
        });
        script.push_str("case $callboard_flags in *x*) set -x ;; esac\n");
        script.push_str(&format!("eval {}\n", quoted(command)));
    }
    script.push_str(ENDED);
    script
}

/// What follows a command, and traces nothing.
const ENDED: &str = "{ callboard_code=$? callboard_flags=$-; set +x; } 2>/dev/null\n\
                     [ \"$callboard_code\" -eq 0 ] || exit \"$callboard_code\"\n";

/// Writes a cue to the outputs that still are pipes, as those are with which a step begins: no file, and none that is closed.
fn cues(cue: &str) -> String {
    format!(
        "[ ! -p /proc/self/fd/2 ] || printf '{cue}' >&2\n\
         [ ! -p /proc/self/fd/1 ] || printf '{cue}'\n"
    )
}

/// `text` as one word of a shell.
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// What whatever runs for a build has.
#[must_use]
pub fn sandbox_env(build: Uuid) -> Env {
    let own = [
        ("PATH", path_variable()),
        ("HOME", "/home/build".to_owned()),
        ("USER", "build".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("CALLBOARD", "true".to_owned()),
        ("CALLBOARD_BUILD_ID", build.to_string()),
    ];
    own.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What every task has, also the clone.
#[must_use]
pub fn base_env(job: &Job) -> Env {
    let mut env = sandbox_env(job.build_id);
    env.insert("CI".into(), "true".into());
    env.insert("CALLBOARD_REF".into(), job.git_ref.clone());
    env
}

/// The environment of `step`.
#[must_use]
pub fn step_env(job: &Job, step: &Step, commit: &str) -> Env {
    let mut ours = base_env(job);
    ours.insert("CALLBOARD_COMMIT".into(), commit.into());
    ours.insert("CALLBOARD_STEP".into(), step.name.clone());
    environment([
        (Origin::Callboard, ours),
        (Origin::Build, job.env.clone()),
        (Origin::Secret, values(&job.secrets)),
        (Origin::Own, step.env.clone()),
    ])
}

/// Secrets as variables.
#[must_use]
pub fn values(secrets: &BTreeMap<String, Secret>) -> Env {
    secrets.iter().map(|(name, secret)| (name.clone(), secret.0.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use uuid::Uuid;

    fn written(commands: &[&str], cue: Option<&Cue>) -> (String, String, Option<i32>) {
        let commands: Vec<String> = commands.iter().map(|command| (*command).to_owned()).collect();
        let output = Command::new("sh").args(["-e", "-c", &script(&commands, cue)]).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.code())
    }

    /// What it writes to both outputs, with `@` and a digit for each cue.
    fn with_cues(commands: &[&str]) -> (String, String) {
        let (stdout, stderr, _) = written(commands, Some(&Cue::new(Uuid::nil())));
        let cue = format!("\u{1e}{}0000000", Uuid::nil().simple());
        (stdout.replace(&cue, "@"), stderr.replace(&cue, "@"))
    }

    fn run(commands: &[&str]) -> (String, Option<i32>) {
        let (stdout, _, code) = written(commands, None);
        (stdout, code)
    }

    #[test]
    fn a_cue_stands_before_each_command_in_both_outputs_and_nowhere_else() {
        assert_eq!(with_cues(&["printf a; printf c >&2", "echo b"]), ("@0a@1b\n".into(), "@0c@1".into()));
    }

    #[test]
    fn an_output_that_goes_elsewhere_has_no_cue_and_the_other_has() {
        assert_eq!(with_cues(&["exec >/dev/null", "echo a", "echo b >&2"]), ("@0".into(), "@0@1@2b\n".into()));
        assert_eq!(with_cues(&["exec 2>&-", "echo a"]), ("@0@1a\n".into(), "@0".into()));
        assert_eq!(with_cues(&["exec >&- 2>&-", "true"]), ("@0".into(), "@0".into()));
    }

    #[test]
    fn a_trace_shows_the_steps_own_commands() {
        let (stdout, stderr) = with_cues(&["set -x", "echo a", "set +x", "echo b"]);
        assert_eq!(stdout, "@0@1a\n@2@3b\n");
        assert!(stderr.contains("+ echo a\n") && stderr.ends_with("@3"), "{stderr}");
        let ours = ["callboard_", "printf", "/proc/self", "exit", "esac"];
        assert!(ours.iter().all(|word| !stderr.contains(word)), "{stderr}");
        assert_eq!(written(&["set -x", "(exit 3)"], Some(&Cue::new(Uuid::nil()))).2, Some(3));
    }

    #[test]
    fn what_ends_a_block_of_lines_is_no_line_of_its_own() {
        assert_eq!(run(&["echo a\n", "echo b\n\n"]).0, "$ echo a\na\n$ echo b\nb\n");
        assert_eq!(run(&["echo a\necho b\n"]).0, "$ echo a\necho b\na\nb\n");
    }

    #[test]
    fn nothing_of_ours_gets_into_a_file_of_the_steps() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display();
        for cue in [Some(&Cue::new(Uuid::nil())), None] {
            written(&[&format!("exec >{path}"), "echo a", "echo b"], cue);
            assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "a\nb\n");
        }
    }

    #[test]
    fn commands_are_shown_and_share_one_shell() {
        assert_eq!(run(&["x='it is'", "echo \"$x\""]), ("$ x='it is'\n$ echo \"$x\"\nit is\n".into(), Some(0)));
    }

    #[test]
    fn the_first_command_that_fails_ends_the_step() {
        assert_eq!(run(&["(exit 3)", "echo no"]), ("$ (exit 3)\n".into(), Some(3)));
        assert_eq!(run(&["false && true", "echo no"]), ("$ false && true\n".into(), Some(1)));
    }

    #[test]
    fn a_command_that_does_not_end_does_not_go_on_into_the_next() {
        let (shown, code) = run(&["echo one \\", "echo two"]);
        assert!(shown.starts_with("$ echo one \\\none") && shown.ends_with("\n$ echo two\ntwo\n"), "{shown}");
        assert_eq!(code, Some(0));
        for open in ["echo 'one", "echo \"one", "echo $(one", "if true; then", "{ echo one", "echo `one"] {
            let (shown, code) = run(&[open, "echo two"]);
            assert_eq!((shown, code), (format!("$ {open}\n"), Some(2)), "{open}");
        }
        assert_eq!(run(&["cat <<END\none", "echo two"]).0, "$ cat <<END\none\none$ echo two\ntwo\n");
    }

    #[test]
    fn a_step_is_one_shell_with_one_directory_and_one_set_of_options() {
        let commands = [
            "cd /usr",
            "pwd",
            "set -- a b",
            "f() { echo $1-$2; }",
            "f \"$@\"",
            "false || true",
            "if false; then :; fi",
        ];
        let (shown, code) = run(&commands);
        let outputs: Vec<&str> = shown.lines().filter(|line| !line.starts_with('$')).collect();
        assert_eq!((outputs, code), (vec!["/usr", "a-b"], Some(0)));
        assert_eq!(run(&["false; echo no"]), ("$ false; echo no\n".into(), Some(1)), "-e holds within a command");
        assert_eq!(run(&["exit 4", "echo no"]).1, Some(4));
        assert_eq!(run(&["trap 'echo bye' EXIT", "true"]).0, "$ trap 'echo bye' EXIT\n$ true\nbye\n");
    }

    #[test]
    fn a_command_may_have_several_lines_or_end_in_a_comment() {
        assert_eq!(run(&["if true\nthen echo yes\nfi # done"]).0, "$ if true\nthen echo yes\nfi # done\nyes\n");
    }
}
