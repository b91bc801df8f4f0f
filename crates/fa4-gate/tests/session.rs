//! Sessions on a device that answers what a test tells it to: how outcomes become rows, counts and bits compared.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use fa4_gate::cli::Run;
use fa4_gate::judge::{GateDevice, Prepared, prepare};
use fa4_gate::kernels::Kernel;
use fa4_gate::rows::Status;
use fa4_gate::select::Routed;
use fa4_gate::session::{Session, Setup, judge_all};
use fa4_host::device::{Device, KernelLaunch};
use fa4_host::error::DeviceError;
use fa4_host::params::TENSOR_MAP_BYTES;
use fa4_host::tensor_map::TensorMapArgs;
use fa4_kernels::kernel_info::{KernelInfo, Param, SmemRegion};
use fa4_kernels::manifest::ROWS;
use fa4_spec::tensor::encode;
use fa4_spec::{AttnProblem, Case, DType, Mask};
use indicatif::ProgressBar;
use ptx_emu::launch::Schedule;

/// What a fake kernel does.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Right,
    /// One element of O is another number.
    WrongElement,
    /// The last bit of one element differs, within bounds.
    LastBit,
    /// LSE is not written.
    NoLse,
    Fault,
    Timeout,
}

/// A device whose kernels write the oracle's answer, or what else they are told to.
struct Fake {
    answer: Answer,
    o: Vec<u8>,
    lse: Vec<u8>,
    memory: BTreeMap<u64, Vec<u8>>,
    defined: BTreeMap<u64, bool>,
}

impl Fake {
    fn new(answer: Answer, data: &Prepared) -> Self {
        let mut bits: Vec<u16> = data.reference.o.iter().map(|&x| encode(DType::Bf16, x)).collect();
        match answer {
            Answer::WrongElement => bits[77] ^= 0x0100,
            // Where the bound is loosest compared with an ulp: a small element of O.
            Answer::LastBit => {
                let small = (0..bits.len()).min_by_key(|&i| bits[i] & 0x7fff).unwrap();
                bits[small] ^= 1;
            }
            _ => {}
        }
        let o = bits.iter().flat_map(|b| b.to_le_bytes()).collect();
        let lse = data.reference.lse.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect();
        Fake { answer, o, lse, memory: BTreeMap::new(), defined: BTreeMap::new() }
    }

    fn find(&mut self, address: u64) -> Result<(u64, &mut Vec<u8>), DeviceError> {
        let found = self.memory.range_mut(..=address).next_back();
        let (&base, bytes) = found.ok_or(DeviceError::Memory("nothing there".into()))?;
        Ok((base, bytes))
    }
}

impl Device for Fake {
    type Module = ();

    fn alloc(&mut self, _: &str, bytes: u64) -> Result<u64, DeviceError> {
        let address =
            4096 + self.memory.iter().map(|(a, b)| a + b.len() as u64).max().unwrap_or(0) / 256 * 256 + 256;
        self.memory.insert(address, vec![0; bytes as usize]);
        Ok(address)
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        let (base, bytes) = self.find(address)?;
        let at = (address - base) as usize;
        bytes[at..at + data.len()].copy_from_slice(data);
        self.defined.insert(base, true);
        Ok(())
    }

    fn read(&mut self, address: u64, len: u64) -> Result<Vec<u8>, DeviceError> {
        let (base, bytes) = self.find(address)?;
        let at = (address - base) as usize;
        let data = bytes[at..at + len as usize].to_vec();
        match self.defined.contains_key(&base) {
            true => Ok(data),
            false => Err(DeviceError::Undefined("nobody wrote it".into())),
        }
    }

    fn encode_tensor_map(&mut self, _: &TensorMapArgs) -> Result<[u8; TENSOR_MAP_BYTES], DeviceError> {
        Ok([0; TENSOR_MAP_BYTES])
    }

    fn launch(&mut self, launch: &KernelLaunch<'_, ()>) -> Result<(), DeviceError> {
        match self.answer {
            Answer::Fault => {
                return Err(DeviceError::Fault { code: "lease.tmem".into(), rendering: "S0 is held".into() });
            }
            Answer::Timeout => return Err(DeviceError::Timeout("7 steps".into())),
            _ => {}
        }
        let [o, lse] = [launch.outputs[0], launch.outputs[1]];
        assert_eq!((o.1, lse.1), (self.o.len() as u64, self.lse.len() as u64));
        self.write(o.0, &self.o.clone())?;
        if self.answer != Answer::NoLse {
            self.write(lse.0, &self.lse.clone())?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl GateDevice for Fake {
    fn covers(&self) -> BTreeMap<String, u64> {
        BTreeMap::from([("tail".to_string(), 2)])
    }

    fn strict_findings(&self) -> Vec<String> {
        vec!["strict.example: asked by the manual".to_string()]
    }
}

fn kernel() -> Kernel<()> {
    // Stages of 128 rows, which the boxes of the tensor maps are made for.
    let region =
        |name: &str| SmemRegion { name: name.into(), bytes: 128 * 256, align: 1024, stages: 1, offset: 0 };
    let sizes = [128, 128, 128, 128, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4];
    let names = [
        "q_map",
        "k_map",
        "v_map",
        "o_map",
        "lse",
        "sinks",
        "lse_batch_stride",
        "lse_head_stride",
        "lse_row_stride",
        "seqlen_q",
        "seqlen_k",
        "num_heads_q",
        "qhead_per_kvhead",
        "batch",
        "window_left",
        "window_right",
        "groups_per_section",
        "softcap_rate",
        "scale_log2",
        "rescale_threshold",
        "heads_per_tile",
        "rows_per_head",
        "head_groups",
        "m_blocks",
    ];
    let mut offset = 0;
    let params = names.iter().zip(sizes).map(|(name, bytes)| {
        offset += bytes;
        Param { name: name.to_string(), offset: offset - bytes, bytes }
    });
    Kernel {
        row: &ROWS[0],
        name: "fake".into(),
        module: (),
        info: KernelInfo {
            roles: vec![],
            smem: vec![region("Q"), region("KV")],
            tmem: vec![],
            barriers: vec![],
            params: params.collect(),
        },
        markers: vec!["tail".into(), "never".into()],
        ptx: String::new(),
    }
}

fn cases() -> Vec<Routed> {
    let problem = AttnProblem::dense(1, (5, 40), (4, 2), 128, Mask::FULL, DType::Bf16);
    vec![Routed { case: Case::dense("case", problem, 3), kernel: &ROWS[0] }]
}

fn session(answer: impl Fn(Run) -> Answer + Sync, strict: bool, stop: &AtomicBool) -> Session {
    let runs = Schedule::ALL.map(|schedule| Run { schedule, seed: 1 });
    let (kernel, cases, progress) = (kernel(), cases(), ProgressBar::hidden());
    let data = prepare(&cases[0].case).unwrap();
    let setup = Setup { runs: &runs, device: "fake", threads: 2, strict, stop, progress: &progress };
    judge_all(&[(&kernel, "manual")], &cases, &setup, |run| Fake::new(answer(run), &data))
}

fn statuses(session: &Session) -> Vec<Status> {
    session.rows.iter().map(|row| row.status).collect()
}

static RUNNING: AtomicBool = AtomicBool::new(false);

#[test]
fn the_oracles_answer_passes_and_is_counted() {
    let s = session(|_| Answer::Right, false, &RUNNING);
    assert_eq!(statuses(&s), [Status::Pass; 4]);
    assert!(s.rows.iter().all(|row| row.o_ratio.is_some_and(|x| x > 0.0 && x < 1.0)));
    let coverage = &s.coverage["fake"];
    assert_eq!((coverage.passes, coverage.markers["tail"]), (4, 8));
    assert_eq!(coverage.gaps(), ["marker never was never passed"]);
    assert_eq!(s.strict["strict.example: asked by the manual"], 4);
    assert!(!s.interrupted);
}

#[test]
fn rows_follow_the_order_of_runs() {
    let s = session(|_| Answer::Right, false, &RUNNING);
    let schedules: Vec<_> = s.rows.iter().filter_map(|row| row.schedule).collect();
    assert_eq!(schedules, Schedule::ALL.map(Schedule::as_str));
}

#[test]
fn outcomes_become_statuses() {
    let only_eager = |bad| move |run: Run| if run.schedule == Schedule::Eager { bad } else { Answer::Right };
    for (bad, status, words) in [
        (Answer::WrongElement, Status::Fail, "its bound at batch 0, query 0, head 0, dim 77"),
        (Answer::NoLse, Status::Fault, "undefined"),
        (Answer::Fault, Status::Fault, "S0 is held"),
        (Answer::Timeout, Status::Timeout, "7 steps"),
    ] {
        let s = session(only_eager(bad), false, &RUNNING);
        let row = &s.rows[0];
        assert_eq!(row.status, status);
        assert!(row.reason.as_ref().is_some_and(|r| r.contains(words)), "{:?}", row.reason);
        assert_eq!(s.coverage["fake"].passes, 3);
    }
}

/// Numbers within bounds that differ between schedules are a race all the same.
#[test]
fn schedules_must_agree_to_the_bit() {
    let s = session(
        |run| if run.schedule == Schedule::Random { Answer::LastBit } else { Answer::Right },
        false,
        &RUNNING,
    );
    let failed: Vec<_> = s.rows.iter().filter(|row| row.status == Status::Fail).collect();
    // Whichever ran first is the measure: one row or the three others disagree with it.
    assert!(failed.len() == 1 || failed.len() == 3, "{failed:?}");
    assert!(failed.iter().all(|row| row.reason.as_ref().is_some_and(|r| r.contains("a race"))));
}

#[test]
fn strict_findings_fail_when_asked() {
    let s = session(|_| Answer::Right, true, &RUNNING);
    assert_eq!(statuses(&s), [Status::Fault; 4]);
}

#[test]
fn an_interrupt_keeps_what_has_finished() {
    let stop = AtomicBool::new(false);
    let s = session(
        |_| {
            stop.store(true, Ordering::Relaxed);
            Answer::Right
        },
        false,
        &stop,
    );
    assert!(s.interrupted && !s.rows.is_empty() && s.rows.len() < 4, "{:?}", s.rows.len());
}

#[test]
fn a_case_without_its_kernel_is_listed() {
    let mut other = cases();
    other[0].kernel = &ROWS[1];
    let (kernel, progress, stop) = (kernel(), ProgressBar::hidden(), AtomicBool::new(false));
    let data = prepare(&other[0].case).unwrap();
    let runs = [Run { schedule: Schedule::Eager, seed: 1 }];
    let setup =
        Setup { runs: &runs, device: "fake", threads: 1, strict: false, stop: &stop, progress: &progress };
    let s = judge_all(&[(&kernel, "manual")], &other, &setup, |_| Fake::new(Answer::Right, &data));
    assert_eq!(statuses(&s), [Status::Unsupported]);
    assert!(s.rows[0].reason.as_ref().unwrap().contains(ROWS[1].entry));
}
