//! Cubins: which one a GPU runs, and whether it is the one that the host was built with.
//!
//! # Safety argument
//! The driver is given a cubin by address alone and reads as far as its headers say; [`check_elf`] makes sure that all of
//! it lies in the slice. Functions live as long as their module, which unloads on drop and keeps the context alive; they
//! are reached through it only.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction, CUfunction_attribute as Attribute, CUmodule};
use fa4_kernels::arch::Arch;
use fa4_kernels::kernel_info::{self, KernelInfo, KernelInfoError};

use super::gpu::Gpu;
use crate::error::DeviceError;

/// Loaded code; cheap to clone and to share between devices and threads on the same GPU.
#[derive(Clone)]
pub struct CudaModule(pub(super) Arc<Loaded>);

/// A module in a context.
pub(super) struct Loaded {
    pub(super) gpu: Arc<Gpu>,
    handle: CUmodule,
    functions: BTreeMap<String, Function>,
}

// SAFETY: modules and functions may be used from any thread; see the module's argument.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

/// An entry function and what the compiler says about it.
#[derive(Debug, Clone)]
pub struct Function {
    pub(super) handle: CUfunction,
    /// Name.
    pub name: String,
    /// Offset and size of each parameter in the parameter block, in order.
    pub params: Vec<(usize, usize)>,
    /// Registers per thread at launch.
    pub registers: u32,
    /// Static shared memory per CTA in bytes.
    pub static_smem: u32,
    /// Local memory per thread in bytes.
    pub local_bytes: u32,
    /// Most threads of a CTA.
    pub max_threads: u32,
}

impl Function {
    /// Size of the parameter block in bytes.
    pub fn param_bytes(&self) -> usize {
        self.params.iter().map(|(offset, size)| offset + size).max().unwrap_or(0)
    }
}

impl CudaModule {
    /// Loads the image for `gpu`'s architecture and looks up `entries`. With `info`, the tables that the host knows from
    /// the kernel's PTX, the loaded code's own tables and the size of its parameters must agree with them.
    ///
    /// # Errors
    /// [`DeviceError::Architecture`] where no image fits, [`DeviceError::Load`] for something that is no cubin or another
    /// one than `info` says, else the driver's words.
    pub fn load(
        gpu: &Arc<Gpu>,
        images: &[(Arch, &[u8])],
        entries: &[&str],
        info: Option<&KernelInfo>,
    ) -> Result<Self, DeviceError> {
        let Some((_, cubin)) = images.iter().find(|(arch, _)| Some(*arch) == gpu.info.arch()) else {
            let (major, minor) = gpu.info.compute_capability;
            let given: Vec<_> = images.iter().map(|(arch, _)| arch.name()).collect();
            return Err(DeviceError::Architecture {
                device: format!("{} (compute capability {major}.{minor})", gpu.info.name),
                given: if given.is_empty() { "nothing".into() } else { given.join(", ") },
                allowed: gpu.info.allowed(),
            });
        };
        check_elf(cubin).map_err(|what| DeviceError::Load(format!("not a cubin: {what}")))?;
        let api = gpu.enter()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a valid out-pointer and a complete image.
        gpu.check("cuModuleLoadData", unsafe { (api.cuModuleLoadData)(&mut handle, cubin.as_ptr().cast()) })?;
        let mut loaded = Loaded { gpu: Arc::clone(gpu), handle, functions: BTreeMap::new() };
        for entry in entries {
            let function = loaded.look_up(entry)?;
            if let Some(info) = info {
                check_params(&function, info)?;
            }
            loaded.functions.insert(entry.to_string(), function);
        }
        if let Some(info) = info {
            loaded.check_tables(info)?;
        }
        Ok(CudaModule(Arc::new(loaded)))
    }

    /// An entry function that [`CudaModule::load`] looked up.
    pub fn function(&self, entry: &str) -> Option<&Function> {
        self.0.functions.get(entry)
    }

    /// The GPU that it is loaded on.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.0.gpu
    }
}

impl Loaded {
    fn look_up(&self, entry: &str) -> Result<Function, DeviceError> {
        let api = self.gpu.enter()?;
        let name = CString::new(entry).map_err(|_| DeviceError::Load(format!("`{entry}` contains NUL")))?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a valid out-pointer, a live module and a C string.
        let status = unsafe { (api.cuModuleGetFunction)(&mut handle, self.handle, name.as_ptr()) };
        self.gpu.check("cuModuleGetFunction", status)?;
        let attribute = |attribute: Attribute| {
            let mut value = 0;
            // SAFETY: a valid out-pointer and a live function.
            let status = unsafe { (api.cuFuncGetAttribute)(&mut value, attribute, handle) };
            self.gpu.check("cuFuncGetAttribute", status).map(|()| value.max(0) as u32)
        };
        let mut params = Vec::new();
        let (mut offset, mut size) = (0usize, 0usize);
        // SAFETY: valid out-pointers and a live function; an index past the last parameter is an error that ends the loop.
        while unsafe { (api.cuFuncGetParamInfo)(handle, params.len(), &mut offset, &mut size) } == 0 {
            params.push((offset, size));
        }
        // The driver counts from where the parameter bank begins, which is not aligned to a tensor map's 128 bytes: a
        // struct of such alignment then starts at 112. A parameter block starts with the first parameter.
        let first = params.first().map_or(0, |(offset, _)| *offset);
        params.iter_mut().for_each(|(offset, _)| *offset = offset.saturating_sub(first));
        Ok(Function {
            handle,
            name: entry.to_string(),
            params,
            registers: attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            static_smem: attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            local_bytes: attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            max_threads: attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        })
    }

    /// The loaded code's own tables against those of the PTX that it should come from.
    fn check_tables(&self, info: &KernelInfo) -> Result<(), DeviceError> {
        let load = |what: String| DeviceError::Load(format!("{what}; rebuild the kernel"));
        let mut failed = None;
        let own = kernel_info::read(|table| {
            // Not asked for in vain: tools that watch the driver report every refusal.
            if table == "kinfo_tmem" && info.tmem.is_empty() {
                return Err(KernelInfoError::Missing { table });
            }
            self.global(table).map_err(|error| {
                failed = Some(error);
                KernelInfoError::Missing { table }
            })
        });
        match (own, failed) {
            (Ok(own), _) if own == *info => Ok(()),
            (Ok(_), _) => Err(load("the cubin's tables are not those of its PTX".into())),
            (Err(error), Some(cause)) => Err(load(format!("{error} ({cause})"))),
            (Err(error), None) => Err(load(error.to_string())),
        }
    }

    /// The bytes of a global variable.
    fn global(&self, name: &str) -> Result<Vec<u8>, DeviceError> {
        let api = self.gpu.enter()?;
        let c_name = CString::new(name).map_err(|_| DeviceError::Load(format!("`{name}` contains NUL")))?;
        let (mut address, mut size, stream) = (0, 0usize, std::ptr::null_mut());
        // SAFETY: valid out-pointers, a live module and a C string.
        let status =
            unsafe { (api.cuModuleGetGlobal_v2)(&mut address, &mut size, self.handle, c_name.as_ptr()) };
        self.gpu.check("cuModuleGetGlobal", status)?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the variable has `size` bytes, and so has the buffer; the default stream is waited for.
        unsafe {
            let status = (api.cuMemcpyDtoHAsync_v2)(bytes.as_mut_ptr().cast(), address, size, stream);
            self.gpu.check("cuMemcpyDtoHAsync", status)?;
            self.gpu.check("cuStreamSynchronize", (api.cuStreamSynchronize)(stream))?;
        }
        Ok(bytes)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if let Ok(api) = self.gpu.enter() {
            // SAFETY: loaded once, unloaded only here; its functions are reached through `self` only.
            unsafe { (api.cuModuleUnload)(self.handle) };
        }
    }
}

/// The compiled function takes one struct as large as the table of its fields, up to padding at the end.
fn check_params(function: &Function, info: &KernelInfo) -> Result<(), DeviceError> {
    /// The largest alignment of a parameter struct: a tensor map's.
    const MOST_PADDING: usize = 127;
    let end = info.params.iter().map(|p| (p.offset + p.bytes) as usize).max().unwrap_or(0);
    let has = |what: String| {
        let name = &function.name;
        Err(DeviceError::Load(format!("{name} takes {what}, its table says {end} bytes; rebuild the kernel")))
    };
    match function.params.as_slice() {
        [(0, size)] if (end..=end + MOST_PADDING).contains(size) => Ok(()),
        [(_, size)] => has(format!("a parameter of {size} bytes")),
        more => has(format!("{} parameters", more.len())),
    }
}

/// Whether `image` is a complete 64-bit ELF file for NVIDIA GPUs: every header and section lies inside.
fn check_elf(image: &[u8]) -> Result<(), &'static str> {
    /// ELF's number for CUDA.
    const EM_CUDA: u64 = 190;
    /// Section without bytes in the file.
    const SHT_NOBITS: u64 = 8;
    let number = |at: usize, bytes: usize| {
        let field = image.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    let inside =
        |start: u64, bytes: u64| start.checked_add(bytes).is_some_and(|end| end <= image.len() as u64);
    if !image.starts_with(b"\x7fELF\x02\x01") {
        return Err("it is no 64-bit ELF file");
    }
    let short = "the file ends in its header";
    if number(18, 2).ok_or(short)? != EM_CUDA {
        return Err("it is an ELF file for another machine than a GPU");
    }
    let truncated = "the file is truncated";
    for (table, entry_bytes, count) in [(32, 54, 56), (40, 58, 60)] {
        let start = number(table, 8).ok_or(short)?;
        let bytes = number(entry_bytes, 2).ok_or(short)? * number(count, 2).ok_or(short)?;
        if !inside(start, bytes) {
            return Err(truncated);
        }
    }
    let (table, entry_bytes) = (number(40, 8).ok_or(short)?, number(58, 2).ok_or(short)?);
    for section in 0..number(60, 2).ok_or(short)? {
        let at = (table + section * entry_bytes) as usize;
        let (kind, start, bytes) = (number(at + 4, 4), number(at + 24, 8), number(at + 32, 8));
        match (kind, start, bytes) {
            (Some(SHT_NOBITS), Some(_), Some(_)) => {}
            (Some(_), Some(start), Some(bytes)) if inside(start, bytes) => {}
            _ => return Err(truncated),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, one section of 16 bytes, and its header.
    fn elf() -> Vec<u8> {
        let mut image = vec![0u8; 64 + 16 + 64];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        for (at, value) in [(18, 190u64), (40, 80), (58, 64), (60, 1)] {
            image[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
        }
        let section = 80;
        image[section + 4] = 1;
        image[section + 24] = 64;
        image[section + 32] = 16;
        image
    }

    #[test]
    fn only_complete_cubins_reach_the_driver() {
        assert_eq!(check_elf(&elf()), Ok(()));
        for len in 0..elf().len() {
            assert!(check_elf(&elf()[..len]).is_err(), "{len}");
        }
        assert!(check_elf(b".version 8.8\n").unwrap_err().contains("no 64-bit ELF"));
        let mut host = elf();
        host[18] = 62;
        assert!(check_elf(&host).unwrap_err().contains("another machine"));
        let mut long = elf();
        long[80 + 33] = 1;
        assert!(check_elf(&long).unwrap_err().contains("truncated"));
        long[80 + 4] = 8;
        assert_eq!(check_elf(&long), Ok(()));
    }

    #[test]
    fn parameters_are_held_against_the_table() {
        let function = |params: &[(usize, usize)]| Function {
            handle: std::ptr::null_mut(),
            name: "k".into(),
            params: params.to_vec(),
            registers: 0,
            static_smem: 0,
            local_bytes: 0,
            max_threads: 0,
        };
        let field = kernel_info::Param { name: "x".into(), offset: 512, bytes: 60 };
        let info =
            KernelInfo { roles: vec![], smem: vec![], tmem: vec![], barriers: vec![], params: vec![field] };
        assert_eq!(check_params(&function(&[(0, 640)]), &info), Ok(()));
        let text =
            |params: &[(usize, usize)]| check_params(&function(params), &info).unwrap_err().to_string();
        assert!(text(&[(0, 512)]).contains("a parameter of 512 bytes, its table says 572"));
        assert!(text(&[(0, 640), (640, 4)]).contains("2 parameters"));
    }
}
