//! NVRTC, opened at run time from the toolchain's own folder.
//!
//! The library is opened by absolute path and its functions are bound one by one. Going through a binding crate
//! would open "libnvrtc.so" by name first, and so take whatever CUDA the system has instead of the pinned one
//! (docs/decisions/0003-nvrtc-by-path.md).
//!
//! This module is the only one in the crate that may use `unsafe`. The argument, once for all calls: the
//! signatures below are those of `nvrtc.h` (unchanged since CUDA 11.1); function pointers are copied out of the
//! library and live beside the `Library` that keeps it mapped; strings passed in are NUL-terminated and outlive the
//! call, buffers are allocated with the size that NVRTC itself reports; programs are destroyed by `Drop`, once.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use libloading::Library;

use crate::toolchain::{Toolchain, Version};

type Program = *mut c_void;
type Status = c_int;
type GetSize = unsafe extern "C" fn(Program, *mut usize) -> Status;
type GetBytes = unsafe extern "C" fn(Program, *mut c_char) -> Status;

/// `nvrtcResult::NVRTC_SUCCESS`.
const SUCCESS: Status = 0;
/// `nvrtcResult::NVRTC_ERROR_COMPILATION`: the log says what is wrong with the source.
const ERROR_COMPILATION: Status = 6;

/// An opened NVRTC. Calls on different programs may run in parallel (NVRTC's own promise).
pub struct Nvrtc {
    create_program: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    compile_program: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status,
    destroy_program: unsafe extern "C" fn(*mut Program) -> Status,
    get_error_string: unsafe extern "C" fn(Status) -> *const c_char,
    log: (GetSize, GetBytes),
    ptx: (GetSize, GetBytes),
    cubin: (GetSize, GetBytes),
    // Declared last, dropped last: the pointers above point into these.
    _nvrtc: Library,
    _builtins: Library,
}

/// What one compilation made.
#[derive(Debug)]
pub struct Compiled {
    /// PTX text.
    pub ptx: String,
    /// ELF image for the architecture of the options.
    pub cubin: Vec<u8>,
    /// Compiler's and assembler's messages.
    pub log: String,
}

/// Why NVRTC gave nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NvrtcError {
    /// The library or one of its functions is not there.
    #[error("cannot open {path}: {message}; run `cargo xtask setup`")]
    Open {
        /// The library.
        path: String,
        /// What the loader said.
        message: String,
    },
    /// The library is not of the version that its file name claims.
    #[error("{path} says that it is NVRTC {found}, not {expected}; run `cargo xtask setup`")]
    Version {
        /// The library.
        path: String,
        /// Version by the library's own word.
        found: Version,
        /// Version by the file name.
        expected: Version,
    },
    /// A source or an option holds a NUL byte.
    #[error("{0} holds a NUL byte, which the compiler cannot take")]
    Nul(String),
    /// The source is wrong; the log says where.
    #[error("compilation failed:\n{log}")]
    Compilation {
        /// The compiler's log.
        log: String,
        /// The PTX, if the compiler made it and the assembler refused it: the log then speaks of its lines.
        ptx: Option<String>,
    },
    /// Anything else that NVRTC reports.
    #[error("{call} failed: {message}\n{log}")]
    Call {
        /// The NVRTC function.
        call: &'static str,
        /// NVRTC's name for the status.
        message: String,
        /// The compiler's log, if there is one.
        log: String,
    },
}

impl Nvrtc {
    /// Opens the NVRTC of `toolchain`.
    ///
    /// # Errors
    /// [`NvrtcError::Open`] or [`NvrtcError::Version`].
    pub fn open(toolchain: &Toolchain) -> Result<Self, NvrtcError> {
        // Builtins first: an NVRTC without a run path (13.0) then finds them, already open under their own name.
        let builtins = open(toolchain.builtins())?;
        let library = open(toolchain.nvrtc())?;
        let path = toolchain.nvrtc().display().to_string();
        macro_rules! bind {
            ($name:literal) => {{
                // SAFETY: the pointer's type comes from the field that it is stored in; see the module's argument.
                let symbol = unsafe { library.get(concat!($name, "\0").as_bytes()) };
                *symbol.map_err(|e| NvrtcError::Open { path: path.clone(), message: e.to_string() })?
            }};
        }
        let version_of: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status = bind!("nvrtcVersion");
        let (mut major, mut minor): (c_int, c_int) = (0, 0);
        // SAFETY: two valid out-pointers.
        unsafe { version_of(&mut major, &mut minor) };
        let found = Version { major: major.unsigned_abs(), minor: minor.unsigned_abs() };
        if found != toolchain.version() {
            return Err(NvrtcError::Version { path, found, expected: toolchain.version() });
        }
        Ok(Self {
            create_program: bind!("nvrtcCreateProgram"),
            compile_program: bind!("nvrtcCompileProgram"),
            destroy_program: bind!("nvrtcDestroyProgram"),
            get_error_string: bind!("nvrtcGetErrorString"),
            log: (bind!("nvrtcGetProgramLogSize"), bind!("nvrtcGetProgramLog")),
            ptx: (bind!("nvrtcGetPTXSize"), bind!("nvrtcGetPTX")),
            cubin: (bind!("nvrtcGetCUBINSize"), bind!("nvrtcGetCUBIN")),
            _nvrtc: library,
            _builtins: builtins,
        })
    }

    /// Compiles `source`, called `name` in messages and line information, with `headers` (include name, text)
    /// served from memory.
    ///
    /// # Errors
    /// [`NvrtcError::Compilation`] with the log when the source is wrong; the others when NVRTC itself fails.
    pub fn compile(
        &self,
        name: &str,
        source: &str,
        headers: &[(String, String)],
        options: &[String],
    ) -> Result<Compiled, NvrtcError> {
        let name = c_string(name, "the source's name")?;
        let source = c_string(source, &format!("the source {}", name.to_string_lossy()))?;
        let header_names =
            headers.iter().map(|(name, _)| c_string(name, name)).collect::<Result<Vec<_>, _>>()?;
        let header_texts =
            headers.iter().map(|(name, text)| c_string(text, name)).collect::<Result<Vec<_>, _>>()?;
        let options = options.iter().map(|option| c_string(option, option)).collect::<Result<Vec<_>, _>>()?;
        let (name_pointers, text_pointers) = (pointers(&header_names), pointers(&header_texts));
        let option_pointers = pointers(&options);

        let mut program = OwnedProgram { nvrtc: self, program: ptr::null_mut() };
        // SAFETY: every string lives until the end of this function, after `program` is destroyed (declared later,
        // dropped earlier); both header arrays have the length given.
        let status = unsafe {
            (self.create_program)(
                &mut program.program,
                source.as_ptr(),
                name.as_ptr(),
                name_pointers.len() as c_int,
                text_pointers.as_ptr(),
                name_pointers.as_ptr(),
            )
        };
        self.check("nvrtcCreateProgram", status, String::new)?;
        // SAFETY: `program` was created above; the options array has the length given.
        let status = unsafe {
            (self.compile_program)(program.program, option_pointers.len() as c_int, option_pointers.as_ptr())
        };
        let log = text(program.bytes("nvrtcGetProgramLog", self.log)?);
        if status == ERROR_COMPILATION {
            let ptx = program.bytes("nvrtcGetPTX", self.ptx).map(text).ok().filter(|ptx| !ptx.is_empty());
            return Err(NvrtcError::Compilation { log, ptx });
        }
        self.check("nvrtcCompileProgram", status, || log.clone())?;
        let ptx = text(program.bytes("nvrtcGetPTX", self.ptx)?);
        let cubin = program.bytes("nvrtcGetCUBIN", self.cubin)?;
        Ok(Compiled { ptx, cubin, log })
    }

    fn check(&self, call: &'static str, status: Status, log: impl Fn() -> String) -> Result<(), NvrtcError> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: NVRTC answers any status with a static string.
        let message = unsafe { CStr::from_ptr((self.get_error_string)(status)) };
        Err(NvrtcError::Call { call, message: message.to_string_lossy().into_owned(), log: log() })
    }
}

struct OwnedProgram<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl OwnedProgram<'_> {
    fn bytes(&self, call: &'static str, (size_of, get): (GetSize, GetBytes)) -> Result<Vec<u8>, NvrtcError> {
        let mut size = 0usize;
        // SAFETY: a live program and a valid out-pointer.
        let status = unsafe { size_of(self.program, &mut size) };
        self.nvrtc.check(call, status, String::new)?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the buffer has the size that NVRTC asked for.
        let status = unsafe { get(self.program, bytes.as_mut_ptr().cast()) };
        self.nvrtc.check(call, status, String::new)?;
        Ok(bytes)
    }
}

impl Drop for OwnedProgram<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: created by this NVRTC, destroyed only here.
            unsafe { (self.nvrtc.destroy_program)(&mut self.program) };
        }
    }
}

fn open(path: &std::path::Path) -> Result<Library, NvrtcError> {
    // SAFETY: initialisers of NVIDIA's libraries run; they have no preconditions on the caller.
    unsafe { Library::new(path) }
        .map_err(|e| NvrtcError::Open { path: path.display().to_string(), message: e.to_string() })
}

fn c_string(text: &str, what: &str) -> Result<CString, NvrtcError> {
    CString::new(text).map_err(|_| NvrtcError::Nul(what.to_owned()))
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).collect()
}

/// NVRTC's texts end in a NUL that its sizes count.
fn text(mut bytes: Vec<u8>) -> String {
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
