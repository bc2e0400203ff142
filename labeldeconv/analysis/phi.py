"""Is phi(A-hat) = sum_i theta_i A-hat^i invertible (Assumption 1, Proposition 1)? phi(lambda) over a spectrum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ZERO = 1e-8  # of the largest |phi|: below, phi is not invertible in double precision
NEAR_ZERO = 0.01  # |phi| below this share of its maximum: inverting magnifies by 100


@dataclass(frozen=True)
class Invertibility:
    """phi(lambda) = sum_i coefficients[i] lambda^i over the spectrum.

    Args:
        smallest: min |phi|, at eigenvalue `at`; not exact: over the interval of the spectrum, so a lower bound.
        largest: max |phi|.
        near_zero: share of eigenvalues with |phi| below a hundredth of `largest`.
        invertible: None where the bounds do not decide.
    """

    name: str
    coefficients: list[float]
    smallest: float
    at: float
    largest: float
    near_zero: float
    invertible: bool | None


def power(hops: int) -> list[float]:
    """Coefficients of phi(A-hat) = A-hat^hops, the phi of GCN and GAT (Appendix A.2)."""
    return [0.0] * hops + [1.0]


def exact_phi(name: str, theta: list[float], values: np.ndarray) -> Invertibility:
    """phi with coefficients `theta` (h,) at all eigenvalues `values` (n,)."""
    size = abs(np.polynomial.polynomial.polyval(values, theta))
    least, most = int(size.argmin()), float(size.max())
    near = float((size < NEAR_ZERO * most).mean())
    return Invertibility(
        name, theta, float(size[least]), float(values[least]), most, round(near, 6), bool(size[least] > ZERO * most)
    )


def bounded_phi(
    name: str, theta: list[float], low: float, known: list[float], density: np.ndarray, grid: np.ndarray
) -> Invertibility:
    """phi over the interval [low, 1] that holds the spectrum, and at eigenvalues `known` for certain.

    `density` (b,) is the share of eigenvalues between the edges `grid` (b + 1,).
    """
    polynomial = np.polynomial.Polynomial(theta)
    turns = np.concatenate([p.roots() for p in (polynomial, polynomial.deriv()) if p.degree() > 0] or [np.empty(0)])
    inside = [float(z.real) for z in turns if abs(z.imag) < 1e-9 and low <= z.real <= 1]
    points = np.array([low, 1.0, *inside])
    size = abs(polynomial(points))
    least, most = int(size.argmin()), float(size.max())
    sure_zero = min(abs(polynomial(v)) for v in known) <= ZERO * most
    middle = abs(polynomial((grid[1:] + grid[:-1]) / 2))
    near = float(density[middle < NEAR_ZERO * most].sum())
    decided = False if sure_zero else True if size[least] > ZERO * most else None
    return Invertibility(name, theta, float(size[least]), float(points[least]), most, round(near, 6), decided)
