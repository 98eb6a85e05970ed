//! Serving calls together that wait at the same time: what a queue that hands out one build a call needs to be as quick as one
//! that hands out batches (docs/decisions/0006).
//!
//! Its lane takes everything that waits when it becomes free, has it served by one statement, and answers each call. One lane makes
//! the largest batches; two were slower (docs/performance.md). There is no timer: a lone call is served at once, and on Lambda, where an instance has one request at a time, every call is alone.

use crate::Rejection;
use std::future::Future;
use std::sync::OnceLock;
use tokio::sync::{mpsc, oneshot};

type Waiting<Q, A> = (Q, oneshot::Sender<Result<A, Rejection>>);

/// A place where calls of one kind meet.
pub struct Combiner<Q, A> {
    queue: OnceLock<mpsc::UnboundedSender<Waiting<Q, A>>>,
}

impl<Q, A> Default for Combiner<Q, A> {
    fn default() -> Self {
        Self { queue: OnceLock::new() }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Combiner<Q, A> {
    /// Has `call` served by `serve`, together with others that wait. `serve` answers in the order of its calls. At most
    /// `batch_max` are served together; at 1, each call is served by itself.
    ///
    /// The lane lives as long as this combiner, and runs on the runtime of the first call.
    ///
    /// # Errors
    ///
    /// What `serve` says, and [`Rejection::Internal`] if it gave no answer.
    pub async fn call<S, F>(&self, call: Q, batch_max: usize, serve: S) -> Result<A, Rejection>
    where
        S: Fn(Vec<Q>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Vec<Result<A, Rejection>>> + Send + 'static,
    {
        if batch_max <= 1 {
            return serve(vec![call]).await.pop().unwrap_or_else(no_answer);
        }
        let (sender, answer) = oneshot::channel();
        let queue = self.queue.get_or_init(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            tokio::spawn(lane(receiver, batch_max, serve));
            sender
        });
        if queue.send((call, sender)).is_err() {
            return no_answer();
        }
        answer.await.unwrap_or_else(|_| no_answer())
    }
}

fn no_answer<A>() -> Result<A, Rejection> {
    Err(Rejection::Internal("a call that was served together with others got no answer".into()))
}

/// Serves batch after batch until the combiner is gone. A batch that panics loses its own answers and no others.
async fn lane<Q, A, S, F>(mut receiver: mpsc::UnboundedReceiver<Waiting<Q, A>>, batch_max: usize, serve: S)
where
    Q: Send + 'static,
    A: Send + 'static,
    S: Fn(Vec<Q>) -> F,
    F: Future<Output = Vec<Result<A, Rejection>>> + Send + 'static,
{
    loop {
        let mut batch = Vec::new();
        if receiver.recv_many(&mut batch, batch_max).await == 0 {
            return;
        }
        // Who has gone away needs no answer, and must not get a build.
        let waiting = batch.into_iter().filter(|(_, sender)| !sender.is_closed());
        let (calls, senders): (Vec<_>, Vec<_>) = waiting.unzip();
        if let Ok(answers) = tokio::spawn(serve(calls)).await {
            for (sender, answer) in senders.into_iter().zip(answers) {
                let _ = sender.send(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Semaphore;

    /// Answers each number with the size of the batch that it was served in; `gate` holds batches back.
    async fn served(batch_max: usize, calls: usize, gate: &Arc<Semaphore>) -> Vec<usize> {
        let combiner = Combiner::<usize, (usize, usize)>::default();
        let begun = Arc::new(AtomicUsize::new(0));
        let serve = {
            let (gate, begun) = (Arc::clone(gate), Arc::clone(&begun));
            move |numbers: Vec<usize>| {
                let (gate, begun) = (Arc::clone(&gate), Arc::clone(&begun));
                async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    let _held = gate.acquire().await;
                    let size = numbers.len();
                    numbers.into_iter().map(|number| Ok((number, size))).collect()
                }
            }
        };
        let all = join_all((0..calls).map(|number| combiner.call(number, batch_max, serve.clone())));
        let release = async {
            while begun.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            gate.add_permits(calls);
        };
        let (answers, ()) = tokio::join!(all, release);
        let each = answers.into_iter().enumerate().map(|(number, answer)| {
            let (answered, size) = answer.expect("an answer");
            assert_eq!(answered, number, "each call gets its own answer");
            size
        });
        each.collect()
    }

    #[tokio::test]
    async fn a_lone_call_is_served_alone_and_at_once() {
        assert_eq!(served(64, 1, &Arc::new(Semaphore::new(1))).await, [1]);
    }

    #[tokio::test]
    async fn what_waits_while_the_lane_is_busy_is_served_together() {
        let sizes = served(4, 10, &Arc::new(Semaphore::new(0))).await;
        assert!(sizes.iter().all(|size| *size <= 4) && sizes.iter().any(|size| *size > 1), "{sizes:?}");
    }

    #[tokio::test]
    async fn with_batches_of_one_nothing_is_combined() {
        assert_eq!(served(1, 5, &Arc::new(Semaphore::new(5))).await, [1; 5]);
    }

    #[tokio::test]
    async fn a_batch_that_panics_fails_its_own_calls_and_the_next_is_served() {
        let combiner = Combiner::<bool, ()>::default();
        let serve = |calls: Vec<bool>| async move {
            assert!(!calls[0], "the batch panics");
            calls.into_iter().map(|_| Ok(())).collect()
        };
        assert!(combiner.call(true, 8, serve).await.is_err());
        assert!(combiner.call(false, 8, serve).await.is_ok());
    }
}
