//! `callboard-worker`: see `callboard-worker --help`.

use callboard_worker::cli::{Cli, Command, DoctorArgs, EgressArgs, LogFormat};
use callboard_worker::worker::{self, Failed};
use callboard_worker::{descriptors, doctor, egress, guard, hand_over, isolation};
use clap::Parser as _;
use std::io::{IsTerminal as _, stderr};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    // Whoever started us may have left descriptors open; no sandbox is to inherit them.
    close_fds::set_fds_cloexec(3, &[]);
    let cli = Cli::parse();
    let descriptors = descriptors::raise_descriptors();
    match cli.command {
        Command::Guard { .. } => guard::run().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
        Command::Egress(EgressArgs { socket, allow, .. }) => {
            egress::serve(&socket, allow, descriptors).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
        }
        Command::HandOver { user, directories } => {
            hand_over::hand_over(&directories, user).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
        }
        Command::SandboxInit => ExitCode::from(u8::try_from(isolation::init::run()).unwrap_or(u8::MAX)),
        Command::Doctor(args) => examine(&args, descriptors),
        Command::Run(args) => serve(cli.log_format, async move {
            let config = args.config()?;
            descriptors::too_few(config.slots, descriptors)
                .map_or(Ok(()), |few| Err(Failed::Limit(few, config.slots)))?;
            let phase = worker::phases(config.drain_timeout, args.until_stdin_ends).map_err(anyhow::Error::from)?;
            worker::run(config, phase).await
        }),
        Command::Recover(args) => serve(cli.log_format, async move { worker::recover(args.config()?).await }),
    }
}

fn serve(format: LogFormat, work: impl Future<Output = Result<(), Failed>>) -> ExitCode {
    tell(format);
    let ended = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
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

fn tell(format: LogFormat) {
    let filter = EnvFilter::try_from_env("CALLBOARD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    match format {
        LogFormat::Text => lines.with_target(false).with_ansi(stderr().is_terminal()).init(),
        LogFormat::Json => lines.json().init(),
    }
}

fn examine(args: &DoctorArgs, descriptors: u64) -> ExitCode {
    let findings = match args.place() {
        Ok(place) => doctor::examine(&place, args.slots, descriptors),
        Err(error) => {
            eprintln!("callboard-worker: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let json = || serde_json::to_string_pretty(&findings).unwrap_or_default() + "\n";
    print!("{}", if args.json { json() } else { doctor::table(&findings) });
    if doctor::is_fit(&findings) { ExitCode::SUCCESS } else { ExitCode::from(69) }
}
