"""The paper's d and f, and ridge regression towards a prior, by dense least squares: python sharing.py

Each case has the inputs of two tasks (xa, xb; a constant 1 stands behind them), the weights of their units (wa, wb: units × inputs + 1) and the
task weights (alpha, 1 - alpha). Nothing here uses the formulas of mtz: d of a pair is the smallest value of the sum of both tasks' errors, found
by scipy.linalg.lstsq (SVD) on the stacked samples; f is checked by what the shared weights answer, which is unique even where they are not.

Stored: d (units a × units b), answers (samples of both × pairs i = j), and for `ridge` > 0 the same with ridge · mean(diag) added to both tasks'
matrices (d) or pulled to the mean of the pair (f)."""

import numpy as np
import scipy.linalg

import golden

RANDOM = np.random.default_rng(5)


def with_constant(x):
    return np.hstack([x, np.ones((len(x), 1))])


def best(rows, answers):
    return scipy.linalg.lstsq(rows, answers, lapack_driver="gelsd", cond=1e-12)[0]


def case(cases, name, xa, xb, units, alpha=0.5, ridge=0.0):
    xa, xb = xa.astype(np.float32), xb.astype(np.float32)
    size = xa.shape[1] + 1
    wa, wb = RANDOM.normal(size=(units[0], size)), RANDOM.normal(size=(units[1], size))
    a = with_constant(xa.astype(np.float64)) * np.sqrt(alpha / len(xa))
    b = with_constant(xb.astype(np.float64)) * np.sqrt((1 - alpha) / len(xb))
    stack = np.vstack([a, b])
    diagonal = (stack**2).sum(0)
    mu = ridge * diagonal[diagonal > 0].mean()
    eye = np.sqrt(mu) * np.eye(size)
    d = np.zeros((units[0], units[1]))
    for i, p in enumerate(wa):
        for j, q in enumerate(wb):
            # ½‖A(w − p)‖² + ½‖B(w − q)‖² + ½μ‖w − p‖² + ½μ‖w − q‖²
            rows = np.vstack([a, b, eye, eye])
            want = np.concatenate([a @ p, b @ q, eye @ p, eye @ q])
            w = best(rows, want)
            d[i, j] = 0.5 * ((rows @ w - want) ** 2).sum()
    pairs = min(units)
    shared = []
    for p, q in zip(wa[:pairs], wb[:pairs]):
        rows = np.vstack([a, b, eye])
        shared.append(best(rows, np.concatenate([a @ p, b @ q, eye @ (p + q) / 2])))
    answers = stack @ np.array(shared).T
    for key, value in dict(xa=xa, xb=xb, wa=wa, wb=wb, d=d, answers=answers).items():
        cases[f"{name}/{key}"] = value
    cases[f"{name}/settings"] = np.array([alpha, ridge])


def main():
    cases = {}
    normal = RANDOM.normal
    case(cases, "plain", normal(size=(60, 7)), normal(size=(40, 7)), (4, 5))
    case(cases, "weighted", normal(size=(60, 7)), normal(size=(60, 7)) + 0.5, (5, 3), alpha=0.9)
    # Dead inputs: of one task, of the other, of both.
    xa, xb = normal(size=(80, 8)), normal(size=(80, 8))
    xa[:, [1, 6]] = 0
    xb[:, [2, 6]] = 0
    case(cases, "dead inputs", xa, xb, (4, 4))
    # Inputs that depend on each other, differently in each task: both Gram matrices are singular, their sum is not.
    xa, xb = normal(size=(90, 9)), normal(size=(90, 9))
    xa[:, 3] = xa[:, 0] - 2 * xa[:, 1]
    xb[:, 4] = xb[:, 5]
    case(cases, "singular", xa, xb, (6, 5))
    # The same dependency in both: the sum is singular too.
    xa[:, 7] = xa[:, 8]
    xb[:, 7] = xb[:, 8]
    case(cases, "singular sum", xa, xb, (6, 5))
    # diag(1, 0) and diag(0, 1): sharing costs nothing, while pseudo-inverses say otherwise.
    xa, xb = np.zeros((50, 2)), np.zeros((50, 2))
    xa[:, 0] = normal(size=50)
    xb[:, 1] = normal(size=50)
    xa, xb = xa - [[xa[:, 0].mean(), 0]], xb - [[0, xb[:, 1].mean()]]
    case(cases, "apart", xa, xb, (2, 2))
    # Fewer samples than inputs.
    case(cases, "dual", normal(size=(9, 30)), normal(size=(7, 30)), (5, 4), ridge=0.05)
    golden.save("sharing.npz", cases)


main()
