"""Likelihood or least squares by default: never far from the better one, and warnings where a level gets worse."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.annotate.noisy import Noisy
from dpmodel.privacy.distributions import DiscreteLaplace, Gaussian, Laplace
from dpmodel.queries.form_choice import Setting, settled

DISTRIBUTIONS = {"laplace": Laplace, "discrete": DiscreteLaplace, "gaussian": Gaussian}


def forest(branching):
    """A hierarchy of len(branching) + 1 levels."""
    parents, last = {"n": None}, ["n"]
    for k in branching:
        last = [(parents.update({f"{up}.{i}": up}), f"{up}.{i}")[1] for up in last for i in range(k)]
    return dpm.hierarchy(parents)


def published(places, leaves, scales, distribution, seed):
    truth, rng = places.answers(leaves), np.random.default_rng(seed)
    noisy = {}
    for level, scale in zip(places.levels, scales, strict=True):
        at = places.tree.levels[level]
        noise = distribution(float(scale))
        noisy[level] = Noisy(truth[at] + noise.sample((at.stop - at.start,), rng), noise=noise)
    return truth, noisy


def errors(places, truth, noisy, **options):
    fit = places.fit(noisy, **options)
    fit.solve()
    return np.array([np.abs(fit.x[at] - truth[at]).mean() for at in places.tree.levels]), fit


@pytest.mark.parametrize(
    ("branching", "scales", "distribution", "density"),
    [
        ((50,), (8, 3), "laplace", 200.0),
        ((6, 12), (20, 8, 3), "laplace", 200.0),
        ((6, 12), (20, 8, 3), "discrete", 5.0),
        ((30,), (3, 3), "discrete", 5.0),
        ((30,), (1, 10), "laplace", 50.0),
    ],
)
def test_no_level_comes_out_worse_than_published(branching, scales, distribution, density):
    """Against the noise in the same draws: where bounds seldom bind, least squares correlates with the noise of a level
    and has the smaller variance, so a factor of 1.5 in the mean of 8 draws is not reached by chance."""
    places = forest(branching)
    leaves = np.random.default_rng(1).poisson(density, len(places.leaves)).astype(float)
    fitted = np.zeros(len(scales))
    noise = np.zeros(len(scales))
    for seed in range(8):
        truth, noisy = published(places, leaves, scales, DISTRIBUTIONS[distribution], seed)
        found, _ = errors(places, truth, noisy)
        fitted += found
        noise += [np.abs(noisy[k].value - truth[places.tree.levels[k]]).mean() for k in places.levels]
    assert (fitted <= 1.5 * noise).all(), fitted / noise


def test_the_likelihood_of_a_noisy_total_is_warned_of_and_not_the_default():
    places = forest((50,))
    _, noisy = published(places, np.full(50, 100.0), (8, 3), Laplace, 0)
    likely = places.fit(noisy, form="likelihood")
    assert any("times the error of the published" in line for line in likely.plan().lower_bounds)
    default = places.fit(noisy)
    assert default.setting.form == "least-squares"
    assert not default.plan().lower_bounds
    assert "fitted by least squares, weighted by the variances of the noise" in default.solve().notes


def test_the_choice_goes_both_ways():
    """Above mostly empty cells: a precise total helps the likelihood find the zeros, a noisy one is ignored by it."""
    places = forest((16, 16))
    leaves = np.where(np.random.default_rng(0).random(256) < 0.05, 1000.0, 0.0)
    chosen = []
    for scales in ((1, 10, 10), (30, 20, 10)):
        _, noisy = published(places, leaves, scales, Laplace, 3)
        chosen.append(places.fit(noisy).setting.form)
    assert chosen == ["likelihood", "least-squares"]


@pytest.mark.parametrize(
    ("options", "distribution"), [({"alpha": 0.9}, Laplace), ({}, Gaussian), ({"form": "likelihood"}, Laplace)]
)
def test_what_leaves_no_choice_is_the_likelihood(options, distribution):
    places = forest((5,))
    _, noisy = published(places, np.full(5, 9.0), (8, 3), distribution, 0)
    assert places.fit(noisy, **options).setting.form == "likelihood"


def test_large_models_are_least_squares_without_a_simulation():
    tree = dpm.tree_query(2**18)
    fit = tree.fit(Noisy(np.zeros(tree.size), noise=Laplace(1.0)))
    assert fit.setting == Setting(1.0, "least-squares")
    assert "ratios" not in fit.model._memo


def test_the_choice_reads_published_numbers_only_and_repeats():
    places = forest((20,))
    _, noisy = published(places, np.full(20, 3.0), (8, 3), Laplace, 0)
    first, second = places.fit(noisy), places.fit(noisy)
    assert first.setting == second.setting
    assert first.model.cached("ratios", dict) == second.model.cached("ratios", dict)
    assert settled(lambda setting: first.model, 1.0, "least-squares")[1].form == "least-squares"
