//! No read that is handed in is left behind while the thread sleeps.

use std::sync::Arc;

use loom::thread;
use pleach_models::explore;
use pleach_models::inbox::WithAlarm;

#[test]
fn each_read_that_is_handed_in_is_made_without_a_further_call() {
    explore(4, || {
        let inbox = Arc::new(WithAlarm::new());
        let server = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || inbox.serve()
        });
        for read in 1..=2 {
            inbox.submit(read);
            inbox.wait_for(read);
        }
        inbox.close();
        server.join().unwrap();
    });
}

#[test]
fn reads_of_two_threads_are_made() {
    explore(2, || {
        let inbox = Arc::new(WithAlarm::new());
        let [server, submitter] = [
            Box::new(WithAlarm::serve) as Box<dyn Fn(&WithAlarm)>,
            Box::new(|inbox: &WithAlarm| inbox.submit(1)),
        ]
        .map(|run| {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || run(&inbox))
        });
        inbox.submit(2);
        inbox.wait_for(2);
        inbox.close();
        submitter.join().unwrap();
        server.join().unwrap();
    });
}
