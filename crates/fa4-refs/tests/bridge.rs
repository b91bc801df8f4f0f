//! The bridge against a fake that misbehaves in every way it knows: each fault is one kind of error, nothing hangs, and
//! the next request works again.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fa4_refs::bridge::SharedBridge;
use fa4_refs::reference::LseBase;
use fa4_refs::{
    Bridge, BridgedReference, Deadlines, InputFiles, Launch, Output, RefError, Reference, Status, TimeRequest,
};
use fa4_spec::oracle;
use fa4_spec::qdist::{self, QDist};
use fa4_spec::tolerance::{self, Bounds};
use fa4_spec::{AttnProblem, Case, DType, Mask};

/// Long enough for a busy machine, short enough for a test that waits for it.
const DEADLINE: Duration = Duration::from_secs(3);

fn launch(personas: &[&str]) -> Launch {
    Launch {
        program: env!("CARGO_BIN_EXE_fa4-fake-ref").into(),
        args: personas.iter().map(Into::into).collect(),
        device: None,
        scratch: std::env::temp_dir(),
    }
}

fn bridge(personas: &[&str], deadline: Duration) -> SharedBridge {
    Bridge::new(launch(personas), Deadlines { hello: Duration::from_secs(30), ..Deadlines::all(deadline) })
        .unwrap()
}

fn case(qdist: QDist) -> Case {
    let problem = AttnProblem::dense(2, (9, 12), (4, 2), 16, Mask::CAUSAL, DType::Bf16);
    Case { qdist, ..Case::dense("small", problem, 7) }
}

fn files(case: &Case) -> Arc<InputFiles> {
    let inputs = qdist::inputs(case).unwrap();
    InputFiles::write(&inputs, case.problem.batch, &std::env::temp_dir(), 1 << 30).unwrap()
}

/// The oracle's verdict on what a reference computed.
fn judged(case: &Case, output: &Output) -> Result<f64, String> {
    let mut inputs = qdist::inputs(case).unwrap();
    for x in [&mut inputs.k.tensor, &mut inputs.v.tensor] {
        if x.shape[0] == 1 {
            x.bits = x.bits.repeat(case.problem.batch as usize);
            x.shape[0] = case.problem.batch as usize;
        }
    }
    let (q, k, v) = (&inputs.q.tensor, &inputs.k.tensor, &inputs.v.tensor);
    let truth = oracle::attention(&case.problem, q, k, v, None);
    let bounds = Bounds::new(&case.problem, &truth, true, 0.0);
    let lse = output.lse.clone().unwrap_or_else(|| truth.lse.iter().map(|&x| x as f32).collect());
    tolerance::judge(&case.problem, &bounds, &truth, &output.o, &lse)
        .map(|judgement| judgement.o.ratio)
        .map_err(|wrong| wrong.to_string())
}

fn output(persona: &str, case: &Case) -> Result<Output, RefError> {
    let mut reference = BridgedReference::new("it", &bridge(&[persona], Duration::from_secs(20)));
    let mut prepared = reference.prepare(&case.problem, &files(case))?;
    reference.output(&mut prepared, None)
}

/// Prepares and times.
fn timed(reference: &mut BridgedReference) -> Result<Vec<f64>, RefError> {
    let case = case(QDist::Randn);
    let mut prepared = reference.prepare(&case.problem, &files(&case))?;
    reference.time(&mut prepared, &TimeRequest::default()).map(|timing| timing.us)
}

fn time_error(fault: &str) -> RefError {
    let persona = format!("it:{fault}");
    timed(&mut BridgedReference::new("it", &bridge(&[&persona], DEADLINE))).unwrap_err()
}

#[test]
fn a_right_reference_is_right_in_every_layout() {
    for qdist in [
        QDist::Randn,
        QDist::BhsdTransposedView,
        QDist::KvExpandStride0Batch,
        QDist::Offset16BAlignedNot128B,
        QDist::InfFreeNanInPadding,
    ] {
        let case = case(qdist);
        let output = output("it", &case).unwrap();
        assert_eq!(output.lse_base, Some(LseBase::E));
        assert!(judged(&case, &output).unwrap() <= 0.6, "{qdist}");
    }
    let packed = Case {
        problem: AttnProblem { seqlen_q: 12, ..case(QDist::Randn).problem },
        ..case(QDist::PackedQkvInterleavedView)
    };
    assert!(judged(&packed, &output("it", &packed).unwrap()).unwrap() <= 0.6);
}

#[test]
fn a_wrong_reference_is_found_by_the_oracle() {
    let case = case(QDist::Randn);
    for (persona, says) in [("it:wrong", "O"), ("it:unwritten", "NaN"), ("it:lying-lse", "LSE")] {
        let wrong = judged(&case, &output(persona, &case).unwrap()).unwrap_err();
        assert!(wrong.contains(says), "{persona}: {wrong}");
    }
}

/// Of long problems some rows come back, and where the rest is not finite.
#[test]
fn rows_alone_come_back_and_the_rest_is_looked_through() {
    let case = case(QDist::Randn);
    let whole = output("it", &case).unwrap();
    let rows = [(1, 8, 3), (0, 0, 0), (1, 2, 1)];
    let some = |persona: &str| {
        let mut reference = BridgedReference::new("it", &bridge(&[persona], Duration::from_secs(20)));
        let mut prepared = reference.prepare(&case.problem, &files(&case)).unwrap();
        reference.output(&mut prepared, Some(&rows)).unwrap()
    };
    let right = some("it");
    let wanted: Vec<u16> =
        rows.iter().flat_map(|(b, s, h)| whole.o[((b * 9 + s) * 4 + h) * 16..][..16].to_vec()).collect();
    assert_eq!((right.o, right.not_finite, right.lse), (wanted, None, whole.lse));
    // The last quarter is not written: from row 54 of 72 on.
    assert_eq!(some("it:unwritten").not_finite, Some(54 * 16));
}

#[test]
fn bases_of_the_lse_are_made_one() {
    let case = case(QDist::Randn);
    let binary = output("it:binary-lse", &case).unwrap();
    assert_eq!(binary.lse_base, Some(LseBase::Two));
    judged(&case, &binary).unwrap();
    assert_eq!(output("it:no-lse", &case).unwrap().lse, None);
}

#[test]
fn output_files_are_checked() {
    let case = case(QDist::Randn);
    for (persona, says) in [("it:short-output", "bytes"), ("it:no-output", "no output file")] {
        let error = output(persona, &case).unwrap_err();
        assert_eq!(error.status(), Status::Protocol);
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn refusals_keep_the_child_alive() {
    let bridge = bridge(
        &["absent:unavailable", "picky:unsupported", "large:out-of-memory", "odd:failed", "fine"],
        DEADLINE,
    );
    let problem = case(QDist::Randn).problem;
    let reference = |id: &str| BridgedReference::new(id, &bridge);
    let absent = reference("absent").versions().unwrap_err();
    assert_eq!(absent.status(), Status::Unavailable);
    let picky = reference("picky").supports(&problem).unwrap_err();
    assert_eq!(picky.to_string(), "picky does not support this: head_dim 128 only");
    assert_eq!(timed(&mut reference("large")).unwrap_err().status(), Status::OutOfMemory);
    let odd = timed(&mut reference("odd")).unwrap_err();
    assert_eq!(odd.status(), Status::Error);
    assert!(odd.to_string().contains("invalid configuration") && odd.to_string().contains("fake trouble"));
    let unknown = reference("unknown").versions().unwrap_err();
    assert!(unknown.to_string().contains("serves absent, picky"), "{unknown}");
    assert!(reference("fine").supports(&problem).is_ok());
    assert_eq!(timed(&mut reference("fine")).unwrap().len(), 10);
    assert_eq!(bridge.lock().unwrap().generation(), 1, "one child for all of them");
}

#[test]
fn a_hang_is_killed_with_its_children() {
    let started = Instant::now();
    let error = time_error("hang-with-children");
    assert_eq!(error.status(), Status::Timeout);
    assert!(started.elapsed() < 3 * DEADLINE, "took {:?}", started.elapsed());
    let stderr = error.stderr().unwrap();
    let grandchild = stderr.trim().strip_prefix("child ").expect(stderr).to_owned();
    // A killed process that nobody has reaped yet is a zombie.
    let dead = || {
        std::fs::read_to_string(Path::new("/proc").join(&grandchild).join("stat")).map_or(true, |stat| {
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
        })
    };
    let until = Instant::now() + DEADLINE;
    while !dead() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(dead(), "process {grandchild} outlived its parent");
}

#[test]
fn a_slow_answer_is_an_answer_until_its_deadline() {
    let mut slow = BridgedReference::new("it", &bridge(&["it:delay"], Duration::from_secs(20)));
    assert_eq!(timed(&mut slow).unwrap().len(), 10);
    let case = case(QDist::Randn);
    let mut prepared = slow.prepare(&case.problem, &files(&case)).unwrap();
    let hurried = TimeRequest { deadline: Some(Duration::from_millis(100)), ..TimeRequest::default() };
    assert_eq!(slow.time(&mut prepared, &hurried).unwrap_err().status(), Status::Timeout);
}

#[test]
fn deaths_say_how_and_keep_the_last_words() {
    let crash = time_error("crash");
    assert_eq!(crash.status(), Status::Crashed);
    assert!(crash.to_string().contains("exit code 3"), "{crash}");
    assert!(crash.to_string().contains("illegal memory access"), "{crash}");
    let abort = time_error("abort").to_string();
    assert!(abort.contains("SIGABRT") && abort.contains("`time`"), "{abort}");
    let mute = time_error("mute").to_string();
    assert!(mute.contains("closed its standard output"), "{mute}");
    let flood = time_error("stderr-flood");
    assert!(flood.stderr().unwrap().len() < 100 << 10, "kept {} bytes", flood.stderr().unwrap().len());
    assert!(flood.to_string().len() < 4000 && flood.to_string().ends_with("the last words"), "{flood}");
}

#[test]
fn nonsense_is_a_protocol_error() {
    for (fault, says) in [
        ("garbage", "Traceback"),
        ("binary", "UTF-8"),
        ("endless", "more than"),
        ("half-line", "unfinished"),
        ("wrong-id", "answer to request"),
        ("wrong-form", "another form"),
        ("few-times", "1 times for 10"),
        ("zero-time", "0 µs"),
    ] {
        let error = time_error(fault);
        assert_eq!(error.status(), Status::Protocol, "{fault}: {error}");
        assert!(error.to_string().contains(says), "{fault}: {error}");
    }
}

#[test]
fn versions_of_the_protocol_must_agree() {
    let error = time_error("version");
    assert_eq!(error.status(), Status::Protocol);
    assert!(error.to_string().contains("speaks protocol 99, this build speaks 2"), "{error}");
}

#[test]
fn what_cannot_be_started_is_unavailable() {
    let launch = Launch { program: "no-such-interpreter".into(), ..launch(&[]) };
    let bridge = Bridge::new(launch, Deadlines::default()).unwrap();
    let error = BridgedReference::new("it", &bridge).versions().unwrap_err();
    assert_eq!(error.status(), Status::Unavailable);
    assert!(error.to_string().contains("no-such-interpreter"), "{error}");
}

/// After a crash of one, all go on in a new child, and what was prepared in the old one is prepared again unasked.
#[test]
fn a_new_child_replaces_a_dead_one() {
    let folder = tempfile::tempdir().unwrap();
    let once = folder.path().join("once");
    let args = ["--once", once.to_str().unwrap(), "fine", "it:crash"];
    let bridge = bridge(&args, DEADLINE);
    let mut fine = BridgedReference::new("fine", &bridge);
    let mut it = BridgedReference::new("it", &bridge);
    let case = case(QDist::Randn);
    let files = files(&case);
    let mut of_fine = fine.prepare(&case.problem, &files).unwrap();
    let mut of_it = it.prepare(&case.problem, &files).unwrap();
    let first = fine.time(&mut of_fine, &TimeRequest::default()).unwrap();
    assert_eq!(it.time(&mut of_it, &TimeRequest::default()).unwrap_err().status(), Status::Crashed);
    assert_eq!(fine.time(&mut of_fine, &TimeRequest::default()).unwrap(), first);
    assert!(it.time(&mut of_it, &TimeRequest::default()).is_ok());
    assert_eq!(bridge.lock().unwrap().generation(), 2);
    fine.release(of_fine);
    it.release(of_it);
}

#[test]
fn routes_tell_what_ran() {
    let case = case(QDist::Randn);
    for (persona, proven) in [("it", true), ("it:other-route", false)] {
        let mut reference = BridgedReference::new("it", &bridge(&[persona], DEADLINE));
        let mut prepared = reference.prepare(&case.problem, &files(&case)).unwrap();
        let route = reference.route(&mut prepared).unwrap();
        assert_eq!(route.proven, Some(proven));
        assert_eq!(route.kernels.len(), 1);
    }
}

#[test]
fn inputs_beyond_the_limit_are_refused() {
    let case = case(QDist::Randn);
    let inputs = qdist::inputs(&case).unwrap();
    let error = InputFiles::write(&inputs, 2, &std::env::temp_dir(), 100).unwrap_err();
    assert!(error.to_string().contains("more than the 100"), "{error}");
}
