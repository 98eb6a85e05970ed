//! The pipeline file: what is read from it, where each fault is seen, and that what is written reads the same.

use proptest::prelude::*;
use protocol::pipeline::{Env, Network, PipelineSpec, PreviewSpec, Step};
use protocol::pipeline_file::{BadDuration, Given, PipelineFile, parse, parse_duration, spell_duration, write};

const WHOLE: &str = r#"
name: hello
repository: https://git.example/hello
ref: release
timeout: 10m
env: { VERSION: 1.10, "QUOTED": "null" }
secrets: [NPM_TOKEN]
clone_secret: DEPLOY_KEY
requires: arch=arm64
registry_secrets:
  ghcr.io: GHCR
submodules: true
steps:
  - &base
    name: build
    run: make
  - name: test
    image: rust:1.95
    timeout: 1h30m
    network: none
    env:
      CI: true
    run:
      - cargo test
      - |
        if true; then
          echo yes
        fi
"#;

fn read(text: &str) -> PipelineFile {
    parse(text, Given::default()).expect("a file that can be read")
}

#[test]
fn without_a_ref_what_the_repository_has_as_its_default_is_built() {
    let text = "name: a\nrepository: https://git.example/a\nsteps:\n  - name: b\n    run: make\n";
    let PipelineFile { slug, spec } = read(text);
    assert_eq!(spec.default_ref, "HEAD");
    assert!(!write(&slug, &spec).contains("ref:"), "what is at its default is left out");
    let json = serde_json::json!({ "repository": "https://git.example/a", "steps": spec.steps });
    assert_eq!(serde_json::from_value::<PipelineSpec>(json).unwrap(), spec);
}

#[test]
fn a_whole_file_is_read_as_it_stands() {
    let PipelineFile { slug, spec } = read(WHOLE);
    assert_eq!(slug, "hello");
    assert_eq!(spec.default_ref, "release");
    assert_eq!(spec.timeout_seconds, Some(600));
    assert_eq!(spec.env, Env::from([("VERSION".into(), "1.10".into()), ("QUOTED".into(), "null".into())]));
    assert_eq!((spec.secrets, spec.clone_secret), (vec!["NPM_TOKEN".into()], Some("DEPLOY_KEY".into())));
    assert_eq!(spec.requires, ["arch=arm64"]);
    assert_eq!(spec.registry_secrets["ghcr.io"], "GHCR");
    assert!(spec.submodules);
    let [build, test] = &spec.steps[..] else { panic!("two steps") };
    assert_eq!(
        (build.image.as_str(), build.network, &build.commands[..]),
        ("host", Network::Isolated, &["make".into()][..])
    );
    assert_eq!((test.timeout_seconds, test.network, test.env["CI"].as_str()), (Some(5400), Network::None, "true"));
    assert_eq!(test.commands[1], "if true; then\n  echo yes\nfi\n");
}

#[test]
fn what_is_given_wins_and_may_be_left_out_of_the_file() {
    let given = Given { name: Some("mine"), repository: Some("https://127.0.0.1:9/r") };
    let file = parse("steps: [{name: a, run: b}]", given).unwrap();
    assert_eq!((file.slug.as_str(), file.spec.repository.as_str()), ("mine", "https://127.0.0.1:9/r"));
    let file = parse(WHOLE, given).unwrap();
    assert_eq!((file.slug.as_str(), file.spec.repository.as_str()), ("mine", "https://127.0.0.1:9/r"));
}

/// A file that is right but for `line`, which stands at 4:1.
fn with(line: &str) -> String {
    format!("name: a\nrepository: https://h/r\nsteps: [{{name: s, run: r}}]\n{line}\n")
}

/// A file whose second step holds `lines` besides its name; the step is line 7, its next key stands at 8:5.
fn with_step(lines: &str) -> String {
    format!("name: a\nrepository: https://h/r\nsteps:\n  - name: s\n    run: r\n\n  - name: t\n{lines}\n")
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let faults = parse(text, Given::default()).expect_err("a fault").of_file("f");
    assert!(faults.lines().any(|line| line.starts_with(expected)), "\nexpected: {expected}\nbut got:  {faults}");
}

#[test]
fn each_fault_is_seen_at_its_line_and_key() {
    check("", "f:1:1: the file is empty");
    check("[a, b]", "f:1:1: must be a map");
    check("a: b: c", "f:1:5: not YAML: ");
    check("name: a\n---\nname: b", "f:2:1: a second document begins here");
    check("name: a\nname: b", "f:2:1: \"name\" stands here twice; first in line 1");
    for text in ["env:\n  A: b\n  A: c", "registry_secrets:\n  A: b\n  A: c", "preview:\n  env: {A: b}\n  A: c\n  A: d"]
    {
        let line = 3 + text.lines().count();
        check(&with(text), &format!("f:{line}:3: \"A\" stands here twice; first in line {}", line - 1));
    }
    check(
        &with_step("    run: r\n    env:\n      A: b\n      A: b"),
        "f:11:7: \"A\" stands here twice; first in line 10",
    );
    check("name: a", "f:1:1: repository: is missing");
    check("name: a", "f:1:1: steps: is missing");
    check("name: Hello", "f:1:1: name: \"Hello\" can't name a pipeline");
    check("name:", "f:1:1: name: has no value");
    check("name: [a]", "f:1:1: name: must be a single value");
    check("repository: http://h/r", "f:1:1: repository: is not an https:// address");
    check("repository: https://u:p@h/r", "f:1:1: repository: holds a user name or a password");
    check("repository: https://h/r?x", "f:1:1: repository: is not an address to clone from");
    check(&with("timout: 1m"), "f:4:1: timout: is not a key that belongs here; there are name, repository, ref");
    check(&with("ref: --upload-pack=x"), "f:4:1: ref: \"--upload-pack=x\" is not a branch");
    check(&with("timeout: 10q"), "f:4:1: timeout: \"10q\" is not a duration; write 90s, 10m or 1h");
    check(&with("submodules: yes"), "f:4:1: submodules: \"yes\" is neither true nor false");
    check(&with("env: [A]"), "f:4:1: env: must be a map");
    check(&with("env:\n  1A: b"), "f:5:3: env.1A: can't name a variable");
    check(&with("env: {A.B: b}"), "f:4:7: env.A.B: can't name a variable");
    check(&with("env:\n  A:"), "f:5:3: env.A: has no value");
    check(&with("env:\n  A: \"\\0\""), "f:5:3: env.A: holds a NUL");
    check(&with("env:\n  CALLBOARD_URL: x"), "f:5:3: env.CALLBOARD_URL: can't name a variable");
    check(&with("secrets: [A, b-c]"), "f:4:14: secrets[1]: is not the name of a secret");
    check(&with("secrets: [A, B, A]"), "f:4:17: secrets[2]: stands in the list before");
    check(&with("secrets:\n- A\n- A"), "f:6:3: secrets[1]: stands in the list before");
    check(&with("requires: [gpu, gpu]"), "f:4:17: requires[1]: stands in the list before");
    check(&with("secrets: {A: b}"), "f:4:1: secrets: must be a list");
    check(&with("clone_secret: a b"), "f:4:1: clone_secret: is not the name of a secret");
    check(&with("registry_secrets: {ghcr.io: a b}"), "f:4:20: registry_secrets.ghcr.io: is not the name of a secret");
    check(&with("registry_secrets: {-x: A}"), "f:4:20: registry_secrets.-x: is not a registry");
    check(&with("requires: ['']"), "f:4:12: requires[0]: \"\" is not a label");
    check(&with_step("    run: x\n    timeout: 10q"), "f:9:5: steps[1].timeout: \"10q\" is not a duration");
    check(&with_step("    image: x"), "f:7:5: steps[1].run: is missing");
    check(&with_step("    run: []"), "f:8:5: steps[1].run: holds 0 commands");
    check(&with_step("    run: ' '"), "f:8:5: steps[1].run: is not a command");
    check(&with_step("    run:\n      - ok\n      - ''"), "f:10:9: steps[1].run[1]: is not a command");
    check(&with_step("    run: {a: b}"), "f:8:5: steps[1].run: must be a list");
    check(
        &with_step("    script: x"),
        "f:8:5: steps[1].script: is not a key that belongs here; there are name, image, run",
    );
    check(&with_step("    run: x\n    on_cancel: perhaps"), "f:9:5: steps[1].on_cancel: ");
    check(&with_step("    image: a b"), "f:8:5: steps[1].image: \"a b\" is not an image");
    check(&with_step("    image: -x"), "f:8:5: steps[1].image: \"-x\" is not an image");
    check(&with_step("    network: host"), "f:8:5: steps[1].network: \"host\" is not a network");
    check(&with_step("    env: {A=B: c}"), "f:8:11: steps[1].env.A=B: can't name a variable");
    check(
        &with_step("    run: x\n  - name: s\n    run: y"),
        "f:9:5: steps[2].name: \"s\" is the name of another step too",
    );
    check(&with_step("    run: x\n  - run: y"), "f:9:5: steps[2].name: is missing");
    check(&with_step("    run: x\n  - text"), "f:9:5: steps[2]: must be a map");
    check("steps: []", "f:1:1: steps: holds 0 steps; write 1 to 64");
}

/// What the board itself would say of a file that is read: nothing, whatever stands in it.
#[test]
fn what_is_read_is_what_the_board_takes() {
    let many = |count: usize| (0..count).map(|at| format!("A{at}")).collect::<Vec<_>>().join(", ");
    for (line, fine) in [
        ("timeout: 24h".to_owned(), true),
        (format!("secrets: [{}]", many(256)), true),
        (format!("secrets: [{}]", many(257)), false),
        (format!("requires: [{}]", many(64)), true),
        (format!("requires: [{}]", many(65)), false),
    ] {
        let file = parse(&with(&line), Given::default());
        assert_eq!(file.is_ok(), fine, "{line}");
        assert!(file.is_err() || file.is_ok_and(|file| file.spec.problems().is_empty()), "{line}");
    }
    assert!(read(WHOLE).spec.problems().is_empty());
}

#[test]
fn all_faults_are_told_at_once_by_line() {
    let faults = parse("ref: a..b\nname: A\nsteps: x\n", Given::default()).unwrap_err();
    let places: Vec<_> = faults.0.iter().map(|fault| (fault.place.line, fault.key.as_str())).collect();
    assert_eq!(places[..3], [(1, "repository"), (1, "ref"), (2, "name")]);
}

#[test]
fn what_may_be_secret_is_never_repeated() {
    let text = "repository: https://u:hunter2@h/r\nclone_secret: hunter2 x\nsecrets: {A: hunter2}\nenv: {=: hunter2}\n";
    let faults = parse(text, Given::default()).unwrap_err().to_string();
    assert!(!faults.contains("hunter2"), "{faults}");
}

#[test]
fn aliases_work_but_do_not_explode() {
    let file = read("name: a\nrepository: https://h/r\nsteps: [{name: s, run: &r [a, b]}, {name: t, run: *r}]");
    assert_eq!(file.spec.steps[1].commands, ["a", "b"]);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..9 {
        let inner = vec![format!("*a{}", n - 1); 8].join(", ");
        bomb.push_str(&format!("a{n}: &a{n} [{inner}]\n"));
    }
    check(&bomb, "f:5:20: too large for a pipeline");
    check(&"[".repeat(5000), "f:1:");
    check("a: &a [*a]", "f:1:8: ");
}

#[test]
fn durations_are_read_with_their_units() {
    for (text, seconds) in [("1s", 1), ("90s", 90), ("10m", 600), ("1h", 3600), ("1h30m5s", 5405), ("24h", 86_400)] {
        assert_eq!(parse_duration(text), Ok(seconds), "{text}");
    }
    for text in ["", "10", "m", "10 m", "-1s", "1.5h", "1m1h", "10m5", "1d", "1h1h", "٣s"] {
        assert_eq!(parse_duration(text), Err(BadDuration::Malformed), "{text}");
    }
    assert_eq!(parse_duration("0s"), Err(BadDuration::Zero));
    for text in ["86401s", "24h1s", "99999999999h"] {
        assert_eq!(parse_duration(text), Err(BadDuration::TooLong), "{text}");
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = ("[^\\x00]{1,80}", "[a-z:#.\\n\" -]{1,40}", any::<bool>(), prop::option::of(1u32..=86_400));
    prop::collection::vec(step, 1..4).prop_map(|steps| {
        let step = |(at, (first, second, none, timeout_seconds)): (usize, (String, String, bool, Option<u32>))| Step {
            name: format!("step: {at}"),
            image: if none { "rust:1".into() } else { "host".into() },
            commands: [first, second]
                .into_iter()
                .filter(|command| !command.trim().is_empty())
                .chain(["x".into()])
                .collect(),
            env: Env::new(),
            timeout_seconds,
            network: if none { Network::None } else { Network::Isolated },
            on_cancel: none && at > 0,
        };
        steps.into_iter().enumerate().map(step).collect()
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_the_same(steps in steps(), value in "[^\\x00]{0,60}", submodules: bool, preview: bool) {
        let spec = PipelineSpec {
            repository: "https://h:8443/a/b.git".into(),
            default_ref: "on".into(),
            steps,
            env: Env::from([("A".into(), value), ("N".into(), "1e3".into())]),
            timeout_seconds: Some(61),
            requires: vec!["arch=arm64".into()],
            secrets: vec!["S".into()],
            clone_secret: Some("C".into()),
            registry_secrets: [("host:5000".into(), "R".into())].into(),
            submodules,
            preview: preview.then(|| PreviewSpec {
                image: "nginx:1".into(),
                commands: vec!["serve 80".into()],
                port: 80,
                health_path: "/up?a=b".into(),
                ttl_seconds: 5400,
                env: Env::from([("B".into(), "2".into())]),
                retain_failed: submodules,
            }),
        };
        let text = write("null", &spec);
        let back = parse(&text, Given::default()).map_err(|faults| TestCaseError::fail(format!("{faults}\n{text}")))?;
        prop_assert_eq!(back, PipelineFile { slug: "null".into(), spec });
    }

    #[test]
    fn no_text_makes_it_panic(text in "[a-z:\\[\\]{}&*!|>\\-\\n \"'#%@\u{85}]{0,200}") {
        let _ = parse(&text, Given::default());
    }

    #[test]
    fn a_spelled_duration_reads_the_same(seconds in 1u32..=86_400) {
        prop_assert_eq!(parse_duration(&spell_duration(seconds)), Ok(seconds));
    }
}

const PREVIEW: &str = "name: a\nrepository: https://h/r\nsteps: [{name: t, run: x}]\npreview:\n";

#[test]
fn a_preview_is_read_with_its_defaults() {
    let spec = |rest: &str| read(&format!("{PREVIEW}{rest}")).spec.preview.expect("a preview");
    let plain = spec("  run: serve\n  port: 8080\n");
    assert_eq!((plain.image.as_str(), plain.health_path.as_str(), plain.ttl_seconds), ("host", "/", 3600));
    assert_eq!((plain.commands, plain.port, plain.retain_failed), (vec!["serve".to_owned()], 8080, false));
    let whole = spec(
        "  image: node:22\n  run: [npm ci, npm start]\n  port: 3000\n  health_path: /up\n  ttl: 2h\n  env: {A: 1.10}\n  retain_failed: true\n",
    );
    assert_eq!((whole.image.as_str(), whole.health_path.as_str(), whole.ttl_seconds), ("node:22", "/up", 7200));
    assert_eq!((whole.env["A"].as_str(), whole.retain_failed), ("1.10", true));
}

#[test]
fn a_fault_in_a_preview_is_told_at_its_line_and_key() {
    let check = |rest: &str, expected: &str| check(&format!("{PREVIEW}{rest}"), expected);
    check("  port: 80\n", "f:4:1: preview.run: is missing");
    check("  run: x\n", "f:4:1: preview.port: is missing");
    for port in ["0", "65536", "http", "+80", "80.0"] {
        check(&format!("  run: x\n  port: {port}\n"), "f:6:3: preview.port: ");
    }
    check("  run: x\n  port: 80\n  health_path: up\n", "f:7:3: preview.health_path: \"up\" is not a path");
    check("  run: x\n  port: 80\n  ttl: 25h\n", "f:7:3: preview.ttl: \"25h\" is longer than a day");
    check("  run: x\n  port: 80\n  timeout: 1h\n", "f:7:3: preview.timeout: is not a key that belongs here");
    check(
        "  run: x\n  port: 80\n  retain_failed: yes\n",
        "f:7:3: preview.retain_failed: \"yes\" is neither true nor false",
    );
    check("  run: x\n  port: 80\n  env: {CALLBOARD_X: 1}\n", "f:7:9: preview.env.CALLBOARD_X: can't name a variable");
}
