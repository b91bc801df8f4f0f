//! What can be wrong with a kernel: stable codes, one sentence each, and where it happened.

use serde::Serialize;

macro_rules! codes {
    ($($name:ident $code:literal $level:ident $text:literal)*) => {
        /// Stable fault codes. The level of each is data: `fault` fails a run, `strict` is reported and fails
        /// only under `--strict`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
        #[allow(missing_docs)]
        pub enum Code { $($name),* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$name),*];

            /// Stable text, e.g. `lease.tmem`.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $code),* }
            }

            /// Whether it fails a run by itself.
            pub fn level(self) -> Level {
                match self { $(Code::$name => Level::$level),* }
            }

            /// What the code means and what to do, for `ptx-emu explain`.
            pub fn explanation(self) -> &'static str {
                match self { $(Code::$name => $text),* }
            }
        }
    };
}

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Fails the run.
    Fault,
    /// What the manual asks and shipped kernels leave out: reported, fails only under `--strict`.
    Strict,
}

codes! {
    LeaseShared "lease.shared" Fault
        "Shared memory was touched while an asynchronous operation (a TMA copy or a matrix instruction) still held it, or an operation was issued onto memory that others still used. An operation holds its source and destination from its issue until its completion was observed (a successful mbarrier wait, a bulk wait_group) by the thread that touches them next, or by one that then handed over to it. Add the missing wait or hand-off, or arrive on the 'empty' barrier with tcgen05.commit instead of a plain arrive."
    RaceShared "race.shared" Fault
        "Two threads touch the same shared memory, one of them writes, and nothing in the program orders the two: this schedule happened to run them one after the other, another may not. Order comes from barriers only: an arrive (or bar) after the first access by the thread that made it, and a wait before the second by the thread that makes that. What one lane publishes does not cover its neighbours' accesses unless the warp met (bar.warp.sync) in between."
    RaceGlobal "race.global" Fault
        "Two threads or asynchronous operations touch the same global memory, one of them writes, and nothing in the program orders the two. Between CTAs only release and acquire order, at a scope of the GPU: data, then a release (or a fence and a relaxed atomic) on a flag; then an acquire of that flag (or a relaxed load and a fence), then the data. Within a CTA a barrier does. An atomic does not race with another whose scope reaches it."
    RaceLoad "race.load-in-flight" Fault
        "A bulk copy overwrites shared memory that an ordinary load may still be reading: no loaded register was used, and no fence executed, before the thread arrived on the barrier that frees the memory. The arrive may overtake the load; on an H200 a quarter of such loads return the new data. Use the values, or execute fence.proxy.async, before the arrive."
    StrictProxyOrder "strict.proxy-order" Strict
        "An ordinary access and a bulk copy touch the same memory; the hand-off between them is there, but no fence.proxy.async. The manual asks for the fence; shipped kernels leave it out before a copy that overwrites what was read (an H200 shows no error when the loaded values were used before the hand-off), and in global memory where a fence of the GPU stands in its place."
    ProxyFence "proxy.fence" Fault
        "Shared memory that ordinary stores (or cp.async) wrote is read by a matrix instruction or a bulk copy, and no thread of the CTA has executed fence.proxy.async since. The two go through different proxies; an H200 then reads old data. Let each writing thread execute fence.proxy.async.shared::cta after its stores, before the barrier that hands them over."
    LeaseTmem "lease.tmem" Fault
        "Tensor memory was touched while a matrix instruction, a tcgen05.ld or a tcgen05.st still held it, as far as the thread that touched it can know. Matrix results may be read after a tcgen05.commit's mbarrier phase was waited for; stored data may be read after tcgen05.wait::st of the storing warp and a hand-off; loaded cells may be overwritten after tcgen05.wait::ld."
    StrictLdUnwaited "strict.ld-unwaited" Strict
        "Tensor memory was overwritten after a tcgen05.ld whose registers were all consumed, but without tcgen05.wait::ld. The manual asks for the wait; shipped kernels (FlashAttention-4) rely on the register dependency."
    StrictTensorFence "strict.tcgen05-fence" Strict
        "Two threads use the same tensor memory, the hand-off between them is there, but not the tcgen05.fence around it. The manual asks for fence::before_thread_sync between the first thread's tcgen05 operations and its arrive (or bar), unless a tcgen05.commit hands over, which implies it; and for fence::after_thread_sync between the second thread's wait and its tcgen05 operations. Many shipped kernels leave the second out."
    StrictMbarrierInit "strict.mbarrier-init" Strict
        "An mbarrier is used by an asynchronous operation (a bulk copy or a commit that arrives on it) or by another CTA, and after its initialisation nothing was released to the cluster's scope. Inside the CTA a bar.sync is enough; beyond it execute fence.mbarrier_init.release.cluster after the last mbarrier.init, in the thread that initialises, before the barrier. A fence of the cluster's scope or wider, fence.proxy.async and a barrier.cluster.arrive that is not relaxed count as well. Older compilers leave it out where there is no cluster."
    StrictScope "strict.scope" Strict
        "Threads of two CTAs meet at an mbarrier, and the arrive or the wait has the scope of its own CTA, which is what it gets without a qualifier. The manual lets only operations whose scopes include both threads order them. Write .release.cluster on an arrive on another CTA's barrier, and .acquire.cluster on the wait for it. (Over global memory a scope that does not reach the other thread orders nothing, and is race.global.)"
    StrictMmaOrder "strict.mma-order" Strict
        "A matrix instruction relies on issue order with an earlier one that has another accumulator. The manual orders only instructions of one accumulator and shape; shipped kernels rely on issue order."
    StrictStLd "strict.st-ld" Strict
        "A warp loaded tensor memory that it had stored itself without tcgen05.wait::st in between."
    UninitBranch "uninit.branch" Fault
        "A branch or guard that decides a store, an asynchronous issue or an exit depends on an undefined value."
    UninitAddress "uninit.address" Fault
        "An address, coordinate, descriptor or tensor map holds undefined bytes."
    UninitBarrier "uninit.barrier" Fault
        "A barrier count, parity or lane mask is undefined."
    UninitAtomic "uninit.atomic" Fault
        "An atomic operation has an undefined operand or works on undefined memory."
    UninitOutput "uninit.output" Fault
        "At the end of the grid a byte of a declared output is undefined: nobody wrote it, or what was written was computed from undefined data (for instance P = 0 times a row of V that was never loaded)."
    BoundsGlobal "bounds.global" Fault
        "A global access lies outside every allocation."
    BoundsShared "bounds.shared" Fault
        "A shared-memory access lies outside the CTA's shared memory."
    BoundsOther "bounds.other" Fault
        "A parameter, local or generic address is outside its space."
    Align "align" Fault
        "An address is not a multiple of the access size, or of what the instruction demands."
    MbarrierUninit "mbarrier.uninit" Fault
        "An mbarrier operation on memory that holds no barrier: mbarrier.init is missing, or mbarrier.inval came before."
    MbarrierReinit "mbarrier.reinit" Fault
        "mbarrier.init on a live barrier. Use mbarrier.inval first."
    MbarrierCount "mbarrier.count" Fault
        "More arrivals than the phase expects (the hardware raises a launch failure)."
    MbarrierTx "mbarrier.tx" Fault
        "The transaction count left its range, or the bytes expected and delivered do not match."
    MbarrierReused "mbarrier.reused" Fault
        "Ordinary data was written over a live mbarrier. Use mbarrier.inval first."
    MbarrierLapped "mbarrier.lapped" Fault
        "A wait has a token that is two or more phases old. Only the parity is compared, so the wait blocks for, or takes, another phase. (Waits by parity do not say which phase they mean: that one may be overtaken is strict.mbarrier-phase, and where one was, the deadlock report remarks on it.)"
    StrictMbarrierPhase "strict.mbarrier-phase" Strict
        "A thread arrives on an mbarrier again, and nothing in the program tells it that the phase before is complete: under another schedule its arrival counts for that phase, which then completes too early or has one arrival too many. Before it arrives again a thread must have waited for the phase before (on this barrier, or on another whose arrivals come after such a wait). Likewise a wait by parity: unless something that completes the next phase comes after the wait, that phase may be complete first, and the parity is again that of the phase before."
    MbarrierRole "mbarrier.role" Fault
        "A warp whose role is not declared for this barrier arrived or waited on it."
    BarrierNamed "barrier.named" Fault
        "A named barrier (bar.sync) was used with an id above 15, a count that is not a multiple of the warp size, or different counts in one phase."
    TmemAlloc "tmem.alloc" Fault
        "tcgen05.alloc or dealloc broke a rule: 32, 64, 128, 256 or 512 columns, never more than the allocation before, not after relinquish_alloc_permit, dealloc with the address and size of an allocation."
    TmemLeak "tmem.leak" Fault
        "A CTA ended with tensor memory still allocated: tcgen05.dealloc is missing (on hardware the next CTA's allocation hangs)."
    TmemPair "tmem.pair" Fault
        "A tcgen05 instruction with .cta_group::2 needs both CTAs of a pair (two of a cluster whose ranks differ in bit 0): one warp of each for alloc, with the same number of columns."
    TmemBounds "tmem.bounds" Fault
        "Tensor memory outside the CTA's allocation was touched."
    TmemLane "tmem.lane" Fault
        "tcgen05.ld and st reach only the 32 lanes of the warp's own window, 32 × (warp index mod 4)."
    WgmmaRegisters "wgmma.registers" Fault
        "Registers of a wgmma were touched out of order. Its accumulator (and A, where A is in registers) belongs to the matrix unit from the issue until wgmma.wait_group covers its group: nothing may read or write D, or overwrite A, before. And wgmma.fence must stand between any other access to such registers and the next wgmma that uses them, and before the first wgmma of all."
    Descriptor "descriptor" Fault
        "A shared-memory descriptor or instruction descriptor is illegal."
    Tma "tma" Fault
        "A tensor map, box, coordinate or size breaks a rule of the tensor copy engine."
    Converge "converge" Fault
        "An .aligned or .sync instruction was not executed by all the lanes it names."
    SetMaxNReg "setmaxnreg" Fault
        "setmaxnreg with a count that is not a multiple of 8 in 24..256, or more registers than the CTA's pool holds."
    Exit "exit" Fault
        "A CTA ended while a bulk copy still reads its shared memory: cp.async.bulk.wait_group.read 0 is missing."
    ClusterEnded "cluster.ended" Fault
        "The shared memory of a CTA of the cluster was used after that CTA had ended, or it ended while an operation of another CTA was on its way there. Let every thread of the cluster arrive and wait at the cluster barrier after the last such access."
    ClusterBarrier "cluster.barrier" Fault
        "A thread arrived twice at the cluster barrier without waiting, or waited without having arrived. Each barrier.cluster.wait needs one barrier.cluster.arrive of the same thread before it."
    LaunchControl "launch.control" Fault
        "clusterlaunchcontrol: the first CTA of a cluster was asked for although nothing was cancelled, or another cluster was requested after it was seen that none was left. Branch on query_cancel.is_canceled and stop asking when it is false."
    Deadlock "deadlock" Fault
        "Nobody can move: every warp waits and no asynchronous operation is in flight."
    Trap "trap" Fault
        "The kernel executed trap."
    Launch "launch" Fault
        "The launch does not fit the kernel or the machine: parameter size, block size against .reqntid, shared memory above 227 KiB."
}

impl Code {
    /// Looks a code up by its text.
    pub fn parse(text: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|c| c.as_str() == text)
    }
}

/// Who did something, where and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Site {
    /// CTA index in the grid.
    pub cta: [u32; 3],
    /// Warp in the CTA.
    pub warp: u32,
    /// Lanes.
    pub lanes: u32,
    /// Role of the warp, from the annotations.
    pub role: Option<String>,
    /// Instruction index.
    pub pc: u32,
    /// Machine step.
    pub step: u64,
    /// What it did, in words.
    pub what: String,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Code.
    pub code: Code,
    /// One sentence.
    pub message: String,
    /// Just now.
    pub site: Option<Site>,
    /// The earlier access or operation it collides with.
    pub earlier: Option<Site>,
    /// The chain that would have ordered the two.
    pub missing: Option<String>,
    /// What to do.
    pub help: Option<String>,
    /// Further lines (each blocked party of a deadlock).
    pub notes: Vec<String>,
}

impl Fault {
    /// A finding without places.
    pub fn new(code: Code, message: impl Into<String>) -> Fault {
        Fault {
            code,
            message: message.into(),
            site: None,
            earlier: None,
            missing: None,
            help: None,
            notes: vec![],
        }
    }

    /// Adds the earlier site.
    pub fn earlier(mut self, s: Site) -> Fault {
        self.earlier = Some(s);
        self
    }

    /// Adds the missing edge.
    pub fn missing(mut self, m: impl Into<String>) -> Fault {
        self.missing = Some(m.into());
        self
    }

    /// Adds help.
    pub fn help(mut self, h: impl Into<String>) -> Fault {
        self.help = Some(h.into());
        self
    }
}
