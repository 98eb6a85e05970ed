//! A task's size ("Amazon ECS task definition parameters for Fargate", task size).

/// `"1024"`, or `"1 vCPU"`, in CPU units.
pub(super) fn cpu_units(text: &str) -> Option<u32> {
    let text = text.trim().to_ascii_lowercase();
    match text.strip_suffix("vcpu") {
        Some(number) => thousandfold(number.trim()),
        None => text.parse().ok(),
    }
}

/// `"2048"`, or `"2 GB"`, in MiB.
pub(super) fn mib(text: &str) -> Option<u32> {
    let text = text.trim().to_ascii_lowercase();
    match text.strip_suffix("gb") {
        Some(number) => thousandfold(number.trim()),
        None => text.parse().ok(),
    }
}

/// A number with or without a fraction, times 1,024.
fn thousandfold(number: &str) -> Option<u32> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u32 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let digits = u32::try_from(fraction.len()).ok()?;
    let fraction: u32 = fraction.parse().ok()?;
    whole.checked_mul(1024)?.checked_add(fraction.checked_mul(1024)? / 10_u32.checked_pow(digits)?)
}

/// Whether Fargate has machines of this size.
pub(super) fn has_fargate(cpu: u32, memory: u32) -> bool {
    let (least, most, step) = match cpu {
        256 => return [512, 1024, 2048].contains(&memory),
        512 => (1024, 4096, 1024),
        1024 => (2048, 8192, 1024),
        2048 => (4096, 16_384, 1024),
        4096 => (8192, 30_720, 1024),
        8192 => (16_384, 61_440, 4096),
        16_384 => (32_768, 122_880, 8192),
        _ => return false,
    };
    (least..=most).contains(&memory) && memory.is_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_or_words() {
        assert_eq!(
            ["1024", "1 vCPU", ".25 vcpu", "0.5 vCPU", "many"].map(cpu_units),
            [Some(1024), Some(1024), Some(256), Some(512), None]
        );
        assert_eq!(["2048", "2GB", "0.5 GB"].map(mib), [Some(2048), Some(2048), Some(512)]);
    }

    #[test]
    fn fargate_has_these_sizes_and_no_others() {
        for (cpu, memory) in [(256, 512), (512, 1024), (512, 4096), (1024, 8192), (8192, 16_384), (16_384, 122_880)] {
            assert!(has_fargate(cpu, memory), "{cpu} {memory}");
        }
        for (cpu, memory) in [(256, 4096), (512, 512), (1024, 1024), (1024, 2500), (8192, 17_408), (300, 1024)] {
            assert!(!has_fargate(cpu, memory), "{cpu} {memory}");
        }
    }
}
