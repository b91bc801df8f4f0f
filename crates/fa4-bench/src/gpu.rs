//! A GPU as a runner: our kernels through the launcher, the references through their child processes, readings by NVML.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fa4_gate::error::exit;
use fa4_host::cuda::nvml::Nvml;
use fa4_host::cuda::{CudaDevice, CudaGraph, CudaModule, Gpu, GpuInfo, gpus};
use fa4_host::device::{Device, KernelLaunch};
use fa4_host::error::{DeviceError, HostError};
use fa4_host::plan::{DEFAULT_TAU, LSE_BYTES, LseRef, TensorRef, Tensors, plan_row};
use fa4_kernels::arch::Arch;
use fa4_kernels::kernel_info::KernelInfo;
use fa4_kernels::manifest::Row;
use fa4_refs::RowAt;
use fa4_spec::tensor::Layout;
use fa4_spec::{AttnProblem, Case};

use crate::artifacts::{self, Artifacts};
use crate::cli::PackArgs;
use crate::env::{Build, Settings};
use crate::error::BenchError;
use crate::record::Status;
use crate::refs::RefField;
use crate::runner::{Answer, Contestant, Effort, Failure, Field, GROUPS, GpuRecord, Job, Lap, Mode, Runner};
use crate::telemetry::{Reading, Source, Telemetry};
use crate::tensors;
use crate::verify;
use crate::worker::workspace;

/// One contestant's copies may take this part of the GPU's memory.
const MEMORY_PART: u64 = 10;

/// The GPUs that a kernel of ours is compiled for.
///
/// # Errors
/// [`DeviceError::NoDevice`] in words.
pub fn machines() -> Result<Vec<GpuRecord>, DeviceError> {
    let all = gpus()?;
    let ours: Vec<GpuRecord> = all.iter().filter(|gpu| gpu.arch().is_some()).map(record).collect();
    if ours.is_empty() {
        let names: Vec<_> = all.iter().map(|gpu| gpu.name.as_str()).collect();
        let archs = Arch::ALL.map(Arch::name).join(", ");
        return Err(DeviceError::NoDevice(format!(
            "kernels are compiled for {archs}; here is {}",
            names.join(", ")
        )));
    }
    Ok(ours)
}

fn record(info: &GpuInfo) -> GpuRecord {
    let nvml = Nvml::open(info).ok();
    let of_cuda = format!("for CUDA {}.{}", info.driver.0, info.driver.1);
    GpuRecord {
        ordinal: info.ordinal,
        name: info.name.clone(),
        sms: info.sms,
        memory_bytes: info.memory_bytes,
        l2_bytes: info.l2_bytes,
        max_clock_mhz: info.max_clock_khz / 1000,
        driver: nvml.as_ref().and_then(Nvml::driver).unwrap_or(of_cuda),
        power_limit_w: nvml.as_ref().and_then(Nvml::power_limit_w),
    }
}

/// What the kernels of a run are built from.
///
/// # Errors
/// As [`artifacts::build`].
pub fn build(root: &Path, settings: &Settings) -> Result<Build, BenchError> {
    artifacts::build(root, settings)
}

/// `pack`.
///
/// # Errors
/// What the compiler or the file system says.
pub fn pack(args: &PackArgs) -> Result<u8, BenchError> {
    let archs: Vec<Arch> = match args.arch.as_deref() {
        None => Arch::ALL.to_vec(),
        Some(list) => {
            let parsed = list.split(',').map(|name| name.trim().parse());
            parsed.collect::<Result<_, String>>().map_err(|what| BenchError::Flag {
                flag: "--arch",
                value: list.into(),
                what,
            })?
        }
    };
    let count = artifacts::pack(&workspace(), &archs, &args.out)?;
    println!("{count} kernels in {}", args.out.display());
    Ok(exit::OK)
}

impl Source for Nvml {
    fn read(&mut self) -> Reading {
        let reading = Nvml::read(self);
        Reading {
            clock_mhz: reading.clock_mhz,
            power_w: reading.power_w,
            temperature_c: reading.temperature_c,
            throttled: reading.throttled.into_iter().map(String::from).collect(),
        }
    }
}

/// A kernel loaded on the GPU.
struct LoadedKernel {
    module: CudaModule,
    info: KernelInfo,
    hash: String,
}

/// A GPU.
pub struct GpuRunner {
    gpu: Arc<Gpu>,
    arch: Arch,
    record: GpuRecord,
    artifacts: Artifacts,
    loaded: BTreeMap<&'static str, LoadedKernel>,
    references: RefField,
    telemetry: Arc<Telemetry>,
    budget_s: f64,
}

impl GpuRunner {
    /// Opens GPU `ordinal`.
    ///
    /// # Errors
    /// No such GPU, no kernels for it.
    pub fn open(ordinal: u32, root: &Path, settings: &Settings) -> Result<Self, BenchError> {
        let gpu = Gpu::open(ordinal).map_err(BenchError::NoGpu)?;
        let arch = gpu.info.arch().ok_or_else(|| {
            BenchError::NoGpu(DeviceError::NoDevice(format!("no kernel is compiled for {}", gpu.info.name)))
        })?;
        let nvml = Nvml::open(&gpu.info);
        let visible = nvml.as_ref().ok().and_then(Nvml::uuid).unwrap_or_else(|| ordinal.to_string());
        let telemetry = match nvml {
            Ok(nvml) => Telemetry::of(Box::new(nvml)),
            Err(_) => Telemetry::none(),
        };
        Ok(GpuRunner {
            arch,
            record: record(&gpu.info),
            gpu,
            artifacts: Artifacts::open(root, settings)?,
            loaded: BTreeMap::new(),
            references: RefField::new(root, settings, Some(visible)),
            telemetry: Arc::new(telemetry),
            budget_s: settings.budget_s,
        })
    }

    fn load(&mut self, row: &'static Row) -> Result<(), Failure> {
        if self.loaded.contains_key(row.entry) {
            return Ok(());
        }
        let image = self.artifacts.image(row, self.arch);
        let image = image.map_err(|e| Failure::new(Status::Error, e.to_string()))?;
        let images = [(self.arch, image.cubin.as_slice())];
        let module = CudaModule::load(&self.gpu, &images, &[row.entry], Some(&image.info)).map_err(failed)?;
        self.loaded.insert(row.entry, LoadedKernel { module, info: image.info, hash: image.hash });
        Ok(())
    }
}

impl Runner for GpuRunner {
    fn gpu(&self) -> GpuRecord {
        self.record.clone()
    }

    fn route(&self, case: &Case) -> Result<String, Failure> {
        let variants = artifacts::variants(case, self.arch).map_err(refused)?;
        Ok(variants[0].entry.to_string())
    }

    fn artifact(&mut self, kernel: &str) -> Option<String> {
        let row = fa4_kernels::manifest::by_entry(kernel)?;
        // What keeps it from being loaded is said when it is to run.
        self.load(row).ok()?;
        self.loaded.get(kernel).map(|loaded| loaded.hash.clone())
    }

    fn field<'a>(&'a mut self, job: &Job<'a>) -> Result<Field<'a>, Failure> {
        let variants = artifacts::variants(job.case, self.arch).map_err(refused)?;
        for row in &variants {
            self.load(row)?;
        }
        let mut ours: Vec<Box<dyn Contestant + 'a>> = Vec::new();
        for (at, &row) in variants.iter().enumerate() {
            let id = if at == 0 { "ours".to_string() } else { row.entry.to_string() };
            let loaded = &self.loaded[row.entry];
            let made = job.stages.time("load", || OwnKernel::new(id, row, loaded, &self.gpu, job));
            ours.push(Box::new(made?));
        }
        Ok(Field { ours, references: self.references.ready(job) })
    }

    fn telemetry(&self) -> Arc<Telemetry> {
        Arc::clone(&self.telemetry)
    }

    fn effort(&self) -> Effort {
        Effort::within(self.budget_s)
    }

    fn memory_share(&self) -> u64 {
        self.record.memory_bytes / MEMORY_PART
    }
}

fn refused(error: HostError) -> Failure {
    match error {
        HostError::Device(error) => failed(error),
        error => Failure::unsupported(error.to_string()),
    }
}

fn failed(error: DeviceError) -> Failure {
    let status = match &error {
        DeviceError::Timeout(_) => Status::Timeout,
        DeviceError::OutOfMemory { .. } | DeviceError::Unsupported(_) => Status::Unsupported,
        _ => Status::Fault,
    };
    Failure::new(status, error.to_string())
}

/// One kernel of ours on its own copies of the tensors.
struct OwnKernel<'a> {
    id: String,
    entry: &'static str,
    device: CudaDevice,
    problem: AttnProblem,
    /// Rows of O that are judged; `None`: all.
    rows: Option<&'a [RowAt]>,
    launches: Vec<KernelLaunch<'a, CudaModule>>,
    outputs: Vec<(TensorRef, LseRef)>,
    graphs: Vec<CudaGraph>,
    /// The copy whose turn it is.
    next: usize,
}

impl<'a> OwnKernel<'a> {
    fn new(
        id: String,
        row: &'static Row,
        loaded: &'a LoadedKernel,
        gpu: &Arc<Gpu>,
        job: &Job<'a>,
    ) -> Result<Self, Failure> {
        let mut device = CudaDevice::on(gpu).map_err(failed)?.with_limit(job.limit);
        let p = &job.case.problem;
        let (mut launches, mut outputs) = (Vec::new(), Vec::new());
        for _ in 0..job.copies {
            let tensors = place(&mut device, job).map_err(failed)?;
            let tau = job.case.tau.unwrap_or(DEFAULT_TAU);
            let plan = plan_row(row, p, &tensors, tau).map_err(refused)?;
            let plan = plan.ok_or_else(|| Failure::unsupported("there is nothing to launch"))?;
            let params = plan.params_for(&loaded.info).map_err(refused)?;
            let params = params.to_bytes(row.entry, &loaded.info, |map| device.encode_tensor_map(map));
            launches.push(KernelLaunch {
                module: &loaded.module,
                entry: row.entry,
                info: &loaded.info,
                grid: plan.grid_on(device.sms()),
                block: [loaded.info.threads(), 1, 1],
                cluster: plan.cluster,
                params: params.map_err(refused)?,
                outputs: Vec::new(),
            });
            outputs.push((tensors.o, tensors.lse.expect("`place` wants one")));
        }
        let (problem, rows, graphs) = (p.clone(), job.rows, Vec::new());
        Ok(OwnKernel { id, entry: row.entry, device, problem, rows, launches, outputs, graphs, next: 0 })
    }

    fn launch(&mut self, mode: Mode) -> Result<(), DeviceError> {
        let at = self.next;
        self.next = (at + 1) % self.launches.len();
        match mode {
            Mode::Stream => self.device.launch(&self.launches[at]),
            Mode::Graph => self.device.replay(&self.graphs[at]),
        }
    }

    /// Reads every copy's output back; all must be of the same bits, since a kernel's arithmetic is fixed.
    fn read(&mut self) -> Result<Answer, Failure> {
        self.device.sync().map_err(failed)?;
        let mut first: Option<[Vec<u8>; 2]> = None;
        for (copy, (o, lse)) in self.outputs.iter().enumerate() {
            let images = download(&mut self.device, &self.problem, o, lse).map_err(failed)?;
            match &first {
                None => first = Some(images),
                Some(known) if *known == images => {}
                Some(_) => {
                    let what = format!(
                        "copy {copy} of the tensors gave other bits than copy 0, on the same inputs: a race"
                    );
                    return Err(Failure::new(Status::Fail, what));
                }
            }
        }
        let [o, lse] = first.ok_or_else(|| Failure::new(Status::Error, "no copy of the tensors"))?;
        Ok(self.answer(&o, &lse))
    }

    /// O's and the LSE's memory as an answer. A long problem's O is looked through where it lies and not made dense first.
    fn answer(&self, image: &[u8], lse: &[u8]) -> Answer {
        let p = &self.problem;
        let shape = [p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_v].map(|n| n as usize);
        let layout = &self.outputs[0].0.layout;
        let lse = lse.chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect();
        let (o, not_finite) = match self.rows {
            None => (tensors::gather(image, layout, shape), None),
            Some(rows) if *layout == Layout::bshd(shape) => {
                let row = |&row: &RowAt| tensors::row(image, layout, shape, row);
                (rows.iter().flat_map(row).collect(), tensors::first_not_finite(image, p.q_dtype))
            }
            Some(rows) => {
                let whole = tensors::gather(image, layout, shape);
                let image: Vec<u8> = whole.iter().flat_map(|bits| bits.to_le_bytes()).collect();
                (verify::gather(p, &whole, rows), tensors::first_not_finite(&image, p.q_dtype))
            }
        };
        Answer { o, lse, not_finite }
    }

    fn timed(&mut self, launches: u32, mode: Mode) -> Result<Lap, DeviceError> {
        let group = launches.div_ceil(GROUPS).max(1);
        let groups = launches.div_ceil(group);
        // The first launch after a rest meets a cold instruction cache.
        self.launch(mode)?;
        let mut marks = vec![self.device.mark()?];
        let start = Instant::now();
        for _ in 0..groups {
            for _ in 0..group {
                self.launch(mode)?;
            }
            marks.push(self.device.mark()?);
        }
        let host_us = start.elapsed().as_secs_f64() * 1e6 / f64::from(groups * group);
        self.device.sync()?;
        let us =
            marks.windows(2).map(|pair| Ok(f64::from(pair[1].ms_since(&pair[0])?) * 1e3 / f64::from(group)));
        Ok(Lap {
            us: us.collect::<Result<_, DeviceError>>()?,
            host_us: (mode == Mode::Stream).then_some(host_us),
        })
    }
}

/// Inputs in fresh memory; outputs arrive as NaN.
fn place(device: &mut CudaDevice, job: &Job<'_>) -> Result<Tensors, DeviceError> {
    let (p, inputs) = (&job.case.problem, job.inputs);
    let mut buffers = Vec::new();
    for (buffer, image) in inputs.buffers.iter().zip(job.images) {
        let address = device.alloc(buffer.name, image.len() as u64)?;
        device.write(address, image)?;
        buffers.push(address);
    }
    let o_shape = [p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_v].map(|n| n as usize);
    let o_bytes = inputs.o.extent_bytes(p.q_dtype.bytes(), o_shape);
    let o = TensorRef { buffer: device.alloc("O", o_bytes)?, layout: inputs.o };
    let lse_bytes = p.batch * p.num_heads_q * p.seqlen_q * LSE_BYTES;
    let lse = LseRef::dense(device.alloc("LSE", lse_bytes)?, p);
    let sinks = match &inputs.sinks {
        Some(sinks) => {
            let bytes: Vec<u8> = sinks.iter().flat_map(|x| x.to_le_bytes()).collect();
            let address = device.alloc("sinks", bytes.len() as u64)?;
            device.write(address, &bytes)?;
            Some(address)
        }
        None => None,
    };
    let at = |placed: &fa4_spec::qdist::Placed| TensorRef {
        buffer: buffers[placed.buffer],
        layout: placed.layout,
    };
    Ok(Tensors { q: at(&inputs.q), k: at(&inputs.k), v: at(&inputs.v), o, lse: Some(lse), sinks })
}

/// The memory of O and of the LSE.
fn download(
    device: &mut CudaDevice,
    p: &AttnProblem,
    o: &TensorRef,
    lse: &LseRef,
) -> Result<[Vec<u8>; 2], DeviceError> {
    let shape = [p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_v].map(|n| n as usize);
    let extent = o.layout.extent_bytes(p.q_dtype.bytes(), shape);
    let image = device.read(o.buffer, extent)?;
    let lse = device.read(lse.address, p.batch * p.num_heads_q * p.seqlen_q * LSE_BYTES)?;
    Ok([image, lse])
}

impl Contestant for OwnKernel<'_> {
    fn id(&self) -> &str {
        &self.id
    }

    fn route(&self) -> Option<String> {
        Some(self.entry.to_string())
    }

    fn run_once(&mut self) -> Result<Answer, Failure> {
        for _ in 0..self.launches.len() {
            self.launch(Mode::Stream).map_err(failed)?;
        }
        self.read()
    }

    fn leftover(&mut self) -> Result<Answer, Failure> {
        self.read()
    }

    fn time(&mut self, launches: u32, mode: Mode) -> Result<Lap, Failure> {
        if mode == Mode::Graph && self.graphs.is_empty() {
            for at in 0..self.launches.len() {
                let graph = self.device.capture(&self.launches[at]).map_err(failed)?;
                self.graphs.push(graph);
            }
        }
        self.timed(launches, mode).map_err(failed)
    }
}
