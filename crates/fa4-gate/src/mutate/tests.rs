//! The machinery on rows and lists made up here, and a few mutants of the real kernels.

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
    let path = std::env::temp_dir().join(format!("fa4-mutate-{}/state.jsonl", std::process::id()));
    let mut state = State::open(&path, false).unwrap();
    state.add("run", "a", &Outcome::Fault("lease.tmem".into()), 0.5).unwrap();
    state.add("run", "b", &Outcome::Survived, 1.0).unwrap();
    drop(state);
    // A run that was killed in the middle of a line.
    std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "{\"run\":\"ru").unwrap();
    let state = State::open(&path, true).unwrap();
    assert_eq!(state.get("run", "a"), Some((Outcome::Fault("lease.tmem".into()), 0.5)));
    assert_eq!(state.get("run", "b"), Some((Outcome::Survived, 1.0)));
    assert_eq!((state.get("other", "a"), state.get("run", "c")), (None, None));
    drop(state);
    assert_eq!(State::open(&path, false).unwrap().get("run", "a"), None);
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
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
