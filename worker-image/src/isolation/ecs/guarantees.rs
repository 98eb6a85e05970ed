//! What a task of ECS holds a build to: by what stands in its definition, since a worker can't look into one.

use super::settings::LaunchType;
use crate::isolation::guarantees::{ALL, Given, Guarantee};

/// What tasks are held to.
#[must_use]
pub fn guarantees(launch_type: LaunchType) -> Vec<Given> {
    ALL.iter().map(|guarantee| given(*guarantee, launch_type)).collect()
}

fn given(guarantee: Guarantee, launch_type: LaunchType) -> Given {
    let is_fargate = launch_type == LaunchType::Fargate;
    let held = |by: &str| Given::held(guarantee, by);
    match guarantee {
        Guarantee::Namespaces if is_fargate => {
            held("a machine of its own for each build; within it a container for each step")
        }
        Guarantee::Namespaces => held("a container for each step; the kernel is the instance's"),
        Guarantee::Capabilities => held("all dropped in the definition"),
        Guarantee::Privileges => held("no_new_privs, by the shim that starts each step"),
        Guarantee::Users => held("user 10001, in a task without a role"),
        Guarantee::Nesting => held("the filter, by the shim"),
        Guarantee::Seccomp => held("the filter, by the shim: a definition takes none"),
        Guarantee::Network => Given::missing(
            guarantee,
            "the rules of the security groups and subnets decide, which a worker can't try",
            "let the security groups of CALLBOARD_ECS_SECURITY_GROUPS reach nothing but what builds may, then accept it",
        ),
        Guarantee::Memory => held("the task's size, CALLBOARD_ECS_MEMORY, which its steps share"),
        Guarantee::Processes => held("a limit of a user's processes, by the shim"),
        Guarantee::Cpu => held("the task's size, CALLBOARD_ECS_CPU, which its steps share"),
        Guarantee::Disk if is_fargate => held("the task's own disk"),
        Guarantee::Disk => Given::missing(
            guarantee,
            "volumes are on the instance's disk, and nothing counts them",
            "use Fargate, or accept it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacks(launch_type: LaunchType) -> Vec<Guarantee> {
        guarantees(launch_type).into_iter().filter(|given| !given.held).map(|given| given.guarantee).collect()
    }

    #[test]
    fn what_no_worker_can_see_to_must_be_accepted_by_name() {
        assert_eq!(lacks(LaunchType::Fargate), [Guarantee::Network]);
    }

    #[test]
    fn instances_share_their_disk_among_builds() {
        assert_eq!(lacks(LaunchType::Ec2), [Guarantee::Network, Guarantee::Disk]);
    }

    #[test]
    fn each_guarantee_is_told_of_once() {
        for launch_type in [LaunchType::Fargate, LaunchType::Ec2] {
            let told: Vec<_> = guarantees(launch_type).into_iter().map(|given| given.guarantee).collect();
            assert_eq!(told, ALL);
        }
    }
}
