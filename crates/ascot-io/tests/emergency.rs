//! Once a removal of everything has begun, no thread goes on with a file that the removal may take. A process of its
//! own, since a removal ends the process.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use ascot_io::emergency;

#[test]
fn files_are_neither_registered_nor_forgotten_during_a_removal() {
    let place = tempfile::tempdir().unwrap();
    let [kept, new] = ["kept", "new"].map(|name| place.path().join(name));
    std::fs::write(&kept, b"x").unwrap();
    emergency::register_file(&kept);
    emergency::claim_end();

    let (send, receive) = channel();
    let calls: [fn(&Path); 2] = [emergency::forget, emergency::register_file];
    for (call, path) in calls.into_iter().zip([kept.clone(), new.clone()]) {
        let send = send.clone();
        thread::spawn(move || {
            call(&path);
            let _ = send.send(path);
        });
    }
    // Each call takes microseconds if it does not wait.
    assert_eq!(receive.recv_timeout(Duration::from_millis(500)), Err(RecvTimeoutError::Timeout));

    // A thread that had registered its file may create it now: the removal takes it.
    std::fs::write(&new, b"x").unwrap();
    emergency::remove_all();
    assert!(!new.exists());
}
