//! What `fa4-gpu` does: small kernels (`cuda/probes/launch.cu`) whose results are known.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fa4_host::cuda::{CudaDevice, CudaModule, Gpu, gpus};
use fa4_host::device::{Device, KernelLaunch};
use fa4_host::error::DeviceError;
use fa4_host::params::{TENSOR_MAP_BYTES, pack};
use fa4_host::tensor_map::{Fill, Swizzle, TensorMapArgs};
use fa4_kernels::arch::Arch;
use fa4_kernels::compile::{Artifact, Builder, CUDA_FOLDER, Job};
use fa4_kernels::kernel_info::{self, KernelInfo};
use fa4_spec::problem::DType;

use super::Failure;

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Failure { code: if error.is_environment() { 3 } else { 1 }, text: error.to_string() }
    }
}

fn wrong(text: String) -> Failure {
    Failure { text, code: 1 }
}

/// One line per GPU.
pub fn list() -> Result<(), Failure> {
    for gpu in gpus()? {
        println!("{gpu}");
    }
    Ok(())
}

const COPY: &str = "probe_copy";

/// The probes, compiled for every architecture.
struct Probes {
    artifact: Artifact,
    info: KernelInfo,
}

impl Probes {
    fn compile() -> Result<Self, Failure> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let environment = |text: String| Failure { text, code: 3 };
        let builder = Builder::open(&root).map_err(|e| environment(e.to_string()))?;
        let job = Job {
            name: "probes/launch".into(),
            source: root.join(CUDA_FOLDER).join("probes/launch.cu"),
            defines: Vec::new(),
            entries: vec![COPY.into()],
            archs: Arch::ALL.to_vec(),
        };
        let artifact = builder.build(&job).map_err(|e| environment(e.to_string()))?;
        let info = kernel_info::parse(&artifact.images[0].ptx).map_err(|e| wrong(e.to_string()))?;
        Ok(Probes { artifact, info })
    }

    fn images(&self) -> Vec<(Arch, &[u8])> {
        self.artifact.images.iter().map(|image| (image.arch, image.cubin.as_slice())).collect()
    }

    fn load(&self, gpu: &Arc<Gpu>) -> Result<CudaModule, DeviceError> {
        CudaModule::load(gpu, &self.images(), &[COPY], Some(&self.info))
    }
}

/// A tensor (batch, seqlen, head, 128) in the layout of attention's inputs, and a copy of it.
struct Copy {
    batch: u64,
    seqlen: u64,
    heads: u64,
    data: Vec<u8>,
    src: u64,
    dst: u64,
    stamps: u64,
}

const HEAD_DIM: u64 = 128;
const BOX_ROWS: u64 = 128;

impl Copy {
    fn new(
        device: &mut CudaDevice,
        (batch, seqlen, heads): (u64, u64, u64),
        seed: u64,
    ) -> Result<Self, DeviceError> {
        let bytes = batch * seqlen * heads * HEAD_DIM * 2;
        // Any pattern in which no two rows are alike.
        let data: Vec<u8> = (0..bytes).map(|i| ((i * 2_654_435_761 + seed * 97) >> 11) as u8).collect();
        let src = device.alloc("src", bytes)?;
        device.write(src, &data)?;
        let dst = device.alloc("dst", bytes)?;
        let stamps = device.alloc("stamps", 4 * seqlen.div_ceil(BOX_ROWS) * heads * batch)?;
        Ok(Copy { batch, seqlen, heads, data, src, dst, stamps })
    }

    fn grid(&self) -> [u32; 3] {
        [self.seqlen.div_ceil(BOX_ROWS) as u32, self.heads as u32, self.batch as u32]
    }

    fn map(&self, address: u64) -> TensorMapArgs {
        let row = HEAD_DIM * 2;
        TensorMapArgs {
            dtype: DType::Bf16,
            address,
            dims: [HEAD_DIM, self.seqlen, self.heads, self.batch],
            strides_bytes: [self.heads * row, row, self.seqlen * self.heads * row],
            box_dims: [64, BOX_ROWS as u32, 1, 1],
            swizzle: Swizzle::B128,
            fill: Fill::Zero,
        }
    }

    fn launch<'a>(
        &self,
        device: &mut CudaDevice,
        probes: &'a Probes,
        module: &'a CudaModule,
        (cluster, salt): (u32, u32),
    ) -> Result<KernelLaunch<'a, CudaModule>, Failure> {
        let mut encode = |address| device.encode_tensor_map(&self.map(address));
        let maps: [[u8; TENSOR_MAP_BYTES]; 2] = [encode(self.src)?, encode(self.dst)?];
        let fields = [
            ("src_map", maps[0].to_vec()),
            ("dst_map", maps[1].to_vec()),
            ("stamps", self.stamps.to_le_bytes().into()),
            ("salt", salt.to_le_bytes().into()),
            ("halves", 2u32.to_le_bytes().into()),
        ];
        let params = pack(COPY, &probes.info.params, &fields).map_err(|e| wrong(e.to_string()))?;
        Ok(KernelLaunch {
            module,
            entry: COPY,
            info: &probes.info,
            grid: self.grid(),
            block: [32, 1, 1],
            cluster: [cluster, 1, 1],
            params,
            outputs: Vec::new(),
        })
    }

    /// The copy equals its source, and every CTA left its stamp.
    fn check(&self, device: &mut CudaDevice, (cluster, salt): (u32, u32), what: &str) -> Result<(), Failure> {
        device.sync()?;
        let copy = device.read(self.dst, self.data.len() as u64)?;
        if let Some(at) = copy.iter().zip(&self.data).position(|(a, b)| a != b) {
            return Err(wrong(format!(
                "{what}: byte {at} of the copy is {}, not {}",
                copy[at], self.data[at]
            )));
        }
        let [ctas, heads, batch] = self.grid();
        let stamps = device.read(self.stamps, u64::from(4 * ctas * heads * batch))?;
        for (cta, stamp) in stamps.chunks_exact(4).enumerate() {
            let (found, wanted) = (u32::from_le_bytes([stamp[0], stamp[1], stamp[2], stamp[3]]), {
                let rank = cta as u32 % ctas % cluster;
                rank << 16 | salt
            });
            if found != wanted {
                return Err(wrong(format!("{what}: CTA {cta} left {found:#x}, not {wanted:#x}")));
            }
        }
        println!("ok: {what}");
        Ok(())
    }
}

/// Runs what can be checked without breaking anything.
pub fn selftest(ordinal: u32) -> Result<(), Failure> {
    let gpu = Gpu::open(ordinal)?;
    println!("{}", gpu.info);
    let probes = Probes::compile()?;
    let module = probes.load(&gpu)?;
    let function = module.function(COPY).ok_or_else(|| wrong(format!("{COPY} was not looked up")))?;
    println!(
        "ok: module for {}, its tables and its {}-byte parameters are those of the PTX, {} registers",
        gpu.info.arch().map_or("?", Arch::name),
        function.param_bytes(),
        function.registers
    );
    let mut device = CudaDevice::on(&gpu)?.with_limit(Duration::from_secs(20));
    copies(&mut device, &probes, &module)?;
    graphs(&mut device, &probes, &module)?;
    errors(&mut device, &probes, &module)?;
    several(&gpu, &probes)?;
    Ok(())
}

/// Tensor copies with a ragged tail, without and with clusters.
fn copies(device: &mut CudaDevice, probes: &Probes, module: &CudaModule) -> Result<(), Failure> {
    for cluster in [1, 2, 4] {
        let copy = Copy::new(device, (2, 128 * 3 + 77, 3), u64::from(cluster))?;
        let how = (cluster, 0x2a00 + cluster);
        let launch = copy.launch(device, probes, module, how)?;
        let ms = device.time(|device| device.launch(&launch))?;
        let what = format!("tensor copy 2×461×3×128, cluster of {cluster}, {:.1} µs by events", ms * 1e3);
        copy.check(device, how, &what)?;
    }
    Ok(())
}

/// A captured launch replayed as it is, then with other tensors of other lengths.
fn graphs(device: &mut CudaDevice, probes: &Probes, module: &CudaModule) -> Result<(), Failure> {
    let first = Copy::new(device, (1, 256, 2), 5)?;
    let launch = first.launch(device, probes, module, (2, 1))?;
    let mut graph = device.capture(&launch)?;
    device.sync()?;
    if device.read(first.dst, 16)? != [0xff; 16] {
        return Err(wrong("graph: the launch ran while it was captured".into()));
    }
    device.replay(&graph)?;
    first.check(device, (2, 1), "graph: captured launch replayed")?;
    let second = Copy::new(device, (3, 500, 4), 6)?;
    let launch = second.launch(device, probes, module, (2, 2))?;
    device.update(&mut graph, &launch)?;
    device.replay(&graph)?;
    second.check(device, (2, 2), "graph: replayed with other tensors, lengths and grid")?;
    let launch = second.launch(device, probes, module, (1, 2))?;
    expect(
        "graph with another cluster",
        device.update(&mut graph, &launch),
        "allowed: the captured [2, 1, 1]",
    )
}

/// Failures that break nothing: each is an error that says what was wrong.
fn errors(device: &mut CudaDevice, probes: &Probes, module: &CudaModule) -> Result<(), Failure> {
    let gpu = Arc::clone(device.gpu());
    let (_, total) = gpu.memory()?;
    expect("twice the GPU's memory", device.alloc("huge", total * 2), "CUDA_ERROR_OUT_OF_MEMORY")?;
    let other: Vec<(Arch, &[u8])> =
        probes.images().into_iter().filter(|(arch, _)| Some(*arch) != gpu.info.arch()).collect();
    let load = |images: &[(Arch, &[u8])], info: Option<&KernelInfo>| {
        CudaModule::load(&gpu, images, &[COPY], info).map(|_| ())
    };
    expect("cubins of other architectures", load(&other, None), "the kernel was compiled for")?;
    if let (Some(arch), Some((_, cubin))) = (gpu.info.arch(), other.last()) {
        expect("a cubin passed off as this architecture's", load(&[(arch, cubin)], None), "CUDA_ERROR_")?;
        let own = probes.artifact.image(arch).map_or(&[][..], |image| &image.cubin);
        expect("half a cubin", load(&[(arch, &own[..own.len() / 2])], None), "not a cubin")?;
        let mut stale = probes.info.clone();
        stale.params[3].name = "pepper".into();
        expect("tables of another version", load(&[(arch, own)], Some(&stale)), "not those of its PTX")?;
        stale.params[4].offset += 256;
        expect("parameters of another version", load(&[(arch, own)], Some(&stale)), "rebuild the kernel")?;
        let missing = CudaModule::load(&gpu, &[(arch, own)], &["no_such_entry"], None).map(|_| ());
        expect("an entry that does not exist", missing, "CUDA_ERROR_NOT_FOUND")?;
    }
    let copy = Copy::new(device, (1, 128, 1), 1)?;
    let mut map = copy.map(copy.src);
    map.strides_bytes[0] = 24;
    expect(
        "a tensor map with strides of 24 bytes",
        device.encode_tensor_map(&map),
        "CUDA_ERROR_INVALID_VALUE",
    )?;
    let good = copy.launch(device, probes, module, (1, 0))?;
    let mut launch = good.clone();
    launch.params.truncate(64);
    expect("a short parameter block", device.launch(&launch), "parameter block is 64 bytes")?;
    let launch = KernelLaunch { block: [2048, 1, 1], ..good.clone() };
    expect("2048 threads", device.launch(&launch), "allowed: 1 to")?;
    expect("a read past the end", device.read(copy.dst, 1 << 20), "end outside the allocation")?;
    expect("a write to nowhere", device.write(64, &[0; 4]), "in no allocation")?;
    expect("a GPU that does not exist", Gpu::open(4096), "there is no GPU 4096")?;
    device.launch(&good)?;
    copy.check(device, (1, 0), "the device works after all of these")
}

/// Every other GPU of the machine runs the same copy.
fn several(first: &Arc<Gpu>, probes: &Probes) -> Result<(), Failure> {
    for info in gpus()?.into_iter().filter(|info| info.ordinal != first.info.ordinal) {
        let gpu = Gpu::open(info.ordinal)?;
        let module = probes.load(&gpu)?;
        let mut device = CudaDevice::on(&gpu)?.with_limit(Duration::from_secs(20));
        let copy = Copy::new(&mut device, (1, 1000, 2), 9)?;
        let launch = copy.launch(&mut device, probes, &module, (1, 3))?;
        device.launch(&launch)?;
        copy.check(&mut device, (1, 3), &format!("tensor copy on GPU {}", info.ordinal))?;
    }
    Ok(())
}

fn expect<T>(what: &str, result: Result<T, DeviceError>, text: &str) -> Result<(), Failure> {
    match result {
        Ok(_) => Err(wrong(format!("{what}: no error"))),
        Err(error) if error.to_string().contains(text) => {
            println!("ok: {what}: {error}");
            Ok(())
        }
        Err(error) => Err(wrong(format!("{what}: `{error}` does not say `{text}`"))),
    }
}

/// A kernel that fails.
#[derive(Clone, Copy)]
pub enum Broken {
    IllegalAddress,
    Trap,
    Hang,
}

impl Broken {
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "illegal-address" => Some(Broken::IllegalAddress),
            "trap" => Some(Broken::Trap),
            "hang" => Some(Broken::Hang),
            _ => None,
        }
    }
}

/// Runs a broken kernel and reports what the host says; ends with exit code 1 where it says it.
pub fn break_on_purpose(kind: Broken, ordinal: u32) -> Result<(), Failure> {
    let gpu = Gpu::open(ordinal)?;
    let probes = Probes::compile()?;
    let entry = match kind {
        Broken::IllegalAddress => "probe_illegal_address",
        Broken::Trap => "probe_trap",
        Broken::Hang => "probe_hang",
    };
    let module = CudaModule::load(&gpu, &probes.images(), &[entry], None)?;
    let mut device = CudaDevice::on(&gpu)?.with_limit(Duration::from_secs(2));
    let flag = device.alloc("flag", 4)?;
    let params = match kind {
        // An address that no allocation of this process covers.
        Broken::IllegalAddress => (1u64 << 50).to_le_bytes().to_vec(),
        Broken::Trap => Vec::new(),
        Broken::Hang => flag.to_le_bytes().to_vec(),
    };
    let launch = KernelLaunch {
        module: &module,
        entry,
        info: &probes.info,
        grid: [1, 1, 1],
        block: [1, 1, 1],
        cluster: [1, 1, 1],
        params,
        outputs: Vec::new(),
    };
    device.launch(&launch)?;
    let first = device.sync();
    println!(
        "then: {}",
        device.alloc("more", 4).err().map_or("no error".to_string(), |error| error.to_string())
    );
    Ok(first?)
}
