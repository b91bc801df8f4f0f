//! What the comparison says, on answers made up here; and the committed probes against the recorded H200.

use super::*;
use crate::kernels::workspace;

fn words(list: &[u32]) -> Answer {
    Answer::Bytes(list.iter().flat_map(|w| w.to_le_bytes()).collect())
}

#[test]
fn a_wrong_word_is_the_emulators_fault() {
    let all = |answer: Answer| vec![answer; 4];
    let device = words(&[1, 2, 3]);
    assert_eq!(compare(&device, &all(words(&[1, 2, 3])), None), (Status::Pass, None));
    let mut one_bad = all(words(&[1, 2, 3]));
    one_bad[2] = words(&[1, 7, 9]);
    let (status, reason) = compare(&device, &one_bad, None);
    let want = "emulator fault under late-tma: 2 of 3 words differ, first word 1: 0x00000007, the H200 says 0x00000002";
    assert_eq!((status, reason.as_deref()), (Status::Fail, Some(want)));
    // Compared with a GPU at hand, the record is only remarked upon.
    let (status, reason) = compare(&device, &all(device.clone()), Some(words(&[1, 2, 4])));
    assert!(status == Status::Pass && reason.unwrap().contains("recorded H200"));
    assert_eq!(compare(&device, &all(device.clone()), Some(device.clone())), (Status::Pass, None));
}

#[test]
fn where_the_device_hangs_the_emulator_must() {
    let (hangs, ends) = (vec![Answer::Hangs; 4], vec![words(&[1]); 4]);
    assert_eq!(compare(&Answer::Hangs, &hangs, None), (Status::Pass, None));
    assert_eq!(compare(&Answer::Hangs, &ends, None).0, Status::Fail);
    assert_eq!(compare(&words(&[1]), &hangs, None).0, Status::Fail);
    let unsupported = vec![Answer::Unsupported("b128".into()); 4];
    assert_eq!(compare(&words(&[1]), &unsupported, None), (Status::Unsupported, Some("b128".into())));
    assert_eq!(compare(&Answer::Failed("lost".into()), &ends, Some(words(&[1]))).0, Status::Fault);
}

/// The section finds every recorded probe and fails none; a damaged record is found.
#[test]
fn committed_probes_match_the_record() {
    let filter = Regex::new("probe/(shfl_up|ldmatrix|tensor_add_f32|.*exited.*|half.*)").unwrap();
    let mut section = Section::open(&workspace(), Some(&filter)).unwrap();
    assert!(section.len() >= 6, "{}", section.len());
    let stop = AtomicBool::new(false);
    let (rows, interrupted) = section.judge(None, &stop).unwrap();
    assert!(!interrupted && rows.len() == section.len());
    assert!(rows.iter().all(|row| row.status == Status::Pass), "{rows:?}");
    assert!(rows.iter().all(|row| row.evidence == Some("silicon") && row.device == Some("emu")));
    let damaged = section.records.iter_mut().find(|r| r.probe == "shfl_up").unwrap();
    damaged.out.as_mut().unwrap()[4] ^= 1;
    let (rows, _) = section.judge(None, &stop).unwrap();
    let failed: Vec<&Row> = rows.iter().filter(|row| row.status != Status::Pass).collect();
    assert_eq!(failed.len(), 1);
    assert!(failed[0].reason.as_ref().unwrap().contains("1 of 4864 words differ, first word 1:"));
}
