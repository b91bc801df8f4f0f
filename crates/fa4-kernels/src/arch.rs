//! The GPU architectures that kernels are compiled for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An architecture with the features that only it has (`a` suffix): `wgmma` and `tcgen05` exist nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// Hopper (H100, H200): `wgmma`.
    #[serde(rename = "sm_90a")]
    Sm90a,
    /// Blackwell (B200): `tcgen05`.
    #[serde(rename = "sm_100a")]
    Sm100a,
    /// Blackwell Ultra (B300): `tcgen05`, with twice the exponential throughput.
    #[serde(rename = "sm_103a")]
    Sm103a,
}

impl Arch {
    /// Every architecture, oldest first.
    pub const ALL: [Arch; 3] = [Arch::Sm90a, Arch::Sm100a, Arch::Sm103a];

    /// PTX's spelling, as in `.target sm_100a`.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Sm90a => "sm_90a",
            Arch::Sm100a => "sm_100a",
            Arch::Sm103a => "sm_103a",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Arch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Arch::ALL
            .into_iter()
            .find(|arch| arch.name() == text)
            .ok_or_else(|| format!("unknown architecture `{text}`; allowed: sm_90a, sm_100a, sm_103a"))
    }
}
