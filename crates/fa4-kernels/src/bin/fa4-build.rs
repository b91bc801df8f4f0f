//! `fa4-build`: kernels to PTX, cubins and resource tables. `cargo xtask build` runs it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use fa4_kernels::arch::Arch;
use fa4_kernels::compile::{Artifact, BuildError, Builder, Job};
use fa4_kernels::manifest::{self, ROWS};
use fa4_kernels::sass;
use fa4_kernels::sass_mix::{self, Labelled, Mix};
use fa4_kernels::toolchain::Toolchain;

/// Compiles CUDA sources with the pinned NVRTC: every row of the manifest, unless a command says otherwise.
#[derive(Parser)]
#[command(name = "fa4-build", version)]
struct Cli {
    /// Only rows whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Say which toolchain is in use and compile a one-line kernel for every architecture.
    Check {
        /// An installed CUDA to try instead of the one in use.
        #[arg(long, value_name = "PATH")]
        toolchain: Option<PathBuf>,
    },
    /// Compile one file.
    File(FileArgs),
    /// Count the machine instructions of softmax loops, in kernels of ours or in any cubins.
    ///
    /// The softmax loop is the innermost loop that makes exponentials of scores and packs them; counted is the ordinary
    /// pass through it (no mask, no spinning), scaled to 128 scores a thread. Prints a Markdown table.
    SassMix(SassMixArgs),
}

#[derive(clap::Args)]
struct SassMixArgs {
    /// Entries of ours (fwd_sm100_hd128_bf16_full) or cubin files, with a heading before `=` where wanted:
    /// `FA4=kernel.cubin`.
    #[arg(required = true, value_name = "[LABEL=]KERNEL|CUBIN")]
    what: Vec<String>,
    /// Only functions whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    entry: String,
    /// Every softmax loop of each, not only the one with the fewest instructions.
    #[arg(long)]
    all_loops: bool,
    /// JSON instead of the table.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct FileArgs {
    /// The CUDA source.
    file: PathBuf,
    /// Architectures (default: all).
    #[arg(long, value_delimiter = ',', value_name = "ARCH")]
    arch: Vec<Arch>,
    /// A macro, NAME=VALUE. May be repeated.
    #[arg(long, short = 'D', value_name = "NAME=VALUE", value_parser = parse_define)]
    define: Vec<(String, String)>,
    /// Print machine instructions by opcode.
    #[arg(long)]
    sass: bool,
}

/// What went wrong, by exit code.
enum Failure {
    /// 2: the source.
    Input(String),
    /// 3: the machine.
    Environment(String),
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let text = error.to_string();
        if error.is_environment() { Failure::Environment(text) } else { Failure::Input(text) }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => rows(&cli.filter),
        Some(Command::Check { toolchain }) => check(toolchain.as_deref()),
        Some(Command::File(args)) => file(&args),
        Some(Command::SassMix(args)) => sass_mix(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Input(text)) => {
            eprintln!("error: {text}");
            ExitCode::from(2)
        }
        Err(Failure::Environment(text)) => {
            eprintln!("error: {text}");
            ExitCode::from(3)
        }
    }
}

fn builder() -> Result<Builder, Failure> {
    Builder::open(&workspace()).map_err(|error| Failure::Environment(error.to_string()))
}

/// The workspace that this program was built in.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in crates/").to_owned()
}

fn check(toolchain: Option<&Path>) -> Result<(), Failure> {
    let builder = match toolchain {
        None => builder()?,
        Some(root) => Toolchain::installed(root)
            .map(|toolchain| Builder::with_toolchain(&workspace(), toolchain))
            .map_err(|error| Failure::Environment(error.to_string()))?,
    };
    println!("NVRTC {} in {}", builder.toolchain().version(), builder.toolchain().root().display());
    // Unique, so that the cache cannot answer for the compiler.
    let file = std::env::temp_dir().join(format!("fa4-check-{}.cu", std::process::id()));
    let text = format!("extern \"C\" __global__ void check() {{}} // {:?}\n", std::time::SystemTime::now());
    std::fs::write(&file, text)
        .map_err(|e| Failure::Environment(format!("cannot write {}: {e}", file.display())))?;
    let job = Job {
        name: "check".into(),
        source: file.clone(),
        defines: Vec::new(),
        entries: vec!["check".into()],
        archs: Arch::ALL.to_vec(),
    };
    let result = builder.build(&job);
    let _ = std::fs::remove_file(&file);
    let artifact = result?;
    for image in &artifact.images {
        println!("compiles for {}", image.arch);
        let _ = std::fs::remove_dir_all(&image.folder);
    }
    Ok(())
}

fn rows(filter: &str) -> Result<(), Failure> {
    let rows: Vec<_> = ROWS.iter().filter(|row| row.name().contains(filter)).collect();
    if rows.is_empty() {
        let names: Vec<_> = ROWS.iter().map(|row| row.name()).collect();
        return Err(Failure::Input(format!(
            "no row's name contains `{filter}`; there are: {}",
            names.join(", ")
        )));
    }
    let builder = builder()?;
    for row in rows {
        let started = Instant::now();
        print(&builder.build_row(row)?, Some(row.entry), started);
    }
    Ok(())
}

fn file(args: &FileArgs) -> Result<(), Failure> {
    let builder = builder()?;
    let archs = if args.arch.is_empty() { Arch::ALL.to_vec() } else { args.arch.clone() };
    let job = Job {
        name: args.file.display().to_string(),
        source: args.file.clone(),
        defines: args.define.clone(),
        entries: Vec::new(),
        archs,
    };
    let started = Instant::now();
    let artifact = builder.build(&job)?;
    print(&artifact, None, started);
    if args.sass {
        for image in &artifact.images {
            let functions = sass::disassemble(builder.toolchain(), &image.cubin_path())
                .map_err(|error| Failure::Environment(error.to_string()))?;
            for function in functions {
                println!("{} {}: {} instructions", image.arch, function.name, function.instructions.len());
                for (opcode, count) in function.histogram() {
                    println!("  {count:>6} {opcode}");
                }
            }
        }
    }
    Ok(())
}

fn sass_mix(args: &SassMixArgs) -> Result<(), Failure> {
    let builder = builder()?;
    let mut columns: Vec<Labelled> = Vec::new();
    for what in &args.what {
        let (label, name) = what.split_once('=').map_or((None, what.as_str()), |(a, b)| (Some(a), b));
        let (cubin, entry) = cubin(&builder, name)?;
        let functions = sass::disassemble(builder.toolchain(), &cubin)
            .map_err(|error| Failure::Environment(error.to_string()))?;
        let wanted = |name: &str| entry.is_none_or(|entry| entry == name) && name.contains(&args.entry);
        let functions = functions.iter().filter(|function| wanted(&function.name));
        let mut mixes: Vec<Mix> = functions.flat_map(sass_mix::softmax_loops).collect();
        if mixes.is_empty() {
            return Err(Failure::Input(format!(
                "{name}: no function that was asked for has a softmax loop (exponentials packed to 16 bits)"
            )));
        }
        if !args.all_loops {
            mixes.sort_by(|a, b| a.scaled(a.total()).total_cmp(&b.scaled(b.total())));
            mixes.truncate(1);
        }
        let label = |mix: &Mix| label.unwrap_or(&mix.function).to_owned();
        columns.extend(mixes.into_iter().map(|mix| Labelled { label: label(&mix), mix }));
    }
    if args.json {
        let json = serde_json::to_string_pretty(&columns).expect("plain data has a JSON form");
        println!("{json}");
    } else {
        print!("{}", sass_mix::table(&columns));
    }
    Ok(())
}

/// The cubin that `name` means, and the function in it where `name` is an entry of ours.
fn cubin<'a>(builder: &Builder, name: &'a str) -> Result<(PathBuf, Option<&'a str>), Failure> {
    if let Some(row) = manifest::by_entry(name) {
        let artifact = builder.build_row(row)?;
        let image = artifact.images.first().expect("every row names an architecture");
        return Ok((image.cubin_path(), Some(name)));
    }
    if Path::new(name).is_file() {
        return Ok((PathBuf::from(name), None));
    }
    let entries: Vec<_> = ROWS.iter().map(|row| row.entry).collect();
    Err(Failure::Input(format!("`{name}` is neither a file nor a kernel; kernels: {}", entries.join(", "))))
}

/// Resources of one entry function, or of all.
fn print(artifact: &Artifact, only: Option<&str>, started: Instant) {
    for image in &artifact.images {
        for (entry, usage) in image.usage.iter().filter(|(entry, _)| only.is_none_or(|only| only == *entry)) {
            println!(
                "{:<8} {entry}: {} registers, {} B static shared memory, {} B of code{}",
                image.arch.name(),
                usage.registers,
                usage.static_smem_bytes,
                usage.sass_bytes,
                if image.cached { " (cached)" } else { "" }
            );
        }
        println!("         {}", image.folder.display());
    }
    println!("{}: {:.2} s", artifact.name, started.elapsed().as_secs_f64());
}

fn parse_define(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not NAME=VALUE")),
    }
}
