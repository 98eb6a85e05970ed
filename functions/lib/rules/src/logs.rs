//! Which chunks of a batch are new, which were stored before, and which do not belong (SPEC.md, Logs).

/// What becomes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The first `duplicates` chunks are stored already, the rest is new and follows without a gap.
    Append {
        /// How many of the batch's chunks were stored before.
        duplicates: usize,
    },
    /// A chunk with this `seq` is stored with other bytes: 409 `seq_conflict`.
    Conflict {
        /// Where the worker goes on.
        expected_seq: u64,
    },
    /// A `seq` is missing before or inside the batch: 409 `log_gap`.
    Gap {
        /// Where the worker goes on.
        expected_seq: u64,
    },
    /// `seq` 0, or numbers that fall: no order at all (422).
    Disordered,
}

/// Decides on a batch whose chunks are numbered `seqs`, where `next_seq` is what the board expects, and `same(i)` says
/// whether the chunk at `i`, whose number is below `next_seq`, equals what is stored under it. Chunks below `next_seq`
/// that were discarded at the cap count as the same.
#[must_use]
pub fn order(seqs: &[u64], next_seq: u64, same: impl Fn(usize) -> bool) -> Order {
    let rising = seqs.windows(2).all(|pair| pair[0] < pair[1]);
    if !rising || seqs.first() == Some(&0) {
        return Order::Disordered;
    }
    let duplicates = seqs.iter().take_while(|seq| **seq < next_seq).count();
    if (0..duplicates).any(|at| !same(at)) {
        return Order::Conflict { expected_seq: next_seq };
    }
    let gap = seqs[duplicates..].iter().zip(next_seq..).any(|(seq, expected)| *seq != expected);
    if gap { Order::Gap { expected_seq: next_seq } } else { Order::Append { duplicates } }
}

/// How many of `sizes` (encoded bytes of the new chunks, in order) are stored before the cap is reached: a chunk that
/// would pass `cap_bytes` is discarded and so are all after it, whatever their size.
#[must_use]
pub fn stored_before_cap(sizes: &[u64], stored_bytes: u64, capped: bool, cap_bytes: u64) -> usize {
    if capped {
        return 0;
    }
    let mut total = stored_bytes;
    sizes
        .iter()
        .take_while(|size| {
            total = total.saturating_add(**size);
            total <= cap_bytes
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(seqs: &[u64], next_seq: u64, expected: Order) {
        assert_eq!(order(seqs, next_seq, |_| true), expected, "{seqs:?} at {next_seq}");
    }

    #[test]
    fn batches_in_every_relation_to_what_is_expected() {
        check(&[], 5, Order::Append { duplicates: 0 });
        check(&[5, 6], 5, Order::Append { duplicates: 0 });
        check(&[3, 4], 5, Order::Append { duplicates: 2 });
        check(&[4, 5], 5, Order::Append { duplicates: 1 });
        check(&[6], 5, Order::Gap { expected_seq: 5 });
        check(&[5, 7], 5, Order::Gap { expected_seq: 5 });
        check(&[2, 4, 5], 5, Order::Append { duplicates: 2 });
        check(&[0, 1], 1, Order::Disordered);
        check(&[2, 1], 1, Order::Disordered);
        check(&[1, 1], 1, Order::Disordered);
    }

    #[test]
    fn other_bytes_under_a_stored_number_are_a_conflict() {
        assert_eq!(order(&[4, 5], 5, |at| at != 0), Order::Conflict { expected_seq: 5 });
    }

    #[test]
    fn the_cap_is_reached_by_the_chunk_that_would_pass_it() {
        assert_eq!(stored_before_cap(&[2, 2], 0, false, 4), 2);
        assert_eq!(stored_before_cap(&[2, 3, 1], 0, false, 4), 1);
        assert_eq!(stored_before_cap(&[0], 4, true, 4), 0);
    }

    proptest! {
        /// A sender that loses answers and sends again from anywhere never makes a hole, a double or a mixture.
        #[test]
        fn a_log_is_what_was_sent(sends in prop::collection::vec((0_u64..30, 0_usize..10), 0..60)) {
            let byte_of = |seq: u64| seq.wrapping_mul(31);
            let mut stored: Vec<u64> = Vec::new();
            for (first, count) in sends {
                let seqs: Vec<u64> = (first..).take(count).collect();
                let next = u64::try_from(stored.len()).expect("small") + 1;
                let same = |at: usize| {
                    let index = usize::try_from(seqs[at] - 1).expect("small");
                    stored[index] == byte_of(seqs[at])
                };
                if let Order::Append { duplicates } = order(&seqs, next, same) {
                    stored.extend(seqs[duplicates..].iter().map(|seq| byte_of(*seq)));
                }
            }
            let expected: Vec<u64> = (1..).take(stored.len()).map(byte_of).collect();
            prop_assert_eq!(stored, expected);
        }

        #[test]
        fn what_is_stored_never_passes_the_cap(sizes in prop::collection::vec(0_u64..100, 0..50), before in 0_u64..100, cap in 0_u64..1000) {
            prop_assume!(before <= cap);
            let kept = stored_before_cap(&sizes, before, false, cap);
            prop_assert!(before + sizes[..kept].iter().sum::<u64>() <= cap);
        }
    }
}
