//! What a step's shell is given: its commands, each shown before it runs, and its environment.

use crate::isolation::bubblewrap::path_variable;
use crate::isolation::plan::Env;
use protocol::pipeline::Step;
use protocol::worker::Job;
use uuid::Uuid;

/// The script of `commands`, run by `sh -e`: in order, in one shell, until the first that fails.
///
/// Each is evaluated by itself, so that one that ends in a backslash or within quotes does not go on into what follows. `-e`
/// alone goes on after `false && true`, so each command's exit code is looked at as well.
#[must_use]
pub fn script(commands: &[String]) -> String {
    let mut script = String::new();
    for command in commands {
        script.push_str(&format!("printf '%s\\n' {}\n", quoted(&format!("$ {command}"))));
        script.push_str(&format!("eval {}", quoted(command)));
        script.push_str("\ncallboard_code=$?; [ \"$callboard_code\" -eq 0 ] || exit \"$callboard_code\"\n");
    }
    script
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

/// The environment of `step`: of two variables of one name the step's own wins, then a secret, then the build's.
#[must_use]
pub fn step_env(job: &Job, step: &Step, commit: &str) -> Env {
    let mut env = base_env(job);
    env.insert("CALLBOARD_COMMIT".into(), commit.into());
    env.insert("CALLBOARD_STEP".into(), step.name.clone());
    env.extend(job.env.clone());
    env.extend(job.secrets.iter().map(|(name, secret)| (name.clone(), secret.0.clone())));
    env.extend(step.env.clone());
    env
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn run(commands: &[&str]) -> (String, Option<i32>) {
        let commands: Vec<String> = commands.iter().map(|command| (*command).to_owned()).collect();
        let output = Command::new("sh").args(["-e", "-c", &script(&commands)]).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
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
