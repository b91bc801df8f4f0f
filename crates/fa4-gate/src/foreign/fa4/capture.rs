//! PTX and launch data of the cases, made by FlashAttention's own compiler and host code and kept below `target/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use ptx_emu::Module;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::catalog::{ARCH, Fa4Case, SM_COUNT};
use super::package::{Package, call};
use super::{Error, FOLDER, read, write};
use crate::foreign::params::Param;

/// Where captured kernels lie below the workspace root.
const CACHE: &str = "target/foreign/fa4";
/// What decides a capture besides the cases.
const SOURCES: [&str; 3] = ["capture.py", "shim.c", "requirements.txt"];
/// Written last: its presence says that a capture is complete.
const VERSIONS: &str = "versions.json";

/// Everything that was captured for a list of cases.
#[derive(Debug)]
pub struct Captured {
    /// Where it lies.
    pub folder: PathBuf,
    /// Package versions that made it.
    pub versions: BTreeMap<String, String>,
}

/// How FlashAttention's host code launches one case, as `capture.py` writes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostLaunch {
    /// File name of the kernel.
    pub ptx: String,
    /// Name of the `.entry`.
    pub entry: String,
    /// CTAs.
    pub grid: [u32; 3],
    /// Threads per CTA.
    pub block: [u32; 3],
    /// CTAs per cluster.
    pub cluster: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// Bytes of each parameter, in hexadecimal digits.
    pub params: Vec<String>,
    /// Where the host code was told that its tensors are.
    pub tensors: Vec<PretendedTensor>,
}

/// A tensor at an address that nothing lies at.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretendedTensor {
    /// `q`, `k`, `v`, `o`, `lse`.
    pub name: String,
    /// First byte.
    pub address: u64,
    /// Sizes, outermost first.
    pub shape: Vec<u64>,
    /// Elements from one index to the next.
    pub strides: Vec<u64>,
    /// torch's name of the element type.
    pub dtype: String,
}

impl PretendedTensor {
    /// Size in bytes. All are dense.
    pub fn bytes(&self) -> u64 {
        let element = if self.dtype == "float32" { 4 } else { 2 };
        self.shape.iter().fold(element, |n, &size| n.saturating_mul(size))
    }
}

impl HostLaunch {
    /// Reads what `capture.py` wrote.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        /// More than any case has; a larger size is a mistake, and would be allocated.
        const MOST_BYTES: u64 = 1 << 32;
        let launch: Self = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let fits =
            |t: &&PretendedTensor| t.bytes() <= MOST_BYTES && t.address.checked_add(t.bytes()).is_some();
        match launch.tensors.iter().find(|t| !fits(t)) {
            Some(t) => Err(format!(
                "tensor `{}` {:?} at {:#x}: at most {MOST_BYTES} bytes",
                t.name, t.shape, t.address
            )),
            None => Ok(launch),
        }
    }

    /// The parameters with every pretended address replaced: `address` knows where a tensor really is. Pretended
    /// addresses are far from every size, scale or count, so that eight bytes that look like one are one; they stand
    /// at multiples of eight bytes, in tensor maps too.
    ///
    /// # Errors
    /// What does not fit the kernel's declaration.
    pub fn params(&self, module: &Module, address: impl Fn(&str) -> u64) -> Result<Vec<Param>, String> {
        let function = module.functions.iter().find(|f| f.name == self.entry);
        let declared = &function.ok_or_else(|| format!("the PTX has no entry `{}`", self.entry))?.params;
        if declared.len() != self.params.len() {
            return Err(format!("{} parameters captured, {} declared", self.params.len(), declared.len()));
        }
        let relocate = |word: u64| {
            let place = self.tensors.iter().find(|t| (t.address..t.address + t.bytes()).contains(&word));
            place.map(|t| word - t.address + address(&t.name))
        };
        declared
            .iter()
            .zip(&self.params)
            .map(|(declared, digits)| {
                let mut bytes = from_hex(digits).ok_or_else(|| format!("`{digits}` is not hexadecimal"))?;
                if bytes.len() != declared.size as usize {
                    return Err(format!(
                        "{}: {} bytes, {} declared",
                        declared.name,
                        bytes.len(),
                        declared.size
                    ));
                }
                for word in bytes.chunks_exact_mut(8) {
                    let value = u64::from_le_bytes(word.try_into().expect("eight bytes"));
                    if let Some(real) = relocate(value) {
                        word.copy_from_slice(&real.to_le_bytes());
                    }
                }
                Ok(Param { align: declared.align as usize, bytes })
            })
            .collect()
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let value = |digit: u8| char::from(digit).to_digit(16);
    digits.chunks(2).map(|pair| Some((value(pair[0])? * 16 + value(*pair.get(1)?)?) as u8)).collect()
}

/// Lowercase digits of a hash.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 of everything that decides what is captured for `cases`.
pub fn key(root: &Path, cases: &[Fa4Case]) -> Result<String, Error> {
    let mut hash = Sha256::new();
    for name in SOURCES {
        hash.update(read(root.join(FOLDER).join(name))?);
    }
    hash.update(request(cases));
    Ok(hex(&hash.finalize()))
}

fn request(cases: &[Fa4Case]) -> String {
    let cases: Vec<_> = cases.iter().map(Fa4Case::request).collect();
    json!({ "arch": ARCH, "sm_count": SM_COUNT, "cases": cases }).to_string()
}

impl Captured {
    /// The capture of `cases`, where it was made before.
    ///
    /// # Errors
    /// Where files are unreadable or not what they should be.
    pub fn cached(root: &Path, cases: &[Fa4Case]) -> Result<Option<Self>, Error> {
        let folder = folder(root, cases)?;
        match folder.join(VERSIONS).is_file() {
            true => Self::open(folder).map(Some),
            false => Ok(None),
        }
    }

    /// The capture of `cases`; made now, in a minute or two, where it was not before.
    ///
    /// # Errors
    /// Where Python fails, with the end of what it said.
    pub fn of(root: &Path, cases: &[Fa4Case], package: &Package, say: impl Fn(&str)) -> Result<Self, Error> {
        if let Some(captured) = Self::cached(root, cases)? {
            return Ok(captured);
        }
        say("compiling FlashAttention-4's kernels and recording its launches (a minute or two)");
        let folder = folder(root, cases)?;
        std::fs::create_dir_all(&folder).map_err(|source| Error::File { path: folder.clone(), source })?;
        let list = folder.join("cases.json");
        write(list.clone(), &request(cases))?;
        call(Command::new(package.python()).arg(root.join(FOLDER).join(SOURCES[0])).arg(list).arg(&folder))?;
        Self::open(folder)
    }

    fn open(folder: PathBuf) -> Result<Self, Error> {
        let path = folder.join(VERSIONS);
        let versions = serde_json::from_str(&read(path.clone())?);
        let versions = versions.map_err(|e| Error::Content { path, what: e.to_string() })?;
        Ok(Self { folder, versions })
    }

    /// The launch of one case.
    ///
    /// # Errors
    /// Where the file is not what it should be.
    pub fn launch(&self, case: &Fa4Case) -> Result<HostLaunch, Error> {
        let path = self.folder.join(format!("{}.json", case.name()));
        HostLaunch::parse(&read(path.clone())?).map_err(|what| Error::Content { path, what })
    }

    /// PTX text by the name that a launch has for it.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn ptx(&self, name: &str) -> Result<String, Error> {
        read(self.folder.join(name))
    }

    /// The machine code that belongs to it.
    pub fn cubin(&self, ptx: &str) -> PathBuf {
        self.folder.join(ptx).with_extension("cubin")
    }
}

fn folder(root: &Path, cases: &[Fa4Case]) -> Result<PathBuf, Error> {
    Ok(root.join(CACHE).join(&key(root, cases)?[..32]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "\
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .align 8 .b8 view[16], .param .b32 n, .param .align 64 .b8 map[128])
{
\tret;
}
";

    fn launch(params: &[String]) -> HostLaunch {
        let tensor = |name: &str, address| PretendedTensor {
            name: name.into(),
            address,
            shape: vec![2, 3],
            strides: vec![3, 1],
            dtype: "bfloat16".into(),
        };
        HostLaunch {
            ptx: "0.ptx".into(),
            entry: "k".into(),
            grid: [1; 3],
            block: [32, 1, 1],
            cluster: [1; 3],
            shared_bytes: 0,
            params: params.to_vec(),
            tensors: vec![tensor("q", 0x5a00_0000_0000), tensor("o", 0x5a10_0000_0000)],
        }
    }

    /// Addresses move, into the middle of a tensor too; what only lies near one stays.
    #[test]
    fn pretended_addresses_are_replaced() {
        let module = ptx_emu::syntax::parse("k", PTX).unwrap();
        let mut map = [0u8; 128];
        map[..8].copy_from_slice(&0x5a10_0000_0004u64.to_le_bytes());
        map[64..72].copy_from_slice(&0x5a10_0000_000cu64.to_le_bytes());
        let view = [0x5a00_0000_0000u64, 7].map(u64::to_le_bytes).concat();
        let params = [hex(&view), "07000000".into(), hex(&map)];
        let address = |name: &str| if name == "q" { 0x1000 } else { 0x2000 };
        let found = launch(&params).params(&module, address).unwrap();
        assert_eq!(found[0].bytes, [0x1000u64, 7].map(u64::to_le_bytes).concat());
        assert_eq!((found[1].align, found[1].bytes.as_slice()), (4, [7u8, 0, 0, 0].as_slice()));
        assert_eq!(found[2].align, 64);
        assert_eq!(found[2].bytes[..8], 0x2004u64.to_le_bytes());
        // One past the end of `o`'s twelve bytes.
        assert_eq!(found[2].bytes[64..72], 0x5a10_0000_000cu64.to_le_bytes());
    }

    #[test]
    fn parameters_must_fit_the_declaration() {
        let module = ptx_emu::syntax::parse("k", PTX).unwrap();
        let no = |params: &[String]| launch(params).params(&module, |_| 0).unwrap_err();
        assert!(no(&["00".into()]).contains("1 parameters captured, 3 declared"));
        let digits = |bytes: usize| "00".repeat(bytes);
        assert!(no(&[digits(8), digits(4), digits(128)]).contains("view: 8 bytes, 16 declared"));
        assert!(no(&["0g".into(), digits(4), digits(128)]).contains("hexadecimal"));
    }
}
