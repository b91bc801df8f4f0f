//! `cargo xtask …`: every command of the workspace.

fn main() {
    println!("fa4 xtask");
}
