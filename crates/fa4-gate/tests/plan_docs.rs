//! The generated parts of `docs/kernels/` say what the kernels say today. `cargo xtask bless plan` rewrites them.

use fa4_gate::kernels::workspace;
use fa4_gate::plan::docs;
use fa4_kernels::compile::Builder;

#[test]
fn plan_documents_are_what_the_kernels_say() {
    let root = workspace();
    // Without a toolchain there is no kernel to ask.
    let Ok(builder) = Builder::open(&root) else { return };
    let bless = std::env::var_os("PTX_EMU_BLESS").is_some();
    let mut stale = Vec::new();
    for (path, text) in docs::generate(&builder, &root).unwrap_or_else(|error| panic!("{error}")) {
        let file = root.join(&path);
        if std::fs::read_to_string(&file).is_ok_and(|now| now == text) {
            continue;
        }
        if bless {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, text).unwrap();
        } else {
            stale.push(path);
        }
    }
    assert!(stale.is_empty(), "stale: {}; read what `cargo xtask bless plan` changes", stale.join(", "));
}
