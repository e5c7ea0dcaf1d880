//! Errors that come late, on a file system that has them.

use haul_store::late_errors::{LossReporting, Mounts, ask};
use haul_testkit::fuse::{Fault, FaultOperation, FsBehaviour, MountedFs};
use rustix::io::Errno;
use std::{fs::File, io::Write as _};

#[test]
fn each_file_system_is_asked_as_it_reports_losses() {
    let lab = tempfile::tempdir().unwrap();
    let (real, net) = (lab.path().join("real"), lab.path().join("net"));
    let Some(mounted) = MountedFs::new(&real, &net, FsBehaviour::default()) else { return };
    for (of, forced, closing) in [(FaultOperation::Fsync, false, true), (FaultOperation::Close(0), false, false)] {
        let answers = [LossReporting::Forced, LossReporting::Closing, LossReporting::AtOnce].map(|tells| {
            let mut file = File::create(net.join("f")).unwrap();
            file.write_all(b"bytes").unwrap();
            mounted.fault(Fault::new(of.clone(), "f", Errno::IO));
            let answer = ask(&file, tells);
            mounted.heal();
            answer.is_ok()
        });
        assert_eq!(answers, [forced, closing, true], "{of:?}");
    }
    assert_eq!(Mounts::default().tells(File::open(&net).unwrap()), LossReporting::Closing);
}
