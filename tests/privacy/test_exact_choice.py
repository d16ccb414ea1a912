"""Exact selection: what the random digits decide, ties included; the same choices as OpenDP's."""

from __future__ import annotations

import flint
import numpy as np
import pytest
from auditing import fits_frequencies
from hypothesis import given, settings
from hypothesis import strategies as st
from random_words import MASK, digits_of, give
from scipy.stats import chi2_contingency

from dpmodel.privacy import ExactSource
from dpmodel.privacy import sampling as exact_choice
from dpmodel.privacy.opendp_source import OpenDPSource
from dpmodel.privacy.sampling import exact_choice as choose


@pytest.fixture(autouse=True)
def precision():
    with flint.ctx.workprec(400):
        yield


def noise_of(u: flint.arb, exponential: bool) -> flint.arb:
    return -(-u.log()).log() if exponential else -u.log()


def uniform_of(noise: flint.arb, exponential: bool) -> flint.arb:
    return (-(-noise).exp()).exp() if exponential else (-noise).exp()


@pytest.mark.parametrize("exponential", [True, False])
@pytest.mark.parametrize("gap", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("offset", [2.0**-130, -(2.0**-130)])
def test_candidates_closer_than_53_digits(exponential, gap, offset, monkeypatch):
    """Candidate 2 leads by ``offset``, or lags; what the others have is far below."""
    scores, scale = np.array([5.0 - 60.0, 5.0, 5.0 - gap * 0.7]), 0.7
    gap = (flint.arb(scores[1]) - flint.arb(scores[2])) / flint.arb(scale)
    first = flint.arb(3) / 4
    second = uniform_of(noise_of(first, exponential) + gap + offset, exponential)
    (a, more_a), (b, more_b) = digits_of(first, 3), digits_of(second, 3)
    pairs = [word for pair in zip(more_a, more_b, strict=True) for word in pair]
    given = give(monkeypatch, [2**62, a << 11, b << 11, *pairs])
    assert choose(scores, scale, exponential) == (2 if offset > 0 else 1)
    assert given.left.size < 6


SIZES = [0.0, 1e-300, 1e-9, 0.3, 1.0, 7.5, 40.0, 1e6, 1e18, 1e308]
scores_of = st.lists(st.tuples(st.sampled_from(SIZES), st.sampled_from([1.0, -1.0])), min_size=1, max_size=6)
word = st.one_of(st.integers(0, MASK), st.sampled_from([0, 1, MASK, MASK - 2**11, 2**63]))


@settings(max_examples=300, deadline=None)
@given(scores_of, st.sampled_from([1e-290, 0.01, 1.0, 3.7, 1e290]), st.booleans(), st.data())
def test_the_choice_is_what_the_real_numbers_decide(pairs, scale, exponential, data):
    """Against ball arithmetic on 700 digits, for extreme scores, scales and digits."""
    scores = np.array([size * sign for size, sign in pairs])
    words = [data.draw(word) for _ in scores]
    more = np.random.default_rng(3).integers(0, 2**63, 10 * scores.size).tolist()
    with pytest.MonkeyPatch.context() as patch:
        give(patch, [*words, *more])
        found = choose(scores, scale, exponential)
    # The digits that each got: candidates left after the first look share what follows, in order. So compare with the
    # interval of the first 53 digits: no other candidate may be certainly better.
    balls = [flint.arb(mid=(2 * (w >> 11) + 1, -54), rad=(1, -54)) for w in words]
    with flint.ctx.workprec(700):
        totals = [
            flint.arb(s) / flint.arb(scale) + noise_of(u, exponential) for s, u in zip(scores, balls, strict=True)
        ]
        assert not any(totals[found] < other for other in totals)


@pytest.mark.parametrize("exponential", [True, False])
def test_digits_alone_never_decide_wrongly(exponential, monkeypatch):
    """``_settled`` from nothing has the stated distribution too: chi-square, false alarm 1e-7."""
    scores, scale = np.array([0.0, 1.0, 3.0]), 1.5
    words = np.random.default_rng(4).integers(0, 2**64, (4000, 3), dtype=np.uint64, endpoint=False) >> np.uint64(11)
    found = [exact_choice._settled(scores, scale, exponential, dict(enumerate(row))) for row in words.tolist()]
    e = -np.log(words * 2.0**-53)
    expected = np.argmax(scores / scale + (-np.log(e) if exponential else e), axis=1)
    assert found == expected.tolist()
    if exponential:
        weights = np.exp(scores / scale)
        assert fits_frequencies(np.bincount(found, minlength=3), weights / weights.sum())


@pytest.mark.parametrize("kind", ["exponential", "permute_and_flip"])
@pytest.mark.parametrize("runs", [1500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_the_same_choices_as_opendp(kind, runs):
    """Two samples: chi-square, false alarm 1e-7; another scale is seen but in 5e-12 of all runs (noncentral chi-square
    of the two distributions; with 30 in place of 80 one of 57 was missed)."""
    scores = np.array([0.0, 0.5, 1.0, 2.0, 2.0])
    wrong = 1.0 + 80 / np.sqrt(runs)
    mine, theirs, other = (
        [source.noisy_max(scores, scale, kind=kind) for _ in range(runs)]
        for source, scale in ((ExactSource(), 1.0), (OpenDPSource(), 1.0), (ExactSource(), wrong))
    )

    def same(a, b):
        return chi2_contingency([np.bincount(each, minlength=5) for each in (a, b)]).pvalue > 1e-7

    assert same(mine, theirs) and not same(other, theirs)
