//! `callboard-worker`: see `callboard-worker --help`.

use callboard_worker::cli::{Cli, Command, DoctorArgs, EgressArgs, EnterArgs, KeepArgs, LogFormat, NetworkArgs};
use callboard_worker::guard::enter::Entry;
use callboard_worker::previews::keeper;
use callboard_worker::runner::{self, End};
use callboard_worker::worker::{self, Failed};
use callboard_worker::{descriptors, doctor, egress, guard, hand_over, isolation, network};
use std::io::{self, IsTerminal as _, stderr, stdout};
use std::process::ExitCode;
use std::time::Duration;
use tracing_subscriber::EnvFilter;

/// How long threads that are at something may take to end.
const END_PATIENCE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = match Cli::read(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(bad) => {
            eprintln!("callboard-worker: {bad}");
            return ExitCode::from(78);
        }
    };
    // Whoever started us may have left descriptors open; no sandbox is to inherit them. What a guard leaves open is for it.
    if !matches!(cli.command, Command::Enter(_)) {
        close_fds::set_fds_cloexec(3, &[]);
    }
    let descriptors = descriptors::raise_descriptors();
    match cli.command {
        Command::Enter(EnterArgs { groups, user, inside, command }) => {
            eprintln!("callboard-worker: {}", guard::enter::enter(&Entry { groups, user, inside }, &command));
            ExitCode::FAILURE
        }
        Command::Guard { .. } => code(guard::run()),
        Command::Egress(EgressArgs { socket, allow, resolver, .. }) => {
            code(egress::serve(&socket, allow, resolver, descriptors))
        }
        Command::Network(NetworkArgs { socket, service, door, user, .. }) => {
            let service = service.zip(door.as_deref()).map(|(port, door)| network::Service { port, door });
            code(network::serve(&socket, service, user, descriptors))
        }
        Command::Keep(KeepArgs { .. }) => code(keeper::run(descriptors)),
        Command::Health(args) => say(args.ask()),
        Command::Place(args) => match args.place() {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::from(78)
            }
        },
        Command::HandOver { user, directories } => code(hand_over::hand_over(&directories, user)),
        Command::Runner => run_steps(cli.log_format),
        Command::SandboxInit => ExitCode::from(u8::try_from(isolation::init::run()).unwrap_or(u8::MAX)),
        Command::Try { what } => code_or_why(isolation::trial::attempt(what, &mut stdout())),
        Command::Doctor(args) => examine(&args, descriptors),
        Command::Run(args) => serve(cli.log_format, async move {
            let config = args.config().map_err(Failed::Settings)?;
            descriptors::too_few(config.slots, descriptors)
                .map_or(Ok(()), |few| Err(Failed::Limit(few, config.slots)))?;
            let phase = worker::phases(config.drain_timeout, args.until_stdin_ends).map_err(anyhow::Error::from)?;
            worker::run(config, phase).await
        }),
        Command::Recover(args) => {
            serve(cli.log_format, async move { worker::recover(args.config().map_err(Failed::Settings)?).await })
        }
    }
}

/// Of those who have told their trouble to whoever started them.
fn code(done: io::Result<()>) -> ExitCode {
    done.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn say(said: io::Result<String>) -> ExitCode {
    code_or_why(said.map(|said| println!("{said}")))
}

/// Of those whose trouble nobody has told yet.
fn code_or_why(done: io::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("callboard-worker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(format: LogFormat, work: impl Future<Output = Result<(), Failed>>) -> ExitCode {
    tell(format);
    let ended = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let ended = runtime.block_on(work);
            // A name that is still looked up, on a thread that nobody can end, must not hold us.
            runtime.shutdown_timeout(END_PATIENCE);
            ended
        }
        Err(error) => Err(Failed::Other(error.into())),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("callboard-worker: {failed:#}");
            ExitCode::from(failed.exit_code())
        }
    }
}

fn run_steps(format: LogFormat) -> ExitCode {
    tell(format);
    let variable = |name: &str| std::env::var_os(name).and_then(|value| value.into_string().ok());
    let end = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let end = runtime.block_on(runner::run(variable));
            runtime.shutdown_timeout(END_PATIENCE);
            end
        }
        Err(error) => End::Unfit(error.to_string()),
    };
    if !matches!(end, End::Reported) {
        eprintln!("callboard-worker: {end}");
    }
    ExitCode::from(end.exit_code())
}

fn tell(format: LogFormat) {
    let filter = EnvFilter::try_from_env("CALLBOARD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    match format {
        LogFormat::Text => lines.with_target(false).with_ansi(stderr().is_terminal()).init(),
        LogFormat::Json => lines.json().init(),
    }
}

fn examine(args: &DoctorArgs, descriptors: u64) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(anyhow::Error::from);
    let examined = args.place().and_then(|place| {
        let (isolation, previews, accepted) = (args.isolation(), args.previews(), args.accepted());
        Ok(runtime?.block_on(doctor::examine(&place, isolation, args.slots, descriptors, &previews, accepted)))
    });
    let examined = match examined {
        Ok(examined) => examined,
        Err(error) => {
            eprintln!("callboard-worker: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let json = || serde_json::to_string_pretty(&examined).unwrap_or_default() + "\n";
    print!("{}", if args.json { json() } else { examined.text() });
    if examined.is_fit() { ExitCode::SUCCESS } else { ExitCode::from(69) }
}
