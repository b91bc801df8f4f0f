//! Buffers, arguments, grid and expected outputs of a case. The same seed gives the same bytes on every machine.

use super::catalog::{Case, Problem, TileWalk};
use super::format::{Format, exp2i};
use super::params::Arg;
use super::reference::{self, Expected, MatrixUnit};

/// A device buffer: a row-major matrix.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// The parameter it is bound to.
    pub name: &'static str,
    /// Element format.
    pub format: Format,
    /// Rows.
    pub rows: usize,
    /// Elements per row, padding included.
    pub columns: usize,
    /// Contents; `None` for an output, which must arrive undefined.
    pub data: Option<Vec<u8>>,
}

impl Buffer {
    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.rows * self.columns * self.format.bytes()
    }
}

/// A buffer that the kernel promises to write, and what it must hold.
#[derive(Clone, Debug)]
pub struct Output {
    /// Parameter name.
    pub name: &'static str,
    /// Index of the buffer.
    pub buffer: usize,
    /// Expected values; may have fewer columns than the buffer, whose remaining columns are padding.
    pub expected: Expected,
}

impl Output {
    /// Byte ranges (offset, length) of the buffer that the kernel must write, one per row or one in all.
    pub fn written(&self, setup: &Setup) -> Vec<(usize, usize)> {
        let buffer = &setup.buffers[self.buffer];
        let size = buffer.format.bytes();
        if self.expected.columns == buffer.columns {
            return vec![(0, buffer.bytes())];
        }
        (0..buffer.rows).map(|row| (row * buffer.columns * size, self.expected.columns * size)).collect()
    }
}

/// All that a launch of a case needs except addresses.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Programs in x, y, z.
    pub grid: [u32; 3],
    /// Buffers.
    pub buffers: Vec<Buffer>,
    /// Arguments by parameter name; the scratch pointers are not among them.
    pub args: Vec<(&'static str, Arg)>,
    /// Outputs to judge.
    pub outputs: Vec<Output>,
}

impl Setup {
    /// The argument of parameter `name`, if the case has one.
    pub fn arg(&self, name: &str) -> Option<Arg> {
        self.args.iter().find(|(n, _)| *n == name).map(|&(_, arg)| arg)
    }

    /// Adds a buffer and binds it to the parameter of its name.
    fn bind(&mut self, parameter: &'static str, buffer: Buffer) -> usize {
        let index = self.buffers.len();
        self.buffers.push(buffer);
        self.args.push((parameter, Arg::Buffer(index)));
        index
    }

    /// Binds an input matrix and returns its values as stored.
    fn input(
        &mut self,
        name: &'static str,
        format: Format,
        rows: usize,
        columns: usize,
        random: &mut Random,
    ) -> Vec<f64> {
        let values: Vec<f64> = (0..rows * columns).map(|_| random.normal()).collect();
        let data = format.to_bytes(&values);
        let stored = format.from_bytes(&data);
        self.bind(name, Buffer { name, format, rows, columns, data: Some(data) });
        stored
    }

    /// Binds an output matrix.
    fn output(
        &mut self,
        name: &'static str,
        format: Format,
        rows: usize,
        columns: usize,
        expected: Expected,
    ) {
        let buffer = self.bind(name, Buffer { name, format, rows, columns, data: None });
        self.outputs.push(Output { name, buffer, expected });
    }

    /// Adds an i32 argument.
    fn size(&mut self, name: &'static str, value: usize) {
        self.args.push((name, Arg::I32(value as i32)));
    }
}

/// Builds the data of `case` and computes what must come out.
pub fn setup(case: &Case) -> Setup {
    let random = &mut Random::new(case.seed);
    let mut setup = Setup { grid: [1; 3], buffers: vec![], args: vec![], outputs: vec![] };
    match case.problem {
        Problem::Matmul { m, n, k } => matmul(&mut setup, case, m, n, k, random),
        Problem::GatherAdd { rows, table } => gather_add(&mut setup, case, rows, table, random),
        Problem::Softmax { rows, n, stride } => softmax(&mut setup, rows, n, stride, random),
        Problem::Attention { heads, s, d, causal } => {
            attention(&mut setup, case, heads, s, d, causal, random)
        }
    }
    setup
}

/// Pointer kernels and descriptor kernels call the same matrix `a_ptr` and `a_desc`; both names are bound.
fn matmul(setup: &mut Setup, case: &Case, m: usize, n: usize, k: usize, random: &mut Random) {
    let mut a = setup.input("a_desc", case.input, m, k, random);
    let mut b = setup.input("b_desc", case.input, n, k, random);
    let scaled = case.kernel == "matmul_mxfp8";
    if scaled {
        block_scales(setup, "a_scale_ptr", &mut a, m, k, random);
        block_scales(setup, "b_scale_ptr", &mut b, n, k, random);
    }
    let unit = match case.input {
        Format::E4m3 if scaled => MatrixUnit::MXF8,
        Format::E4m3 => MatrixUnit::F8,
        Format::F32 => {
            // The tf32 unit ignores the low 13 bits.
            a.iter_mut().chain(&mut b).for_each(|x| *x = truncate_to_tf32(*x));
            MatrixUnit::TF32
        }
        Format::Bf16 | Format::F16 => MatrixUnit::F16,
    };
    let expected = reference::matmul(&a, &b, [m, n, k], unit, case.output);
    setup.output("c_desc", case.output, m, n, expected);
    for (descriptor, pointer) in [("a_desc", "a_ptr"), ("b_desc", "b_ptr"), ("c_desc", "c_ptr")] {
        if let Some(arg) = setup.arg(descriptor) {
            setup.args.push((pointer, arg));
        }
    }
    for (name, value) in [("M", m), ("N", n), ("K", k)] {
        setup.size(name, value);
    }
    let (tiles_m, tiles_n) = (m.div_ceil(case.tile.0) as u32, n.div_ceil(case.tile.1) as u32);
    setup.grid = match case.walk {
        TileWalk::Linear => [tiles_m * tiles_n, 1, 1],
        TileWalk::TwoDimensional => [tiles_m, tiles_n, 1],
        TileWalk::Persistent(programs) => [programs, 1, 1],
    };
}

/// Binds one ue8m0 factor, 2^-6 to 2^6, for 32 elements of a row, and multiplies the elements by them.
fn block_scales(
    setup: &mut Setup,
    name: &'static str,
    values: &mut [f64],
    rows: usize,
    k: usize,
    random: &mut Random,
) {
    const BLOCK: usize = 32;
    let exponents: Vec<i32> = (0..rows * k / BLOCK).map(|_| (random.bits() % 13) as i32 - 6).collect();
    values.chunks_mut(BLOCK).zip(&exponents).for_each(|(v, &e)| v.iter_mut().for_each(|x| *x *= exp2i(e)));
    let data = exponents.iter().map(|e| (e + 127) as u8).collect();
    // Bytes: the format only says how wide they are.
    setup.bind(name, Buffer { name, format: Format::E4m3, rows, columns: k / BLOCK, data: Some(data) });
}

/// The kernel reads whole tiles of the index, so it is as long as they are; the rows beyond the last go nowhere.
fn gather_add(setup: &mut Setup, case: &Case, rows: usize, table: usize, random: &mut Random) {
    const COLUMNS: usize = 64;
    let x = setup.input("x_desc", Format::F32, rows, COLUMNS, random);
    let t = setup.input("table_desc", Format::F32, table, COLUMNS, random);
    let tiles = rows.div_ceil(case.tile.0);
    let index: Vec<usize> = (0..tiles * case.tile.0).map(|_| random.bits() as usize % table).collect();
    let words = index.iter().flat_map(|&i| (i as i32).to_le_bytes()).collect();
    // 32-bit integers: the format only says how wide they are.
    let buffer =
        Buffer { name: "index_ptr", format: Format::F32, rows: 1, columns: index.len(), data: Some(words) };
    setup.bind("index_ptr", buffer);
    let y = setup.input("y_desc", Format::F32, rows, COLUMNS, random);
    let expected = reference::gather_add(&x, &t, &index, &y, COLUMNS);
    setup.outputs.push(Output { name: "y_desc", buffer: setup.buffers.len() - 1, expected });
    setup.grid = [tiles as u32, 1, 1];
}

fn softmax(setup: &mut Setup, rows: usize, n: usize, stride: usize, random: &mut Random) {
    let padded = setup.input("x_ptr", Format::F32, rows, stride, random);
    let x: Vec<f64> = padded.chunks(stride).flat_map(|row| &row[..n]).copied().collect();
    setup.output("y_ptr", Format::F32, rows, stride, reference::softmax(&x, n));
    setup.size("stride", stride);
    setup.size("n", n);
    setup.grid = [rows as u32, 1, 1];
}

fn attention(
    setup: &mut Setup,
    case: &Case,
    heads: usize,
    s: usize,
    d: usize,
    causal: bool,
    random: &mut Random,
) {
    let rows = heads * s;
    let q = setup.input("q_desc", case.input, rows, d, random);
    let k = setup.input("k_desc", case.input, rows, d, random);
    let v = setup.input("v_desc", case.input, rows, d, random);
    let sm_scale = (1.0 / (d as f64).sqrt()) as f32;
    let problem = reference::Attention {
        heads,
        s,
        d,
        causal,
        sm_scale: f64::from(sm_scale),
        tile: case.tile,
        format: case.output,
    };
    let (o, lse) = reference::attention(&q, &k, &v, &problem);
    setup.output("o_desc", case.output, rows, d, o);
    setup.output("lse_ptr", Format::F32, heads, s, lse);
    setup.args.push(("sm_scale", Arg::F32(sm_scale)));
    setup.size("S", s);
    setup.grid = [(s / case.tile.0) as u32, heads as u32, 1];
}

/// Clears the low 13 bits of an f32's encoding.
fn truncate_to_tf32(x: f64) -> f64 {
    Format::F32.decode(Format::F32.encode(x) & !0x1fff)
}

/// A generator of nearly normal numbers that needs no library function, hence no platform's rounding.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Seeds the generator.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits (SplitMix64: Steele, Lea, Flood 2014).
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Mean 0, variance 1: the sum of twelve uniform 32-bit numbers (Irwin–Hall), exact in f64.
    pub fn normal(&mut self) -> f64 {
        let sum: u64 = (0..6).map(|_| self.bits()).map(|bits| (bits >> 32) + (bits & 0xffff_ffff)).sum();
        sum as f64 * exp2i(-32) - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_normal_enough_and_reproducible() {
        let mut random = Random::new(1);
        let values: Vec<f64> = (0..100_000).map(|_| random.normal()).collect();
        let mean = values.iter().sum::<f64>() / 1e5;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e5;
        // Standard errors are 0.003 and 0.0045.
        assert!(mean.abs() < 0.015 && (variance - 1.0).abs() < 0.025, "mean {mean}, variance {variance}");
        // SplitMix64's published first output for seed 0.
        assert_eq!(Random::new(0).bits(), 0xe220_a839_7b1d_cdaf);
    }
}
