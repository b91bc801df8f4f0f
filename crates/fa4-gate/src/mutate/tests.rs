//! The machinery on rows and lists made up here, and a few mutants of the real kernels.

use super::evidence::Evidence;
use super::state::Found;
use super::*;
use crate::mutate::trial::Outcome;
use ptx_emu::mutation::Class;

fn row(class: Class, outcome: Outcome) -> Row {
    Row {
        kernel: "k",
        target: "v".into(),
        id: "k.cu:1 x".into(),
        class: class.as_str(),
        at: "wait();".into(),
        via: "caller();".into(),
        after: ["before();".into(), "before_caller();".into()],
        mutation: "x delete".into(),
        outcome,
        report: None,
        justified: None,
        seconds: 0.0,
    }
}

#[test]
fn survivors_need_a_reason() {
    let list = "[[survivor]]\nat = 'wait();'\nmutation = 'x delete'\nreason = 'redundant: the wait above implies it'\n";
    let list = AllowList::parse(list).unwrap();
    let mut rows =
        vec![row(Class::Wait, Outcome::Survived), row(Class::Fence, Outcome::Hang("deadlock".into()))];
    assert!(rows[0].is_hole() && !rows[1].is_hole());
    rows[0].justified = list.reason(&rows[0]).map(str::to_string);
    assert!(!rows[0].is_hole());
    assert_eq!(list.stale(&rows).count(), 0);
    assert_eq!(list.stale(&rows[1..]).count(), 1);
    let other = Row { at: "other();".into(), ..rows[0].clone() };
    assert!(list.reason(&other).is_none());
    // Two lines alike are told apart by what stands above them.
    let mut narrow = list.clone();
    narrow.entries[0].after = Some("before_caller();".into());
    narrow.entries[0].via = Some("caller();".into());
    assert!(narrow.reason(&rows[0]).is_some());
    assert!(narrow.reason(&Row { after: Default::default(), ..rows[0].clone() }).is_none());
    assert_eq!(report::summary(&rows), "2 mutants: 1 noticed, 1 survivors justified, 0 holes");
    assert!(
        AllowList::parse("[[survivor]]\nat = 'a'\nmutation = 'b'\nreason = 'ok'\n")
            .unwrap_err()
            .contains("too short")
    );
    assert!(row(Class::Wait, Outcome::Refused("what".into())).is_hole());
}

#[test]
fn a_run_goes_on_where_it_stopped() {
    let root = std::env::temp_dir().join(format!("fa4-mutate-{}", std::process::id()));
    let path = state::path(&root, "k", false);
    let open = |part, resume| State::open(&root, "k", part, resume).unwrap();
    let found = |outcome, report| Found { outcome, report, seconds: 0.5 };
    let evidence = Evidence::words("case".into(), "nothing orders that");
    let (a, b) = (found(Outcome::Fault("lease.tmem".into()), Some(evidence)), found(Outcome::Survived, None));
    let mut state = open(false, false);
    state.add("run", "a", &a).unwrap();
    state.add("run", "b", &b).unwrap();
    drop(state);
    // A run that was killed in the middle of a line.
    std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "{\"run\":\"ru").unwrap();
    let state = open(false, true);
    assert_eq!((state.get("run", "a"), state.get("run", "b")), (Some(a.clone()), Some(b)));
    assert_eq!((state.get("other", "a"), state.get("run", "c")), (None, None));
    drop(state);
    // A run of a part knows what the whole one found, and leaves its file alone.
    assert_eq!(open(true, true).get("run", "a"), Some(a));
    let whole = std::fs::read(&path).unwrap();
    assert_eq!(open(true, false).get("run", "a"), None);
    assert_eq!(std::fs::read(&path).unwrap(), whole);
    // A run that starts anew keeps what was there.
    assert_eq!(open(false, false).get("run", "a"), None);
    assert_eq!(std::fs::read(path.with_extension("jsonl.old")).unwrap(), whole);
    drop(open(false, false));
    assert_eq!(
        std::fs::read(path.with_extension("jsonl.old")).unwrap(),
        whole,
        "an empty file is nothing to keep"
    );
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn the_document_keeps_what_is_around_the_table() {
    let path = std::env::temp_dir().join(format!("fa4-mutate-{}.md", std::process::id()));
    std::fs::write(&path, "a\n<!-- begin generated: mutate k -->\nold\n<!-- end generated: mutate -->\nb\n")
        .unwrap();
    report::write_doc(&path, "k", &[row(Class::Wait, Outcome::Fault("lease.tmem".into()))]).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with("a\n<!-- begin") && text.ends_with("<!-- end generated: mutate -->\nb\n"),
        "{text}"
    );
    assert!(text.contains("| wait | 1 | 1 | 0 | 0 | 0 | 0 | 0 |") && !text.contains("old"), "{text}");
    assert!(text.contains("Noticed by: lease.tmem 1."), "{text}");
    assert!(report::write_doc(&path, "other", &[]).unwrap_err().to_string().contains("mutate other"));
    std::fs::remove_file(path).unwrap();
}
