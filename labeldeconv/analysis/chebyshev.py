"""Spectra too large to decompose: kernel polynomial (KPM) densities and Lanczos values of a symmetric A-hat.

KPM: a density over [-1, 1] is expanded in Chebyshev polynomials T_k. Its moments are x^T T_k(A-hat) x, one product with
A-hat for two of them; random x give the density of eigenvalues, a signal's columns that of its energy. Jackson's
factors keep the sum positive and blur it by about pi / (number of moments). Bins are integrated in closed form.
"""

from __future__ import annotations

import numpy as np

from labeldeconv.adjacency import Adjacency


def chebyshev_moments(adj: Adjacency, x: np.ndarray, count: int) -> np.ndarray:
    """mu_k = sum_j x_j^T T_k(A-hat) x_j (count,) for the columns of x (n, d) float64, with count / 2 products."""
    mu = np.zeros(count + 1)
    before, now = x, adj @ x
    mu[0], mu[1] = (x * x).sum(), (x * now).sum()
    for k in range(1, count // 2 + 1):
        mu[2 * k] = 2 * (now * now).sum() - mu[0]
        if 2 * k + 1 > count:
            break
        before, now = now, 2 * (adj @ now) - before
        mu[2 * k + 1] = 2 * (now * before).sum() - mu[1]
    return mu[:count]


def binned(moments: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Mass (b,) of the density with these moments between the bin edges (b + 1,) in [-1, 1], at least 0."""
    k = np.arange(1, len(moments))
    m = len(moments) + 1
    jackson = ((m - k) * np.cos(np.pi * k / m) + np.sin(np.pi * k / m) / np.tan(np.pi / m)) / m
    theta = np.arccos(np.clip(edges, -1.0, 1.0))
    # primitive of the density in theta, lambda = cos(theta)
    waves = np.sin(np.outer(theta, k)) @ (jackson * moments[1:] / k)
    primitive = (moments[0] * theta + 2 * waves) / np.pi
    return np.maximum(primitive[:-1] - primitive[1:], 0.0)


def lanczos(adj: Adjacency, start: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Ritz values, ascending, and their residuals after `steps` from a vector (n,), orthogonalised in full.

    An eigenvalue lies within the residual of every Ritz value.
    """
    q = start / np.linalg.norm(start)
    basis, alpha, beta = [q], [], []
    for _ in range(min(steps, len(start))):
        w = (adj @ basis[-1][:, None])[:, 0]
        alpha.append(float(basis[-1] @ w))
        for _ in range(2):  # twice is enough
            Q = np.stack(basis, axis=1)
            w = w - Q @ (Q.T @ w)
        beta.append(float(np.linalg.norm(w)))
        if beta[-1] < 1e-10:
            break  # the space is invariant: the values are exact
        basis.append(w / beta[-1])
    T = np.diag(alpha) + np.diag(beta[: len(alpha) - 1], 1) + np.diag(beta[: len(alpha) - 1], -1)
    values, vectors = np.linalg.eigh(T)
    return values, abs(beta[-1] * vectors[-1])
