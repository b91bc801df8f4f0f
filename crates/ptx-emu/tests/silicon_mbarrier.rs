//! The mbarrier model against an H200: 179 single-thread programs; elect.sync: 442 masks.

mod silicon_util;

use ptx_emu::isa::elect::elect;
use ptx_emu::isa::mbarrier::{BarrierFault, Mbarrier, pending_count};
use serde_json::Value;
use silicon_util::*;

/// The probe's shared word and the unit that caches it: a live barrier is invisible to ld.shared.
struct Probe {
    memory: u64,
    cached: Option<Mbarrier>,
    /// Whether the probe samples the barrier after each operation.
    live: bool,
    token: u64,
}

impl Probe {
    fn barrier(&mut self) -> &mut Mbarrier {
        self.cached.get_or_insert(Mbarrier::from_word(self.memory))
    }

    /// Runs one operation; the recorded extra value, where there is one.
    fn step(&mut self, op: &str, arg: u64) -> Result<Option<u64>, BarrierFault> {
        let n = arg as u32;
        match op {
            "init" => {
                self.cached = Some(Mbarrier::init(n));
                self.live = true;
            }
            "arrive" => self.token = self.barrier().arrive(1)?,
            "arrive_n" => self.token = self.barrier().arrive(n)?,
            "arrive.expect_tx" => self.token = self.barrier().arrive_expect_tx(n)?,
            "expect_tx" => _ = self.barrier().expect_tx(n)?,
            "complete_tx" => _ = self.barrier().complete_tx(n)?,
            "arrive_drop" => self.token = self.barrier().arrive_drop(1)?,
            "arrive_drop_n" => self.token = self.barrier().arrive_drop(n)?,
            "arrive.noComplete" => self.token = self.barrier().arrive_no_complete(n)?.0,
            "arrive_drop.noComplete" => self.token = self.barrier().arrive_drop_no_complete(n)?.0,
            "arrive_drop.expect_tx" => self.token = self.barrier().arrive_drop_expect_tx(n)?,
            "inval" => {
                self.memory = self.cached.take().map_or(self.memory, Mbarrier::inval);
                self.live = false;
            }
            "pending_count" => return Ok(Some(u64::from(pending_count(self.token)))),
            "st.shared" => self.memory = arg,
            "test_wait_tok" => return Ok(Some(u64::from(self.barrier().test_wait(arg)))),
            "nop" => self.live = true,
            "try_wait.parity" | "try_wait.parity_hint" | "try_wait_tok" => {}
            other => panic!("unknown operation {other}"),
        }
        Ok(None)
    }

    fn sample(&self) -> u64 {
        if !self.live {
            return 99;
        }
        let b = self.cached.unwrap_or(Mbarrier::from_word(self.memory));
        let [p0, p1, tok] = [b.test_wait_parity(0), b.test_wait_parity(1), b.test_wait(self.token)];
        u64::from(p0) | u64::from(p1) << 1 | u64::from(tok) << 2
    }
}

#[test]
fn programs() {
    let all = records("mbarrier.jsonl");
    let (mut ran, mut faulted, mut steps) = (0, 0, 0);
    for r in &all {
        let mut p = Probe { memory: 0x0123_4567_89ab_cdef, cached: None, live: false, token: 0 };
        let ops = r["ops"].as_array().unwrap();
        let mut fault = None;
        for (i, op) in ops.iter().enumerate() {
            let extra = match p.step(op[0].as_str().unwrap(), hex(&op[1])) {
                Ok(e) => e,
                Err(e) => {
                    fault = Some((i, e));
                    break;
                }
            };
            let Some(want) = r.get("res").map(|res| &res[i]) else { continue };
            let name = format!("{} step {i} ({op})", r["name"]);
            assert_eq!(p.token >> 32, hex(&want[0]), "token: {name}");
            assert_eq!(p.sample(), want[1].as_u64().unwrap(), "waits: {name}");
            assert_eq!(p.memory, hex(&want[2]), "memory: {name}");
            assert_eq!(extra, want.get(3).and_then(Value::as_u64), "result: {name}");
            steps += 1;
        }
        match (r.get("fault"), fault) {
            (None, None) => ran += 1,
            (Some(_), Some((i, _))) => {
                assert!(r["at"] != "last op" || i + 1 == ops.len(), "faults too early: {r}");
                faulted += 1;
            }
            (None, Some((i, e))) => panic!("faults at {i} with \"{e}\": {r}"),
            (Some(_), None) => panic!("does not fault: {r}"),
        }
    }
    println!("{ran} programs run ({steps} steps compared), {faulted} fault as recorded, of {}", all.len());
    assert_eq!((ran + faulted, all.len()), (179, 179));
}

#[test]
fn elected_lanes() {
    let path = format!("{}/tests/silicon/elect.csv", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut n = 0;
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let (mask, lane) = line.split_once(',').unwrap();
        let mask = u32::from_str_radix(mask, 16).unwrap();
        assert_eq!(elect(mask), lane.parse().ok(), "{line}");
        n += 1;
    }
    assert_eq!(n, 442);
}
