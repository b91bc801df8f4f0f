//! Who there is. What each one supports, only its adapter knows: see `py/` and `docs/references.md`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::bridge::{Bridge, BridgedReference, Deadlines, Launch, SharedBridge};
use crate::error::RefError;

/// A reference by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name in tables and in `--refs`.
    pub id: &'static str,
    /// The adapter's file in `py/`.
    pub adapter: &'static str,
    /// What it calls.
    pub calls: &'static str,
}

const fn entry(id: &'static str, adapter: &'static str, calls: &'static str) -> Entry {
    Entry { id, adapter, calls }
}

/// All of them, in the order of tables.
pub const CATALOG: [Entry; 14] = [
    entry("torch-cudnn", "torch_sdpa.py", "PyTorch scaled_dot_product_attention, cuDNN backend"),
    entry(
        "torch-flash",
        "torch_sdpa.py",
        "PyTorch scaled_dot_product_attention, flash backend (FlashAttention-2)",
    ),
    entry(
        "torch-efficient",
        "torch_sdpa.py",
        "PyTorch scaled_dot_product_attention, memory-efficient backend",
    ),
    entry("torch-math", "torch_sdpa.py", "PyTorch scaled_dot_product_attention, unfused backend"),
    entry(
        "torch-flex",
        "torch_flex.py",
        "PyTorch flex_attention, compiled (a Triton kernel made by Inductor)",
    ),
    entry("fa3", "fa3.py", "FlashAttention-3: flash_attn_func, for few queries flash_attn_with_kvcache"),
    entry("fa4", "fa4.py", "FlashAttention-4: flash_attn.cute.flash_attn_func"),
    entry("cudnn-fe", "cudnn_fe.py", "cuDNN frontend: an SDPA graph of our own"),
    entry("flashinfer-trtllm", "flashinfer_refs.py", "FlashInfer, trtllm-gen kernels over paged K and V"),
    entry("flashinfer-cutlass", "flashinfer_refs.py", "FlashInfer ragged prefill, CUTLASS backend"),
    entry("flashinfer-cute-dsl", "flashinfer_refs.py", "FlashInfer ragged prefill, CuTe DSL backend"),
    entry("flashinfer-fa2", "flashinfer_refs.py", "FlashInfer ragged prefill or paged decode, FA2 backend"),
    entry("flashinfer-fa3", "flashinfer_refs.py", "FlashInfer ragged prefill, FA3 backend"),
    entry("triton", "triton_fwd.py", "a fused forward kernel in Triton, written for this repository"),
];

/// The entry called `id`.
pub fn find(id: &str) -> Option<&'static Entry> {
    CATALOG.iter().find(|entry| entry.id == id)
}

/// References on one device, by interpreter: libraries that do not bear each other live in environments of their own.
#[derive(Debug)]
pub struct Field {
    /// Interpreter where `own` has none.
    pub python: PathBuf,
    /// Interpreters of single references.
    pub own: BTreeMap<String, PathBuf>,
    /// See [`Launch::device`].
    pub device: Option<String>,
    /// See [`Launch::scratch`].
    pub scratch: PathBuf,
    /// How long answers may take.
    pub deadlines: Deadlines,
    bridges: BTreeMap<PathBuf, SharedBridge>,
}

impl Field {
    /// All references by one interpreter.
    pub fn new(python: impl Into<PathBuf>, device: Option<String>, scratch: impl Into<PathBuf>) -> Self {
        Field {
            python: python.into(),
            own: BTreeMap::new(),
            device,
            scratch: scratch.into(),
            deadlines: Deadlines::default(),
            bridges: BTreeMap::new(),
        }
    }

    /// The reference called `id`. Those of one interpreter share a child process, and thereby the tensors on the device.
    pub fn reference(&mut self, id: &str) -> Result<BridgedReference, RefError> {
        let python = self.own.get(id).unwrap_or(&self.python).clone();
        if let Some(bridge) = self.bridges.get(&python) {
            return Ok(BridgedReference::new(id, bridge));
        }
        let launch = Launch::python(&python, self.device.clone(), &self.scratch);
        let bridge = Bridge::new(launch, self.deadlines)?;
        self.bridges.insert(python, bridge.clone());
        Ok(BridgedReference::new(id, &bridge))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_adapters_exist() {
        for (i, entry) in CATALOG.iter().enumerate() {
            assert_eq!(find(entry.id), Some(&CATALOG[i]));
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("py").join(entry.adapter);
            assert!(path.exists(), "{} is missing", path.display());
        }
    }

    #[test]
    fn references_of_one_interpreter_share_a_child() {
        let mut field = Field::new("python3", None, std::env::temp_dir());
        field.own.insert("fa4".into(), "other".into());
        for id in ["fa3", "torch-flash", "fa4"] {
            field.reference(id).unwrap();
        }
        assert_eq!(field.bridges.len(), 2);
    }
}
