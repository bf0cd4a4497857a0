//! Tests of the commit queue: order, limits, panics, and what it costs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;

use pleach_env::{Env, RealEnv};

use super::*;

#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    submitter: usize,
    number: usize,
    cost: usize,
    is_slow: bool,
    /// Place in the order of all requests, set by the leader.
    result: Option<usize>,
}

fn request(submitter: usize, number: usize) -> Request {
    Request { submitter, number, ..Request::default() }
}

fn queue() -> CommitQueue<Request> {
    CommitQueue::new(|request| request.cost, |request| request.is_slow)
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

/// Requests that wait.
fn waiting(queue: &CommitQueue<Request>) -> usize {
    queue.waiting.lock().iter().map(|gathering| gathering.requests.len()).sum()
}

/// Leads once, and does not finish before `waiters` others have been queued behind it in the order of their numbers.
/// Returns the groups that they then form, as numbers.
fn groups_of(waiters: usize, cost: usize) -> Vec<Vec<usize>> {
    let queue = queue();
    let groups = Mutex::new(Vec::new());
    let lead = |group: &mut [Request]| {
        groups.lock().push(group.iter().map(|r| r.number).collect());
        for request in group {
            request.result = Some(request.number);
        }
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            queue.submit(request(0, 0), |group| {
                wait_until(|| waiting(&queue) == waiters);
                lead(group);
            })
        });
        wait_until(|| queue.lead_state.load(Ordering::Relaxed) != IDLE);
        for number in 1..=waiters {
            let (queue, lead) = (&queue, &lead);
            scope.spawn(move || {
                let request = queue.submit(Request { number, cost, ..Request::default() }, lead);
                assert_eq!(request.result, Some(number));
            });
            wait_until(|| waiting(queue) == number || groups.lock().len() > 1);
        }
        assert_eq!(first.join().unwrap().result, Some(0));
    });
    assert_eq!(queue.lead_state.load(Ordering::Relaxed), IDLE);
    groups.into_inner()
}

#[test]
fn a_lone_thread_leads_its_own_request() {
    let queue = queue();
    for number in 0..3 {
        let back = queue.submit(request(0, number), |group| {
            assert_eq!(group.len(), 1);
            group[0].result = Some(number);
        });
        assert_eq!(back.result, Some(number));
    }
    assert_eq!(queue.lead_state.load(Ordering::Relaxed), IDLE);
}

#[test]
fn those_who_wait_form_one_group_in_order_of_arrival() {
    assert_eq!(groups_of(5, 1), [vec![0], vec![1, 2, 3, 4, 5]]);
}

#[test]
fn a_group_is_bounded_by_number() {
    let groups = groups_of(GROUP_REQUESTS_MAX + 10, 1);
    let sizes: Vec<_> = groups.iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, GROUP_REQUESTS_MAX + 1, 9]);
    assert!(groups.concat().is_sorted());
}

#[test]
fn a_group_is_bounded_by_cost_and_takes_its_leader_whatever_it_costs() {
    assert_eq!(groups_of(5, GROUP_COST_MAX / 2), [vec![0], vec![1, 2, 3], vec![4, 5]]);
    assert_eq!(groups_of(3, GROUP_COST_MAX + 1), [vec![0], vec![1], vec![2], vec![3]]);
}

#[test]
fn many_threads_get_every_request_back_once_and_in_their_order() {
    const THREADS: usize = 8;
    const REQUESTS: usize = 5_000;
    let queue = queue();
    let leading = AtomicBool::new(false);
    let order = Mutex::new(Vec::new());
    let groups = AtomicUsize::new(0);
    let lead = |group: &mut [Request]| {
        assert!(!leading.swap(true, Ordering::SeqCst), "two leaders at a time");
        let mut order = order.lock();
        for request in group {
            request.result = Some(order.len());
            order.push((request.submitter, request.number));
        }
        groups.fetch_add(1, Ordering::SeqCst);
        leading.store(false, Ordering::SeqCst);
    };
    thread::scope(|scope| {
        for submitter in 0..THREADS {
            let (queue, lead) = (&queue, &lead);
            scope.spawn(move || {
                let mut before = None;
                for number in 0..REQUESTS {
                    let is_slow = number % 3 == 0;
                    let back = queue.submit(Request { is_slow, ..request(submitter, number) }, lead);
                    assert_eq!((back.submitter, back.number), (submitter, number));
                    assert!(back.result > before, "a thread's requests are led in its order");
                    before = back.result;
                }
            });
        }
    });
    let mut order = order.into_inner();
    assert_eq!(order.len(), THREADS * REQUESTS);
    order.sort_unstable();
    order.dedup();
    assert_eq!(order.len(), THREADS * REQUESTS);
    assert!(groups.into_inner() <= THREADS * REQUESTS);
    assert_eq!(queue.lead_state.load(Ordering::Relaxed), IDLE);
}

#[test]
fn waiting_requests_come_back_unchanged_when_a_lone_leader_panics() {
    let queue = queue();
    thread::scope(|scope| {
        scope.spawn(|| {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                queue.submit(request(0, 0), |_| {
                    wait_until(|| waiting(&queue) == 3);
                    panic!("the log is on fire");
                })
            }));
            assert!(panicked.is_err());
        });
        wait_until(|| queue.lead_state.load(Ordering::Relaxed) != IDLE);
        for submitter in 1..=3 {
            let queue = &queue;
            scope.spawn(move || {
                let back = queue.submit(request(submitter, 0), |_| panic!("nobody leads any more"));
                assert_eq!(back, request(submitter, 0));
            });
        }
    });
    assert!(queue.is_poisoned());
    assert_eq!(queue.submit(request(9, 9), |_| panic!("nobody leads any more")), request(9, 9));
}

#[test]
fn a_panicking_group_leader_hands_requests_back_as_it_left_them() {
    let queue = queue();
    let seen = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| queue.submit(request(0, 0), |_| wait_until(|| waiting(&queue) == 4)));
        wait_until(|| queue.lead_state.load(Ordering::Relaxed) != IDLE);
        for number in 1..=4 {
            let (queue, seen) = (&queue, &seen);
            scope.spawn(move || {
                let back = catch_unwind(AssertUnwindSafe(|| {
                    queue.submit(request(1, number), |group| {
                        assert_eq!(group.len(), 4);
                        group[1].result = Some(77);
                        panic!("half way");
                    })
                }));
                match back {
                    Err(_) => assert_eq!(number, 1, "the one who waited longest leads"),
                    Ok(back) => assert_eq!(back.result, (number == 2).then_some(77)),
                }
                seen.fetch_add(1, Ordering::SeqCst);
            });
            wait_until(|| waiting(queue) == number || queue.is_poisoned());
        }
    });
    assert_eq!(seen.into_inner(), 4);
    assert!(queue.is_poisoned());
}

/// Not a test of correctness: prints what a submit costs. `cargo test --release -p pleach-log throughput -- --ignored
/// --nocapture`.
#[test]
#[ignore = "a measurement"]
fn throughput() {
    let env = RealEnv::new();
    for threads in [1, 2, 4, 16] {
        let queue = queue();
        let (groups, total) = (AtomicUsize::new(0), 2_000_000 / if threads == 1 { 1 } else { 4 });
        let done = AtomicUsize::new(0);
        let start = env.now();
        let shares: Vec<usize> = thread::scope(|scope| {
            let handles: Vec<_> = (0..threads)
                .map(|submitter| {
                    let (queue, groups, done) = (&queue, &groups, &done);
                    scope.spawn(move || {
                        let mut own = 0;
                        while done.fetch_add(1, Ordering::Relaxed) < total {
                            queue.submit(request(submitter, own), |group| {
                                group[0].result = Some(0);
                                groups.fetch_add(1, Ordering::Relaxed);
                            });
                            own += 1;
                        }
                        own
                    })
                })
                .collect();
            handles.into_iter().map(|h| h.join().unwrap()).collect()
        });
        let nanos = env.now().saturating_sub(start).as_nanos() / total as u128;
        println!(
            "{threads} threads: {nanos} ns a request, {} requests in 100 groups, shares {:?} to {:?}",
            100 * total / groups.into_inner(),
            shares.iter().min(),
            shares.iter().max(),
        );
    }
}
