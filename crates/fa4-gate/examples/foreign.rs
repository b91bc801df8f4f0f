//! Runs foreign kernels: `foreign REGEX-FREE-FILTER [schedule] [nocheck]`.
use fa4_gate::foreign::*;
use ptx_emu::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let filter = a.get(1).cloned().unwrap_or_default();
    let schedules: Vec<Schedule> = match a.get(2).map(String::as_str) {
        None => vec![Schedule::Eager],
        Some("all") => Schedule::ALL.to_vec(),
        Some(s) => vec![Schedule::parse(s).unwrap()],
    };
    let checks = if a.get(3).is_some_and(|s| s == "nocheck") { Checks::NONE } else { Checks::ALL };
    let mut bad = 0;
    for k in kernels().unwrap().iter().filter(|k| k.name.contains(&filter)) {
        for c in cases(k) {
            let s = setup(&c);
            for &schedule in &schedules {
                let t = std::time::Instant::now();
                let mut d = Emulator::new(Options {
                    schedule,
                    seed: 1,
                    checks,
                    step_limit: 400_000_000,
                    ..Default::default()
                });
                let r = run(k, &s, &mut d);
                let secs = t.elapsed().as_secs_f64();
                let (steps, strict) = d.report().map_or((0, String::new()), |r| {
                    (r.counters.steps, r.strict.iter().map(|f| f.code.as_str()).collect::<Vec<_>>().join(","))
                });
                match r {
                    Ok(js) => {
                        for j in js {
                            if !j.passed() {
                                bad += 1
                            }
                            println!(
                                "{} {:24} {:24} {:9} {secs:.2}s {steps} steps [{strict}] {j}",
                                if j.passed() { "ok  " } else { "BAD " },
                                k.name,
                                c.problem.to_string(),
                                schedule.as_str()
                            )
                        }
                    }
                    Err(e) => {
                        bad += 1;
                        println!(
                            "FAIL {:24} {:24} {:9} {secs:.2}s {steps} steps\n{e}",
                            k.name,
                            c.problem.to_string(),
                            schedule.as_str()
                        )
                    }
                }
            }
        }
    }
    println!("{bad} bad");
}
