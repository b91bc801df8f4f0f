//! The mbarrier object: the 64-bit word as an H200 keeps it, and what every operation does to it.
//!
//! | bits | field |
//! |---|---|
//! | 63 | phase parity |
//! | 62:43 | −(pending arrivals) mod 2^20 |
//! | 42 | zero; a set bit faults at the next arrival |
//! | 41:21 | −(tx-count), 21-bit two's complement; tx-count = bytes expected − bytes completed |
//! | 20:1 | −(expected arrivals) mod 2^20, reloaded into pending when a phase completes |
//! | 0 | kept, never read |
//!
//! Layout, completion rule and faults are read off the silicon (179 recorded programs in the tests). While a
//! barrier is live, `ld.shared` does not see this word and `st.shared` does not disturb it; [`Mbarrier::inval`]
//! gives the word that the hardware writes back.

use thiserror::Error;

/// Field limit: counts and transaction operands are 20-bit.
pub const COUNT_LIMIT: u32 = 1 << 20;
/// Largest and smallest tx-count that the hardware holds without a fault.
pub const TX_MAX: i32 = 1 << 20;
/// See [`TX_MAX`].
pub const TX_MIN: i32 = -((1 << 20) - 1);

const BIT42: u64 = 1 << 42;

/// What a barrier held, for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarrierState {
    /// Number of completed phases since `init` (diagnostic; the hardware keeps only its parity).
    pub phase: u64,
    /// Arrivals still needed in this phase.
    pub pending: u32,
    /// Arrivals that the next phase will need.
    pub expected: u32,
    /// Bytes expected minus bytes completed in this phase.
    pub tx: i32,
}

impl std::fmt::Display for BarrierState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let BarrierState { phase, pending, expected, tx } = self;
        write!(f, "phase {phase}: {pending} of {expected} arrivals pending, tx-count {tx}")
    }
}

/// Why the hardware raises a launch failure on a barrier operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BarrierFault {
    /// More arrivals than the phase still needs.
    #[error(
        "arrival count {count} exceeds the pending count ({state}); the barrier's init count is too small, \
         it was never initialised, or a thread arrives twice in one phase"
    )]
    OverArrival {
        /// Count of this arrival.
        count: u32,
        /// The barrier before it.
        state: BarrierState,
    },
    /// A transaction operand that does not fit 20 bits.
    #[error(
        "transaction count {bytes} ({state}) is outside 0..=1048575; split the transfer over several barriers \
         or phases"
    )]
    TxOperand {
        /// The operand, read as signed.
        bytes: i32,
        /// The barrier before the operation.
        state: BarrierState,
    },
    /// The running tx-count left the range that the hardware can hold.
    #[error(
        "tx-count would become {tx} ({state}), outside -1048575..=1048576; expect_tx and complete_tx bytes of \
         one phase do not match"
    )]
    TxRange {
        /// The value it would take.
        tx: i32,
        /// The barrier before the operation.
        state: BarrierState,
    },
    /// The memory does not hold a barrier.
    #[error(
        "the word 0x{word:016x} is not an mbarrier object (bit 42 is set); initialise it with mbarrier.init"
    )]
    NotABarrier {
        /// The word.
        word: u64,
    },
}

/// An mbarrier object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mbarrier {
    word: u64,
    phase: u64,
}

/// The opaque state that arrive returns: the high half of the word before the arrival (the low half of the
/// hardware's token carries nothing).
pub type Token = u64;

impl Mbarrier {
    /// `mbarrier.init`. Like the hardware this never faults; [`Mbarrier::legal_count`] says whether the manual
    /// allows the count. (A count of 2^20 or more leaves its low bits and a wrong phase, as on silicon.)
    pub fn init(count: u32) -> Mbarrier {
        // The very sequence that ptxas emits, which also defines what an illegal count leaves behind.
        let neg = COUNT_LIMIT.wrapping_sub(count);
        Mbarrier::from_word(u64::from(neg.wrapping_shl(1)) | u64::from(neg.wrapping_shl(11)) << 32)
    }

    /// Whether `count` is within the manual's 1..=2^20−1.
    pub fn legal_count(count: u32) -> bool {
        (1..COUNT_LIMIT).contains(&count)
    }

    /// Takes up a word found in memory (an operation on a barrier that was never initialised, or that was
    /// invalidated, starts from whatever is there). The phase counter starts at the word's parity.
    pub fn from_word(word: u64) -> Mbarrier {
        Mbarrier { word, phase: word >> 63 }
    }

    /// The hardware word.
    pub fn word(&self) -> u64 {
        self.word
    }

    /// Phases completed since `init`.
    pub fn phase(&self) -> u64 {
        self.phase
    }

    /// Phase parity (bit 63).
    pub fn parity(&self) -> u32 {
        (self.word >> 63) as u32
    }

    /// Arrivals still needed in this phase.
    pub fn pending(&self) -> u32 {
        neg20(self.word >> 43)
    }

    /// Arrivals that the next phase will need.
    pub fn expected(&self) -> u32 {
        neg20(self.word >> 1)
    }

    /// Bytes expected minus bytes completed.
    pub fn tx(&self) -> i32 {
        let field = (self.word >> 21) as u32 & 0x1f_ffff;
        // Sign-extend 21 bits; -2^20 negates to the legal +2^20.
        -(((field << 11) as i32) >> 11)
    }

    /// Everything at once, for messages.
    pub fn state(&self) -> BarrierState {
        BarrierState { phase: self.phase, pending: self.pending(), expected: self.expected(), tx: self.tx() }
    }

    fn set_pending(&mut self, n: u32) {
        let neg = u64::from(n.wrapping_neg()) & 0xf_ffff;
        self.word = self.word & !(0xf_ffff << 43) | neg << 43;
    }

    fn set_expected(&mut self, n: u32) {
        let neg = u64::from(n.wrapping_neg()) & 0xf_ffff;
        self.word = self.word & !(0xf_ffff << 1) | neg << 1;
    }

    fn set_tx(&mut self, tx: i32) {
        let neg = u64::from(tx.wrapping_neg() as u32) & 0x1f_ffff;
        self.word = self.word & !(0x1f_ffff << 21) | neg << 21;
    }

    /// One more arrival, or `count` of them, must come in the phase under way (`cp.async.mbarrier.arrive` without
    /// `.noinc`, before its own arrivals). False where the count would leave its field.
    pub fn await_more(&mut self, count: u32) -> bool {
        let n = self.pending().saturating_add(count);
        if n >= COUNT_LIMIT {
            return false;
        }
        self.set_pending(n);
        true
    }

    /// Completes the phase where nothing is pending any more. Returns whether it did.
    fn check(&mut self) -> bool {
        let done = self.pending() == 0 && self.tx() == 0;
        if done {
            self.word ^= 1 << 63;
            self.phase += 1;
            self.set_pending(self.expected());
        }
        done
    }

    fn token(&self) -> Token {
        self.word & !0xffff_ffff
    }

    fn arrivable(&self, count: u32) -> Result<(), BarrierFault> {
        if self.word & BIT42 != 0 {
            return Err(BarrierFault::NotABarrier { word: self.word });
        }
        if count > self.pending() {
            return Err(BarrierFault::OverArrival { count, state: self.state() });
        }
        Ok(())
    }

    fn tx_after(&self, bytes: u32, sign: i32) -> Result<i32, BarrierFault> {
        if bytes >= COUNT_LIMIT {
            return Err(BarrierFault::TxOperand { bytes: bytes as i32, state: self.state() });
        }
        let tx = self.tx() + sign * bytes as i32;
        if !(TX_MIN..=TX_MAX).contains(&tx) {
            return Err(BarrierFault::TxRange { tx, state: self.state() });
        }
        Ok(tx)
    }

    /// `mbarrier.arrive` with a count; also `.noComplete`, which on silicon does complete the phase when it
    /// is the last one (undefined in the manual). A count of 0 changes nothing.
    pub fn arrive(&mut self, count: u32) -> Result<Token, BarrierFault> {
        self.arrivable(count)?;
        let token = self.token();
        if count != 0 {
            self.set_pending(self.pending() - count);
            self.check();
        }
        Ok(token)
    }

    /// `mbarrier.arrive.expect_tx`: one step that adds `bytes` to the tx-count and arrives once.
    pub fn arrive_expect_tx(&mut self, bytes: u32) -> Result<Token, BarrierFault> {
        let tx = self.tx_after(bytes, 1)?;
        self.arrivable(1)?;
        let token = self.token();
        self.set_tx(tx);
        self.arrive(1)?;
        Ok(token)
    }

    /// `mbarrier.arrive_drop` with a count: arrives and lowers the count that later phases expect.
    pub fn arrive_drop(&mut self, count: u32) -> Result<Token, BarrierFault> {
        self.arrivable(count)?;
        self.set_expected(self.expected().wrapping_sub(count));
        self.arrive(count)
    }

    /// `mbarrier.arrive_drop.expect_tx`.
    pub fn arrive_drop_expect_tx(&mut self, bytes: u32) -> Result<Token, BarrierFault> {
        let tx = self.tx_after(bytes, 1)?;
        self.arrivable(1)?;
        let token = self.token();
        self.set_tx(tx);
        self.arrive_drop(1)?;
        Ok(token)
    }

    /// `mbarrier.arrive.noComplete`. Returns the token and whether it completed the phase after all, which the
    /// manual leaves undefined.
    pub fn arrive_no_complete(&mut self, count: u32) -> Result<(Token, bool), BarrierFault> {
        let before = self.phase;
        let token = self.arrive(count)?;
        Ok((token, self.phase != before))
    }

    /// `mbarrier.arrive_drop.noComplete`; see [`Mbarrier::arrive_no_complete`].
    pub fn arrive_drop_no_complete(&mut self, count: u32) -> Result<(Token, bool), BarrierFault> {
        let before = self.phase;
        let token = self.arrive_drop(count)?;
        Ok((token, self.phase != before))
    }

    /// `mbarrier.expect_tx`. Completes the phase when nothing is pending and the tx-count reaches 0 (the manual
    /// does not say so; silicon does). Returns whether it did.
    pub fn expect_tx(&mut self, bytes: u32) -> Result<bool, BarrierFault> {
        self.change_tx(bytes, 1)
    }

    /// `mbarrier.complete_tx`, also the completion of an asynchronous copy. Returns whether the phase
    /// completed.
    pub fn complete_tx(&mut self, bytes: u32) -> Result<bool, BarrierFault> {
        self.change_tx(bytes, -1)
    }

    fn change_tx(&mut self, bytes: u32, sign: i32) -> Result<bool, BarrierFault> {
        let tx = self.tx_after(bytes, sign)?;
        if bytes == 0 {
            return Ok(false);
        }
        self.set_tx(tx);
        Ok(self.check())
    }

    /// `mbarrier.test_wait` with a token: true once the phase that the token belongs to is over. Only bit 63
    /// is looked at, so a token two phases old reads as current.
    pub fn test_wait(&self, token: Token) -> bool {
        (token ^ self.word) >> 63 != 0
    }

    /// `mbarrier.test_wait.parity`: true when the phase of parity `parity` (bit 0) is over.
    pub fn test_wait_parity(&self, parity: u32) -> bool {
        self.parity() != parity & 1
    }

    /// `mbarrier.inval`: the word that appears in shared memory.
    pub fn inval(self) -> u64 {
        self.word
    }
}

/// `mbarrier.pending_count`: arrivals that were pending before the arrive that returned `token`.
pub fn pending_count(token: Token) -> u32 {
    neg20(token >> 43)
}

/// A count from its negated 20-bit field.
fn neg20(field: u64) -> u32 {
    (field as u32).wrapping_neg() & 0xf_ffff
}
