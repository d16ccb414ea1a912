"""Systems of vectors for the tests of spans, and the distribution of their noise."""

from __future__ import annotations

import math

import numpy as np

from dpmodel.exact.fields import QQ
from dpmodel.exact.model import PrivateVectors
from dpmodel.exact.stable_span import passing
from dpmodel.marks.records import Neighbors
from dpmodel.privacy import SeededSource


def model_of(
    rows, field=QQ, *, task="span", neighbors: Neighbors = "add-remove", rank=None, expected=0, corrupted=None
) -> PrivateVectors:
    rows = np.asarray(rows)
    n, d = rows.shape
    records = n if neighbors == "replace-one" else None
    return PrivateVectors(field, d, task, neighbors, rank or d, records, expected, lambda: rows, corrupted)


def discrete_laplace(scale, reach):
    """Values from -reach to reach, and their probabilities."""
    values, q = np.arange(-reach, reach + 1), math.exp(-1 / scale)
    return values, (1 - q) / (1 + q) * q ** np.abs(values)


def random_rows(generator, field, n, d):
    """Sequences in which few distinct directions repeat, so that all dimensions get sets."""
    pool = generator.integers(0, field.order or 3, size=(max(d, 3), d))
    return pool[generator.integers(0, len(pool), size=n)]


def sampled_levels(at_least, counts, model, rule, seed, runs):
    """Level told in ``runs`` runs (0: {0}), by the functions of ``run``."""
    noisy = SeededSource(seed).discrete_laplace(np.broadcast_to(at_least, (runs, len(at_least))).copy(), rule.scale)
    mask = passing(noisy, model, rule)
    level = np.where(mask.any(axis=1), mask.shape[1] - np.argmax(mask[:, ::-1], axis=1), 0)
    exists = np.concatenate([[False], counts > 0])
    return np.where(exists[level], level, 0)
