//! The system calls that a sandbox refuses: those that reach rarely used parts of the kernel, which is where its faults are,
//! or that a sandbox without capabilities has no use for.
//!
//! A list of refusals and not of permissions, since builds run anything; but calls that are newer than this list are
//! refused as well, as a kernel would that does not know them. `ptrace` is allowed: debuggers and tracers are usual in tests,
//! and reach nothing outside of the sandbox.

use nix::errno::Errno;
use nix::libc;
use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
    apply_filter, sock_filter,
};
use std::collections::BTreeMap;
use std::io;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The newest call that this list was made with. All architectures have the same numbers up here, and the calls of x32
/// have a bit far above.
const NEWEST: u32 = 469;

/// Refused whatever they are called with, as for want of a capability.
const FORBIDDEN: [i64; 47] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_migrate_pages,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_name_to_handle_at,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
    libc::SYS_process_madvise,
    libc::SYS_clock_adjtime,
    libc::SYS_chroot,
];
const OPEN_TREE_ATTR: i64 = 467;

/// Of old PCs.
#[cfg(target_arch = "x86_64")]
const FORBIDDEN_HERE: [i64; 5] = [libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_sysfs, libc::SYS_uselib, libc::SYS_ustat];
#[cfg(not(target_arch = "x86_64"))]
const FORBIDDEN_HERE: [i64; 0] = [];

/// Refused as if the kernel did not know them, so that programs take the older way: what `clone3` asks for can't be seen by a
/// filter.
const UNKNOWN: [i64; 5] = [
    libc::SYS_clone3,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_vmsplice,
];

/// Namespaces that a program may ask for.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];
/// Of `unshare` alone: `clone` takes the same bit as part of a signal's number.
const CLONE_NEWTIME: u64 = 0x80;

/// What a program may be: the usual, with 32-bit names, and with addresses that don't change; and the question which it is.
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x4_0000, 0x2_0000, 0xffff_ffff];

/// Typing for another terminal, and what the console does.
const IOCTLS: [u64; 2] = [0x5412, 0x541c];

/// The kinds of sockets that there are.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Refuses these calls to this thread and all that it starts, for ever. It gains no privileges any more either.
///
/// # Errors
///
/// If the kernel takes no filters.
pub fn apply() -> io::Result<()> {
    for program in programs().map_err(io::Error::other)? {
        apply_filter(&program).map_err(io::Error::other)?;
    }
    Ok(())
}

/// The filters; the strictest answer counts. A call of another architecture, such as a 32-bit program's, ends its process.
fn programs() -> Result<Vec<BpfProgram>, BackendError> {
    let mut programs = vec![newer()];
    for (errno, rules) in [(Errno::EPERM, forbidden()?), (Errno::ENOSYS, unknown()), (Errno::EAFNOSUPPORT, sockets()?)]
    {
        let refusal = SeccompAction::Errno(errno.unsigned());
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        programs.push(SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch)?.try_into()?);
    }
    Ok(programs)
}

trait Unsigned {
    fn unsigned(self) -> u32;
}

impl Unsigned for Errno {
    fn unsigned(self) -> u32 {
        (self as i32).unsigned_abs()
    }
}

/// Calls beyond [`NEWEST`] are unknown. Written by hand, since the library compares numbers for equality alone.
fn newer() -> BpfProgram {
    let step = |code: u32, jt, jf, k| sock_filter { code: u16::try_from(code).unwrap_or(0), jt, jf, k };
    let refusal = libc::SECCOMP_RET_ERRNO | Errno::ENOSYS.unsigned();
    vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 0, 1, NEWEST),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refusal),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

fn forbidden() -> Result<Rules, BackendError> {
    let mut rules: Rules = FORBIDDEN.iter().chain(&FORBIDDEN_HERE).map(|call| (*call, Vec::new())).collect();
    let namespaces = || NAMESPACES.iter().map(|bit| u64::from(bit.unsigned_abs()));
    rules.insert(libc::SYS_clone, any_bit(namespaces())?);
    rules.insert(libc::SYS_unshare, any_bit(namespaces().chain([CLONE_NEWTIME]))?);
    rules.insert(libc::SYS_personality, vec![all(PERSONALITIES.map(|known| (0, Ne, known)))?]);
    let ioctls: Result<_, _> = IOCTLS.iter().map(|request| all([(1, Eq, *request)])).collect();
    rules.insert(libc::SYS_ioctl, ioctls?);
    Ok(rules)
}

fn unknown() -> Rules {
    UNKNOWN.iter().map(|call| (*call, Vec::new())).collect()
}

/// Of netlink only routes, addresses and links can be asked for: protocol 0.
fn sockets() -> Result<Rules, BackendError> {
    let known = FAMILIES.map(|family| (0, Ne, u64::from(family.unsigned_abs())));
    let other_netlink = [(0, Eq, u64::from(libc::AF_NETLINK.unsigned_abs())), (2, Ne, 0)];
    Ok([(libc::SYS_socket, vec![all(known)?, all(other_netlink)?])].into())
}

/// A call with any of these bits in its first argument.
fn any_bit(bits: impl Iterator<Item = u64>) -> Result<Vec<SeccompRule>, BackendError> {
    bits.map(|bit| all([(0, MaskedEq(bit), bit)])).collect()
}

/// A call of which all of this is true: argument, comparison, value. The kernel looks at half of each of these arguments.
fn all<const N: usize>(conditions: [(u8, SeccompCmpOp, u64); N]) -> Result<SeccompRule, BackendError> {
    let conditions =
        conditions.into_iter().map(|(number, how, value)| SeccompCondition::new(number, Dword, how, value));
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};

    /// On a thread of its own, which is refused from then on.
    fn refused<T: Send + 'static>(attempt: impl FnOnce() -> T + Send + 'static) -> T {
        let refused = || {
            apply().unwrap();
            attempt()
        };
        std::thread::spawn(refused).join().unwrap()
    }

    #[test]
    fn namespaces_and_mounts_are_refused_and_threads_and_programs_are_not() {
        let namespaces = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_FILES;
        assert_eq!(refused(move || unshare(namespaces)), Err(Errno::EPERM));
        assert_eq!(refused(|| unshare(CloneFlags::CLONE_FILES)), Ok(()));
        let mounts = || mount(None::<&str>, "/nowhere", None::<&str>, MsFlags::MS_REMOUNT, None::<&str>);
        assert_eq!(refused(mounts), Err(Errno::EPERM));
        assert_eq!(refused(|| std::thread::spawn(|| 7).join().unwrap()), 7);
        assert!(refused(|| std::process::Command::new("/bin/true").status()).unwrap().success());
    }

    #[test]
    fn no_call_is_refused_in_two_ways() {
        let both = UNKNOWN.iter().filter(|call| forbidden().unwrap().contains_key(call)).count();
        assert_eq!((both, forbidden().unwrap().len()), (0, FORBIDDEN.len() + FORBIDDEN_HERE.len() + 4));
    }
}
