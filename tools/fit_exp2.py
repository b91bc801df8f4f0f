#!/usr/bin/env python3
"""Fits the polynomial that replaces ex2.approx for a share of the elements (cuda/attn/exp2_poly.cuh).

p(f) = 1 + c1·f + c2·f² + … ≈ 2^f on [0, 1), least largest relative error (Remez exchange in decimals of 60 digits). p(0) = 1 exactly, so that 2^-127 comes out as +0 and 2^0 as 1. Then the coefficients are rounded to f32 one by
one, lowest power first, the rest refitted each time. Prints hexadecimal f32 and the largest relative
error over a fine grid; crates/fa4-spec/src/exp2_poly.rs measures the f32 evaluation over every fraction.

Usage: fit_exp2.py [DEGREE]      (standard library only)
"""
import math
import struct
import sys
from decimal import Decimal, getcontext

getcontext().prec = 60
LN2 = Decimal(2).ln()


def exp2(x):
    return (x * LN2).exp()


def f32(x):
    return Decimal(struct.unpack("<f", struct.pack("<f", float(x)))[0])


def solve(rows):
    """Gaussian elimination with pivoting; rows are [a0, …, an, rhs]."""
    n = len(rows)
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def remez(free, fixed, grid):
    """Least largest relative error over `free` powers, `fixed` = {power: coefficient}."""
    base = lambda x: sum(c * x**k for k, c in fixed.items())
    n = len(free) + 1
    points = sorted(Decimal((1 + math.cos(math.pi * i / n)) / 2) for i in range(n))
    for _ in range(12):
        rows = [
            [x**k / exp2(x) for k in free] + [Decimal((-1) ** i), 1 - base(x) / exp2(x)]
            for i, x in enumerate(points)
        ]
        *coefs, _level = solve(rows)
        all_coefs = {**fixed, **dict(zip(free, coefs))}
        errors = [(x, value(all_coefs, x) / e - 1) for x, e in grid]
        # One extremum per run of equal signs.
        runs = []
        for x, error in errors:
            if runs and (runs[-1][1] < 0) == (error < 0):
                if abs(error) > abs(runs[-1][1]):
                    runs[-1] = (x, error)
            elif error != 0:
                runs.append((x, error))
        while len(runs) > n:
            runs.pop(0 if abs(runs[0][1]) < abs(runs[-1][1]) else -1)
        if len(runs) < n or [x for x, _ in runs] == points:
            break
        points = [x for x, _ in runs]
    return all_coefs, max(abs(e) for _, e in errors)


def value(coefs, x):
    return sum(c * x**k for k, c in coefs.items())


def main():
    degree = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    grid = [(Decimal(i) / 1024, exp2(Decimal(i) / 1024)) for i in range(1, 1025)]
    fixed = {0: Decimal(1)}
    coefs, error = remez(list(range(1, degree + 1)), fixed, grid)
    print(f"degree {degree}, real coefficients: largest relative error {float(error):.3e}")
    for power in range(1, degree + 1):
        fixed[power] = f32(coefs[power])
        free = list(range(power + 1, degree + 1))
        if free:
            coefs, error = remez(free, dict(fixed), grid)
    error = max(abs(value(fixed, x) / e - 1) for x, e in grid)
    for power in range(1, degree + 1):
        bits = struct.unpack("<I", struct.pack("<f", float(fixed[power])))[0]
        print(f"c{power} = {float(fixed[power]):.9g}  0x{bits:08X}")
    print(f"degree {degree}, f32 coefficients: largest relative error {float(error):.3e}")


main()
