//! The tables that a kernel exports about itself, read back from its PTX text.
//!
//! `cuda/prim/table.cuh` emits a kernel's roles, shared memory, TMEM regions, barriers and parameters as constant data
//! (`kinfo_*`) from the very rows that the kernel is compiled from, and documents the binary layout. [`parse`] finds
//! these initialisers in the text, so that the host can check sizes and offsets and reports can say `P_full[1]`.

use std::fmt;

use serde::Serialize;

/// Everything that a kernel says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelInfo {
    /// Which warps do what, in warp order.
    pub roles: Vec<Role>,
    /// Dynamic shared memory, in address order.
    pub smem: Vec<SmemRegion>,
    /// Tensor memory; empty where the kernel uses none.
    pub tmem: Vec<TmemRegion>,
    /// mbarrier objects.
    pub barriers: Vec<Barrier>,
    /// Fields of the parameter struct.
    pub params: Vec<Param>,
}

/// A range of warps with one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Role {
    /// Name.
    pub name: String,
    /// First warp of the CTA that plays it.
    pub first_warp: u32,
    /// Number of warps.
    pub warps: u32,
    /// Registers per thread after `setmaxnreg`.
    pub regs: u32,
}

/// A region of dynamic shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SmemRegion {
    /// Name.
    pub name: String,
    /// Bytes of one stage.
    pub bytes: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Stages, one behind the other.
    pub stages: u32,
    /// Bytes from the start of dynamic shared memory.
    pub offset: u32,
}

/// A region of tensor memory: all 128 lanes of some columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TmemRegion {
    /// Name.
    pub name: String,
    /// Element type, as the kernel spells it.
    pub dtype: String,
    /// Roles that write it.
    pub written_by: Vec<String>,
    /// Roles that read it.
    pub read_by: Vec<String>,
    /// The region whose columns it reuses on purpose.
    pub alias: Option<String>,
    /// First column, relative to the allocation.
    pub col: u32,
    /// Number of 32-bit columns.
    pub cols: u32,
}

/// A family of mbarrier objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Barrier {
    /// Name.
    pub name: String,
    /// Roles that arrive; `#` at the end stands for the stage's number (see [`role_of_stage`]).
    pub arriver: Vec<String>,
    /// Roles that wait, in the same notation.
    pub waiter: Vec<String>,
    /// What becomes true when a phase completes.
    pub meaning: String,
    /// Number of objects, 8 bytes each.
    pub stages: u32,
    /// Arrivals per phase.
    pub arrivals: u32,
    /// Bytes of asynchronous transactions per phase; 0: none.
    pub tx_bytes: u32,
    /// Bytes from the start of dynamic shared memory to stage 0.
    pub offset: u32,
}

/// A field of the parameter struct.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Param {
    /// Field name.
    pub name: String,
    /// Bytes from the start of the struct.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
}

/// Bytes of one mbarrier object.
pub const MBARRIER_BYTES: u32 = 8;

impl KernelInfo {
    /// Dynamic shared memory that a launch must ask for, in bytes.
    pub fn smem_bytes(&self) -> u32 {
        self.smem.iter().map(|region| region.offset + region.bytes * region.stages).max().unwrap_or(0)
    }

    /// Threads of a CTA.
    pub fn threads(&self) -> u32 {
        self.roles.iter().map(|role| (role.first_warp + role.warps) * 32).max().unwrap_or(0)
    }

    /// The role that warp `warp` of a CTA plays.
    pub fn role_of_warp(&self, warp: u32) -> Option<&Role> {
        self.roles.iter().find(|role| (role.first_warp..role.first_warp + role.warps).contains(&warp))
    }

    /// The barrier, and its stage, whose object starts `offset` bytes into dynamic shared memory.
    pub fn barrier_at(&self, offset: u32) -> Option<(&Barrier, u32)> {
        self.barriers.iter().find_map(|barrier| {
            let delta = offset.checked_sub(barrier.offset)?;
            let stage = delta / MBARRIER_BYTES;
            (delta % MBARRIER_BYTES == 0 && stage < barrier.stages).then_some((barrier, stage))
        })
    }
}

/// The role meant by `role` for stage `stage` of a barrier: `softmax#` of stage 1 is `softmax1`.
pub fn role_of_stage(role: &str, stage: u32) -> String {
    match role.strip_suffix('#') {
        Some(stem) => format!("{stem}{stage}"),
        None => role.to_owned(),
    }
}

/// Why a kernel's tables could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelInfoError {
    /// A table that is not in the PTX.
    #[error(
        "the PTX exports no table `{table}`; a kernel exports its tables with EXPORT_TABLE (cuda/prim/table.cuh)"
    )]
    Missing {
        /// Symbol.
        table: &'static str,
    },
    /// An initialiser that is not a list of bytes.
    #[error("table `{table}`: `{found}` is not a byte of a `.b8` initialiser")]
    Initialiser {
        /// Symbol.
        table: &'static str,
        /// The offending text.
        found: String,
    },
    /// Tables laid out by another version of `table.cuh`.
    #[error(
        "kinfo_header says {found}, this crate reads {expected}: rebuild the kernel and this crate from one commit"
    )]
    Version {
        /// What the PTX says.
        found: String,
        /// What this module reads.
        expected: String,
    },
    /// A table whose size is no multiple of its row size.
    #[error("table `{table}` has {bytes} bytes, no multiple of its {row_bytes}-byte rows")]
    Size {
        /// Symbol.
        table: &'static str,
        /// Size of the table.
        bytes: usize,
        /// Size of one row.
        row_bytes: usize,
    },
    /// A text field that is not UTF-8.
    #[error("table `{table}`: a name is not UTF-8")]
    Text {
        /// Symbol.
        table: &'static str,
    },
}

/// Row sizes and version of `kinfo_header`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Header([u32; 6]);

/// What this module reads: version, then the row sizes of roles, smem, tmem, barriers, params.
const HEADER: Header = Header([1, 36, 40, 112, 152, 32]);

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [version, rows @ ..] = self.0;
        write!(f, "version {version} with rows of {rows:?} bytes")
    }
}

/// Reads the tables out of a kernel's PTX text.
///
/// # Errors
/// [`KernelInfoError`]: a table is missing, malformed, or of another version.
pub fn parse(ptx: &str) -> Result<KernelInfo, KernelInfoError> {
    read(|table| initialiser(ptx, table))
}

/// Reads the tables from wherever `bytes` finds them by symbol, for example in loaded code.
///
/// # Errors
/// [`KernelInfoError`], that of `bytes` among them.
pub fn read(
    mut bytes: impl FnMut(&'static str) -> Result<Vec<u8>, KernelInfoError>,
) -> Result<KernelInfo, KernelInfoError> {
    // A kernel without tensor memory has no such table.
    let mut bytes = |table| match bytes(table) {
        Err(KernelInfoError::Missing { table: "kinfo_tmem" }) => Ok(Vec::new()),
        result => result,
    };
    let header = bytes("kinfo_header")?;
    let words: Vec<u32> = header.get(4..).unwrap_or(&[]).chunks_exact(4).map(word).collect();
    let found =
        <[u32; 6]>::try_from(words.as_slice()).ok().map(Header).filter(|_| header.starts_with(b"FA4K"));
    if found != Some(HEADER) {
        return Err(KernelInfoError::Version {
            found: found
                .map_or_else(|| "something else than an FA4K header".to_owned(), |header| header.to_string()),
            expected: HEADER.to_string(),
        });
    }
    let [_, role_bytes, smem_bytes, tmem_bytes, barrier_bytes, param_bytes] =
        HEADER.0.map(|size| size as usize);
    Ok(KernelInfo {
        roles: rows(&mut bytes, "kinfo_roles", role_bytes, |row| {
            Ok(Role { name: row.text(24)?, first_warp: row.word(), warps: row.word(), regs: row.word() })
        })?,
        smem: rows(&mut bytes, "kinfo_smem", smem_bytes, |row| {
            Ok(SmemRegion {
                name: row.text(24)?,
                bytes: row.word(),
                align: row.word(),
                stages: row.word(),
                offset: row.word(),
            })
        })?,
        tmem: rows(&mut bytes, "kinfo_tmem", tmem_bytes, |row| {
            Ok(TmemRegion {
                name: row.text(24)?,
                dtype: row.text(8)?,
                written_by: row.list(24)?,
                read_by: row.list(24)?,
                alias: Some(row.text(24)?).filter(|alias| !alias.is_empty()),
                col: row.word(),
                cols: row.word(),
            })
        })?,
        barriers: rows(&mut bytes, "kinfo_barriers", barrier_bytes, |row| {
            Ok(Barrier {
                name: row.text(24)?,
                arriver: row.list(24)?,
                waiter: row.list(24)?,
                meaning: row.text(64)?,
                stages: row.word(),
                arrivals: row.word(),
                tx_bytes: row.word(),
                offset: row.word(),
            })
        })?,
        params: rows(&mut bytes, "kinfo_params", param_bytes, |row| {
            Ok(Param { name: row.text(24)?, offset: row.word(), bytes: row.word() })
        })?,
    })
}

/// The bytes of `.b8 table[N] = {…}`. PTX leaves trailing zeros out; they are filled in.
fn initialiser(ptx: &str, table: &'static str) -> Result<Vec<u8>, KernelInfoError> {
    let missing = KernelInfoError::Missing { table };
    let declaration = format!(" {table}[");
    let Some(line) = ptx.lines().find(|line| line.contains(".b8 ") && line.contains(&declaration)) else {
        return Err(missing);
    };
    let after = &line[line.find(&declaration).unwrap_or(0) + declaration.len()..];
    let Some((size, rest)) = after.split_once(']') else { return Err(missing) };
    let Some((_, list)) = rest.split_once('{') else { return Err(missing) };
    let list = list.split('}').next().unwrap_or("");
    let bad = |found: &str| KernelInfoError::Initialiser { table, found: found.to_owned() };
    let size: usize = size.trim().parse().map_err(|_| bad(size))?;
    let mut bytes = Vec::with_capacity(size);
    for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        bytes.push(item.parse::<u8>().map_err(|_| bad(item))?);
    }
    if bytes.len() > size {
        return Err(bad(&format!("{} values for {size} bytes", bytes.len())));
    }
    bytes.resize(size, 0);
    Ok(bytes)
}

fn rows<T>(
    bytes: &mut impl FnMut(&'static str) -> Result<Vec<u8>, KernelInfoError>,
    table: &'static str,
    row_bytes: usize,
    mut read: impl FnMut(&mut Reader<'_>) -> Result<T, KernelInfoError>,
) -> Result<Vec<T>, KernelInfoError> {
    let bytes = bytes(table)?;
    if bytes.len() % row_bytes != 0 {
        return Err(KernelInfoError::Size { table, bytes: bytes.len(), row_bytes });
    }
    bytes.chunks_exact(row_bytes).map(|row| read(&mut Reader { table, rest: row })).collect()
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

/// Takes fields off the front of a row.
struct Reader<'a> {
    table: &'static str,
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take(&mut self, bytes: usize) -> &[u8] {
        let (field, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.rest = rest;
        field
    }

    fn word(&mut self) -> u32 {
        word(self.take(4))
    }

    fn text(&mut self, bytes: usize) -> Result<String, KernelInfoError> {
        let table = self.table;
        let field = self.take(bytes);
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        std::str::from_utf8(&field[..end]).map(str::to_owned).map_err(|_| KernelInfoError::Text { table })
    }

    fn list(&mut self, bytes: usize) -> Result<Vec<String>, KernelInfoError> {
        Ok(self.text(bytes)?.split_whitespace().map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line that NVRTC writes for a constant array: decimal bytes, trailing zeros left out.
    fn declare(symbol: &str, bytes: &[u8]) -> String {
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let list: Vec<String> = bytes[..used].iter().map(u8::to_string).collect();
        format!(".global .align 4 .b8 {symbol}[{}] = {{{}}};\n", bytes.len(), list.join(", "))
    }

    fn text(value: &str, bytes: usize) -> Vec<u8> {
        let mut field = value.as_bytes().to_vec();
        field.resize(bytes, 0);
        field
    }

    fn row(texts: &[(&str, usize)], words: &[u32]) -> Vec<u8> {
        let mut row: Vec<u8> = texts.iter().flat_map(|(value, bytes)| text(value, *bytes)).collect();
        row.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        row
    }

    fn header() -> Vec<u8> {
        row(&[("FA4K", 4)], &HEADER.0)
    }

    fn sample() -> String {
        let roles = [row(&[("softmax0", 24)], &[0, 4, 192]), row(&[("mma", 24)], &[4, 1, 48])].concat();
        let smem =
            [row(&[("Q", 24)], &[32768, 1024, 2, 0]), row(&[("barriers", 24)], &[24, 8, 1, 65536])].concat();
        let tmem =
            row(&[("P0", 24), ("bf16", 8), ("softmax0", 24), ("mma correction", 24), ("S0", 24)], &[64, 64]);
        let barriers = row(
            &[("P_full", 24), ("softmax# correction", 24), ("mma", 24), ("P stored", 64)],
            &[2, 256, 0, 65536],
        );
        let params = row(&[("seqlen_q", 24)], &[512, 4]);
        [
            declare("kinfo_header", &header()),
            declare("kinfo_roles", &roles),
            declare("kinfo_smem", &smem),
            declare("kinfo_tmem", &tmem),
            declare("kinfo_barriers", &barriers),
            declare("kinfo_params", &params),
        ]
        .concat()
    }

    #[test]
    fn reads_every_table() {
        let info = parse(&sample()).unwrap();
        assert_eq!(info.threads(), 160);
        assert_eq!(info.smem_bytes(), 65560);
        assert_eq!(info.role_of_warp(3).unwrap().name, "softmax0");
        assert_eq!(info.role_of_warp(5), None);
        assert_eq!(info.tmem[0].read_by, ["mma", "correction"]);
        assert_eq!(info.tmem[0].alias.as_deref(), Some("S0"));
        assert_eq!(info.params[0], Param { name: "seqlen_q".into(), offset: 512, bytes: 4 });
        let (barrier, stage) = info.barrier_at(65544).unwrap();
        assert_eq!((barrier.name.as_str(), stage, barrier.arrivals), ("P_full", 1, 256));
        assert_eq!(role_of_stage(&barrier.arriver[0], stage), "softmax1");
        assert!(info.barrier_at(65548).is_none(), "between two objects");
        assert!(info.barrier_at(65552).is_none(), "past the last stage");
    }

    #[test]
    fn says_what_is_wrong() {
        let broken = |from: &str, to: &str| parse(&sample().replacen(from, to, 1)).unwrap_err();
        assert_eq!(broken("kinfo_smem", "kinfo_else"), KernelInfoError::Missing { table: "kinfo_smem" });
        assert!(matches!(broken("70, 65, 52, 75, 1", "70, 65, 52, 75, 2"), KernelInfoError::Version { .. }));
        assert!(matches!(broken("70, 65", "70, 265"), KernelInfoError::Initialiser { .. }));
        assert!(matches!(
            broken("kinfo_roles[72]", "kinfo_roles[73]"),
            KernelInfoError::Size { bytes: 73, .. }
        ));
        assert!(parse("").is_err());
    }
}
