// Fixed-width integers. NVRTC has no <cstdint>, and device code here includes no system header.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

static_assert(sizeof(u32) == 4 && sizeof(u64) == 8 && sizeof(i64) == 8, "integer widths");
