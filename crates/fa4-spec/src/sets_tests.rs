use std::path::Path;

use super::*;

const GOOD: &str = "x,edge,tail,prefill,1,2,3,4,2,64,64,1,-1,-1,0,0,bf16,bf16,dense,0,,randn,match,,src";

fn parse_rows(rows: &str) -> Result<Vec<Row>, String> {
    parse(Path::new("f.csv"), &format!("{}\n{rows}\n", HEADER.join(","))).map_err(|e| e.to_string())
}

fn file(name: &str) -> Vec<Row> {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sets").join(name)).unwrap()
}

#[test]
fn the_committed_sets_read_whole() {
    assert_eq!(file("claim.csv").len(), 87);
    assert_eq!(file("real.csv").len(), 469);
    assert_eq!(file("edge.csv").len(), 145);
}

#[test]
fn a_row_is_read_as_written() {
    let row = &parse_rows(GOOD).unwrap()[0];
    let p = &row.problem;
    assert_eq!((p.batch, p.seqlen_q, p.seqlen_k, p.num_heads_q, p.num_heads_kv), (1, 2, 3, 4, 2));
    assert_eq!((p.head_dim_qk, p.mask, row.layout), (64, Mask::CAUSAL, BatchLayout::Dense));
    let windowed =
        file("edge.csv").into_iter().find(|r| r.id == "window_prefill_b2_q200_k1000_h8kv2_d128_nc_w0.64");
    let mask = windowed.unwrap().problem.mask;
    assert_eq!(mask, Mask { causal: false, window_left: Some(0), window_right: Some(64) });
}

/// Each mistake is answered with its place and with what is allowed.
#[test]
fn mistakes_are_located() {
    for (from, to, place, words) in [
        (",prefill,", ",prefil,", "f.csv:2:13:", "prefill, chunked, decode"),
        ("prefill,1,", "prefill,-1,", "f.csv:2:21:", "whole number from 0"),
        (",4,2,", ",4,3,", "f.csv:2:29:", "must divide num_heads_q"),
        (",1,-1,-1,", ",2,-1,-1,", "f.csv:2:37:", "0 or 1"),
        (",1,-1,-1,", ",1,-2,-1,", "f.csv:2:39:", "-1 (unbounded)"),
        (",0,bf16", ",soft,bf16", "f.csv:2:47:", "a number ≥ 0"),
        (",bf16,bf16", ",bf16,int8", "f.csv:2:54:", "bf16, fp16, fp8_e4m3"),
        (",dense,0", ",dense,16", "f.csv:2:65:", "must be 0"),
        (",dense,0", ",paged,0", "f.csv:2:65:", "must be ≥ 1"),
        (",dense,", ",sparse,", "f.csv:2:59:", "dense, varlen, paged"),
        (",randn,", ",rand,", "f.csv:2:68:", "monotone_up"),
        (",match,", ",equal,", "f.csv:2:74:", "match_sampled"),
        (",0,,randn", ",0,q3x,randn", "f.csv:2:67:", "[count]q<len>[k]"),
        (",src", "", "f.csv:2:80:", "24 fields, expected 25"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let error = parse_rows(&GOOD.replacen(from, to, 1)).unwrap_err();
        assert!(error.starts_with(place), "{to}: {error}");
        assert!(error.contains(words), "{to}: {error}");
    }
}

/// Quoted commas and blank lines do not move the place.
#[test]
fn places_survive_quotes_and_blank_lines() {
    let quoted = GOOD.replacen("x,edge", "\"x, y\",edge", 1).replacen("prefill", "nonsense", 1);
    let error = parse_rows(&format!("\n\n{quoted}")).unwrap_err();
    assert!(error.starts_with("f.csv:4:18:"), "{error}");
}

#[test]
fn duplicate_ids_and_bad_headers_are_refused() {
    let error = parse_rows(&format!("{GOOD}\n{GOOD}")).unwrap_err();
    assert!(error.starts_with("f.csv:3:1:") && error.contains("line 2"), "{error}");
    let error = parse(Path::new("f.csv"), "id,set,fam\n").unwrap_err().to_string();
    assert!(error.starts_with("f.csv:1:8:") && error.contains("expected `family`"), "{error}");
    let error = parse(Path::new("f.csv"), "").unwrap_err().to_string();
    assert!(error.contains("no rows"), "{error}");
    let missing = read(Path::new("/no/such/file.csv")).unwrap_err().to_string();
    assert!(missing.contains("/no/such/file.csv"), "{missing}");
}

#[test]
fn binary_input_is_an_error_and_not_a_panic() {
    let path = std::env::temp_dir().join(format!("fa4-spec-{}.csv", std::process::id()));
    std::fs::write(&path, [0xff, 0xfe, 0, b'\n', b'"']).unwrap();
    assert!(read(&path).is_err());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn batch_grammar() {
    let seg = |count, seqlen_q, seqlen_k| Segments { count, seqlen_q, seqlen_k };
    assert_eq!(batch_spec("2q2k_32q1s1k").unwrap(), [seg(2, 2048, 2048), seg(32, 1, 1024)]);
    assert_eq!(batch_spec("q0s0_q1208s2538").unwrap(), [seg(1, 0, 0), seg(1, 1208, 2538)]);
    assert_eq!(batch_spec("64q1s1k_q0s5").unwrap(), [seg(64, 1, 1024), seg(1, 0, 5)]);
    for bad in ["", "q", "2q", "0q1", "q1s", "q-1", "q+1", "1k", "q1_", "q1s2x", "q99999999999999999999"] {
        assert!(batch_spec(bad).is_err(), "{bad}");
    }
}
