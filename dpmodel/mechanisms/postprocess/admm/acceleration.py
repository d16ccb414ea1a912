"""Anderson acceleration of a fixed-point iteration, safeguarded."""

from __future__ import annotations

import numpy as np

from dpmodel._types import Floats

REGULAR = 1e-10  # of the small least-squares problem, relative to its trace

FURTHEST = 100.0  # sum of the sizes of the weights of a combination


class Anderson:
    """Type II (Walker and Ni 2011): once in ``memory`` steps, the combination of the last images whose residuals
    cancel best, in the norm of ``root``^2; taken back if the residual there is larger than before.

    It pays where the plain iteration needs thousands of steps (strategies, sparse tables), and changes little where
    a hundred do.
    """

    def __init__(self, memory: int, root: Floats) -> None:
        self.memory, self.root = memory, root
        self.images: list[Floats] = []
        self.residuals: list[Floats] = []
        self.fallback: tuple[Floats, float] | None = None
        self.steps = 0

    def forget(self) -> None:
        """The map has changed."""
        self.images.clear()
        self.residuals.clear()
        self.fallback = None

    def next(self, t: Floats, image: Floats) -> Floats:
        """Where to go from t, given its image under the map."""
        if self.memory < 2:
            return image
        residual = self.root * (image - t)
        if self.fallback is not None:
            back, before = self.fallback
            self.fallback = None
            if float(np.linalg.norm(residual)) > before:
                return back
        self.images.append(image)
        self.residuals.append(residual)
        if len(self.images) > self.memory:
            del self.images[0], self.residuals[0]
        self.steps += 1
        if self.steps % self.memory or len(self.images) < 3:
            return image
        # All products of residuals first: their differences need no copies then.
        r = self.residuals
        size = len(r)
        products = np.array([[float(r[i] @ r[j]) if j <= i else 0.0 for j in range(size)] for i in range(size)])
        products += np.tril(products, -1).T
        differences = np.diff(np.eye(size), axis=0)
        gram = differences @ products @ differences.T
        gram[np.diag_indices_from(gram)] += REGULAR * np.trace(gram) + np.finfo(float).tiny
        part = np.linalg.lstsq(gram, differences @ products[:, -1], rcond=None)[0]
        # Weights of the images themselves, so that their differences need no memory of their own.
        weight = np.concatenate([[0.0], -part]) + np.concatenate([part, [0.0]])
        weight[-1] += 1.0
        if not np.abs(weight).sum() <= FURTHEST:
            return image
        jump: Floats = np.zeros(image.size)
        for one, at in zip(weight, self.images, strict=True):
            jump += one * at
        self.fallback = (image, float(np.linalg.norm(residual)))
        return jump
