"""What is asked of a reference, and the answers that are no results. Standard library only."""

from dataclasses import dataclass
from typing import Optional


class Refusal(Exception):
    """An answer of its own kind, not a failure of the process."""

    kind = "failed"


class Unavailable(Refusal):
    """The library, or what it needs, is not here."""

    kind = "unavailable"


class Unsupported(Refusal):
    """The library does not compute this."""

    kind = "unsupported"


class OutOfMemory(Refusal):
    """The device's memory is too small."""

    kind = "out_of_memory"


@dataclass(frozen=True)
class Problem:
    """One dense attention problem; fields as in fa4-spec's AttnProblem."""

    batch: int
    seqlen_q: int
    seqlen_k: int
    num_heads_q: int
    num_heads_kv: int
    head_dim_qk: int
    head_dim_v: int
    causal: bool
    window_left: Optional[int]
    window_right: Optional[int]
    sink: bool
    softcap: float
    scale: float
    q_dtype: str
    kv_dtype: str

    @classmethod
    def from_json(cls, fields):
        fields = dict(fields)
        mask = fields.pop("mask")
        fields["scale"] = fields["scale"] or fields["head_dim_qk"] ** -0.5
        return cls(
            causal=mask["causal"],
            window_left=mask["window_left"],
            window_right=mask["window_right"],
            **fields,
        )

    def band(self):
        """(keys to the left, keys to the right) that a query sees besides its own, bottom-right aligned; None where nothing
        is hidden on that side."""
        left, right = self.window_left, self.window_right
        if self.causal:
            right = 0
        if left is not None and left >= self.seqlen_k - 1:
            left = None
        # The first query sits on key seqlen_k - seqlen_q: it sees the last one from seqlen_q - 1 on.
        if right is not None and right >= self.seqlen_q - 1:
            right = None
        return left, right

    @property
    def mask(self):
        """"full", "causal" or "window", by what is really hidden."""
        left, right = self.band()
        if left is None:
            return "full" if right is None else "causal" if right == 0 else "window"
        return "window"

    @property
    def grouped(self):
        return self.num_heads_q != self.num_heads_kv

    @property
    def o_shape(self):
        return (self.batch, self.seqlen_q, self.num_heads_q, self.head_dim_v)

    @property
    def lse_shape(self):
        return (self.batch, self.num_heads_q, self.seqlen_q)


def require(condition, reason):
    """Refuses a problem unless `condition` holds."""
    if not condition:
        raise Unsupported(reason)


def require_plain(problem, *, sink=False, softcap=False, window=False, dims_differ=False):
    """Refuses what the caller does not say that its library has. Nothing here takes fp8 or empty problems."""
    require(problem.q_dtype == problem.kv_dtype and problem.q_dtype in ("bf16", "fp16"), "bf16 or fp16, the same for all")
    require(
        min(problem.batch, problem.seqlen_q, problem.seqlen_k) > 0,
        "an empty problem launches nothing that could be timed",
    )
    require(sink or not problem.sink, "no argument for sinks")
    require(softcap or problem.softcap == 0, "no argument for a softcap")
    require(window or problem.mask != "window", "no argument for a window")
    require(dims_differ or problem.head_dim_qk == problem.head_dim_v, "head dims of q/k and v must be equal")
