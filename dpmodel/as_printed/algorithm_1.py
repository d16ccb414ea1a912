"""Algorithm 1 of LWK15 as printed: fixed penalty, three splits, stopping rule (22); a yardstick."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.contract import Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Forecast
from dpmodel.privacy import NoiseSource
from dpmodel.released.admm import relaxed_linear
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.model import Postprocessing, Solver
from dpmodel.released.x_updates import x_update


@dataclass(frozen=True)
class AdmmAsPrinted(Solver):
    """Algorithm 1 with the paper's constants.

    The objective is divided by its largest weight, as the paper's has weights alpha and 1 - alpha and no noise scale.
    With the splits ``M x - y = x~`` (8b), ``x - z = 0`` (8c), ``G x + s = g`` and ``E x = b`` (8d), each step is

        y   <- Theta_{alpha,rho}(M x - x~ + mu)                             (13), (14)
        z   <- clip(x + nu),   s <- max(0, g - G x - xi)                    (12)
        x   <- (M'M + I + G'G + E'E)^-1 (M'(y + x~ - mu) + (z - nu) + G'(g - s - xi) + E'(b - eta))    (15), (24)
        mu  <- mu + M x - x~ - y,  nu <- nu + x - z,  xi <- xi + G x + s - g,  eta <- eta + E x - b

    from x = x~ (M = I; else 0), until ||r_i||_2 <= tolerance for every split and rho ||x - x_old||_2 <= tolerance
    (22), in the data's own unit. Squares follow (14) with the corrected (25), rho/(1 + rho) (x - x~ + mu).

    Source
        LWK15, Algorithm 1 and sections 4.4 to 4.6, penalty 2.
    Privacy
        Reads published numbers only: post-processing, costs nothing.
    Utility
        Converges to an optimum; at the stop nothing is known of the objective, and constraints hold up to the tolerance
        only. Never chosen by itself.
    Cost
        One factorisation, one solve with it per step.
    """

    serves: ClassVar[Serves] = Serves(Postprocessing, as_printed=True)
    penalty: float = 2.0
    tolerance: float = 1e-4
    steps: int = 20_000
    name: str = "admm-as-printed"
    source: str = "LWK15, Algorithm 1 as printed"

    def place(self, model: Postprocessing) -> int:
        return 7

    def eligible(self, model: Postprocessing, options: Options) -> Verdict:
        return relaxed_linear(model)

    def forecast(self, model: Postprocessing, options: Options) -> Forecast:
        return self.free_of_charge(
            model,
            "close to the optimum by the paper's stopping rule, without a bound on the error",
            alpha=1e-2,
            work="one factorisation, thousands of steps",
            caveats=("as printed, for study: constraints hold up to the tolerance only",),
        )

    def run(
        self, model: Postprocessing, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        form = model.form
        assert form is not None
        began = time.perf_counter()
        x, steps = self.solve(form)
        done = steps < self.steps
        return Outcome(
            "optimal" if done else "optimal_inaccurate",
            x,
            None,
            form.objective(x),
            time.perf_counter() - began,
            extra_violation=form.violation(x),
            notes=(f"{steps} steps; constraints hold up to {form.violation(x):.1e}",),
        )

    def solve(self, form: LikelihoodForm) -> tuple[Floats, int]:
        """(x, steps); as many steps as allowed where (22) was not met."""
        M, E, G = form.matrix, form.equality, form.inequality
        n, rho = form.size, self.penalty
        largest = float(np.maximum(form.absolute, form.square).max(initial=0.0)) or 1.0
        alpha, beta, c = form.absolute / largest, form.square / largest, form.linear / largest
        K = sp.csr_array(M.T @ M + sp.eye_array(n) + G.T @ G + E.T @ E)
        update = x_update(K, sp.csr_array((0, n)), np.zeros(0))
        MT, ET, GT = sp.csr_array(M.T), sp.csr_array(E.T), sp.csr_array(G.T)
        identity = M.shape[0] == n and (M - sp.eye_array(n)).nnz == 0
        x: Floats = form.value.copy() if identity else np.zeros(n)
        mu, nu = np.zeros(M.shape[0]), np.zeros(n)
        xi, eta = np.zeros(G.shape[0]), np.zeros(E.shape[0])
        for step in range(1, self.steps + 1):
            v = M @ x - form.value + mu
            y = (v - np.clip(v, -alpha / rho, alpha / rho)) * (rho / (2 * beta + rho))
            z = np.clip(x + nu, form.lower, form.upper)
            s = np.maximum(0.0, form.inequality_value - G @ x - xi)
            right = MT @ (y + form.value - mu) + (z - nu) + GT @ (form.inequality_value - s - xi)
            old, x = x, update(right + ET @ (form.equality_value - eta) - c / rho)
            r = (M @ x - form.value - y, x - z, G @ x + s - form.inequality_value, E @ x - form.equality_value)
            mu, nu, xi, eta = mu + r[0], nu + r[1], xi + r[2], eta + r[3]
            if max(float(np.linalg.norm(part)) for part in (*r, rho * (x - old))) <= self.tolerance:
                return x, step
        return x, self.steps


ADMM_AS_PRINTED = AdmmAsPrinted()
