// Coverage markers: a comment in the PTX, nothing in the SASS.
#pragma once

// COVER("name") leaves the line `// cover: name` in the PTX. The emulator counts, per warp, how often control passes
// it; the gate fails when a marker of a kernel was never reached. The asm is volatile so that the compiler neither
// drops nor duplicates it across branches, and it names no operand, so that it costs no instruction.
#define COVER(name) asm volatile("// cover: " name)
