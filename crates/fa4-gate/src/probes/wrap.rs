//! A probe's PTX as the body of a CUDA kernel. The pinned compiler (NVRTC) assembles no PTX files, but takes the text of a
//! kernel as one `asm` statement; it names parameters `NAME_param_0`, `NAME_param_1`, …, and that is all that changes.

use std::fmt::Write as _;

/// A CUDA file with one kernel per `.entry` of `ptx`, for files in the form that the probes have: parameters `NAME_in`,
/// `NAME_out` and, in some, a tensor map `NAME_map`.
///
/// # Errors
/// What in the file has another form.
pub fn cuda(ptx: &str) -> Result<String, String> {
    let mut text = String::from(
        "struct alignas(64) WithMap { const void* in; void* out; alignas(64) char map[128]; };\n",
    );
    let mut entries = 0;
    for part in ptx.split(".visible .entry ").skip(1) {
        kernel(part, &mut text)?;
        entries += 1;
    }
    if entries == 0 {
        return Err("it defines no `.visible .entry`".to_string());
    }
    Ok(text)
}

fn kernel(part: &str, text: &mut String) -> Result<(), String> {
    let (name, rest) = part.split_once('(').ok_or("an entry without parameters")?;
    let (params, rest) = rest.split_once(')').ok_or_else(|| format!("{name}: an open list of parameters"))?;
    let (directives, rest) =
        rest.split_once('{').ok_or_else(|| format!("{name}: an entry without a body"))?;
    let (body, _) = rest.rsplit_once('}').ok_or_else(|| format!("{name}: an open body"))?;
    let mut attributes = String::new();
    let lines = directives.lines().map(str::trim).filter(|line| !line.is_empty());
    for line in lines {
        let (word, value) = line.split_once(' ').unwrap_or((line, ""));
        let value = value.trim();
        let attribute = match word {
            // Threads of a CTA are bounded by the registers that each has.
            ".maxntid" => String::new(),
            ".maxnreg" => format!(" __maxnreg__({value})"),
            // Said by the attribute of the next.
            ".explicitcluster" => String::new(),
            ".reqnctapercluster" => format!(" __cluster_dims__({value})"),
            _ => return Err(format!("{name}: unknown directive `{line}`")),
        };
        attributes += &attribute;
    }
    let [input, output, map] = ["in", "out", "map"].map(|suffix| format!("{name}_{suffix}"));
    let mut body = body.to_string();
    // Drivers put a parameter that is aligned to 64 where its address in the constant bank is, not its offset in the
    // block: 48 bytes behind two pointers. So a map and its pointers are one parameter.
    let declared = if params.contains(&map) {
        body = body.replace(&output, &format!("{name}_param_0+8"));
        body = body.replace(&map, &format!("{name}_param_0+64"));
        "const __grid_constant__ WithMap"
    } else {
        body = body.replace(&output, &format!("{name}_param_1"));
        "const void*, void*"
    };
    body = body.replace(&input, &format!("{name}_param_0"));
    let _ = writeln!(
        text,
        "extern \"C\" __global__ void{attributes} {name}({declared})\n{{\nasm volatile(\n\"{{\\n\""
    );
    for line in body.lines().filter(|line| !line.trim().is_empty()) {
        let line = line.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = writeln!(text, "\"{line}\\n\"");
    }
    let _ = writeln!(text, "\"}}\\n\");\n}}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "\
.version 8.7
.visible .entry k(.param .u64 k_in, .param .u64 k_out, .param .align 64 .b8 k_map[128])
    .maxntid 384, 1, 1
    .maxnreg 168
{
    .reg .b64 %r<2>;
    ld.param.u64 %r0, [k_in];
    mov.b64 %r1, k_map;
    ret;
}
";

    #[test]
    fn parameters_are_renamed_and_all_else_stays() {
        let text = cuda(PTX).unwrap();
        assert!(text.contains("void __maxnreg__(168) k(const __grid_constant__ WithMap)"), "{text}");
        for line in ["    ld.param.u64 %r0, [k_param_0];", "    mov.b64 %r1, k_param_0+64;", "    ret;"] {
            assert!(text.contains(&format!("\"{line}\\n\"\n")), "{line}: {text}");
        }
        assert!(!text.contains("k_in") && !text.contains("k_map"));
    }

    #[test]
    fn other_forms_are_refused_in_words() {
        assert!(cuda("// nothing").unwrap_err().contains("no `.visible .entry`"));
        assert!(cuda(&PTX.replace(".maxnreg 168", ".minnctapersm 2")).unwrap_err().contains(".minnctapersm"));
        assert!(cuda(".visible .entry k(.param .u64 k_in").unwrap_err().contains("open list"));
    }
}
