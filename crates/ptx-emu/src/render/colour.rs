//! Colours for reports on a terminal.

use std::io::IsTerminal;

const BAD: &str = "1;31";
const CAUTION: &str = "1;33";
const GOOD: &str = "32";
const PLACE: &str = "34";
const FAINT: &str = "2";

/// Whether standard output shows colours: it is a terminal, and neither `NO_COLOR` (with any text) nor `TERM=dumb`
/// asks for none.
pub fn wanted() -> bool {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    std::io::stdout().is_terminal() && !plain && !dumb
}

/// A report in colour: the finding, its places and what to do stand out, quoted lines stand back. Without the escape
/// sequences it is the same text.
pub fn colour(report: &str) -> String {
    report.split_inclusive('\n').map(line).collect()
}

fn line(line: &str) -> String {
    let text = line.trim_end_matches('\n');
    let start = text.trim_start();
    let style = match start {
        s if s.starts_with("fault[") || s.starts_with("fault: ") || s.starts_with("= missing:") => BAD,
        s if s.starts_with("strict[") || s.starts_with("unsupported:") || s.starts_with("step limit:") => {
            CAUTION
        }
        s if s.starts_with("= help:") => GOOD,
        s if s.starts_with("-->") || s.starts_with("inlined at") || s.starts_with("PTX ") => PLACE,
        s if s.starts_with('|') => FAINT,
        _ => return line.to_string(),
    };
    format!("\x1b[{style}m{text}\x1b[0m{}", &line[text.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_escapes_are_added() {
        let report = "fault[align]: an address\n  --> k.ptx:3\n   | ld.b32\n  = help: align it\nplain\n";
        let coloured = colour(report);
        assert!(coloured.starts_with("\x1b[1;31mfault[align]: an address\x1b[0m\n"));
        let mut plain = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once('\x1b') {
            plain += before;
            rest = after.split_once('m').map_or("", |(_, rest)| rest);
        }
        assert_eq!(plain + rest, report);
    }
}
