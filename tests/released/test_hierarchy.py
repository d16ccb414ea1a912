"""Hierarchies: the same tree from every way to write it, names, known numbers, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpmodel as dpm
from dpmodel.compile.form import private_entries
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.marks import vault
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy.distributions import Gaussian, Laplace
from dpmodel.released.faces.hierarchy import hierarchy

PARENTS = {"US": None, "OH": "US", "TX": "US", "a": "OH", "b": "OH", "c": "TX", "d": "TX", "e": "TX"}
NESTED = {"nation": ["US"] * 5, "state": ["OH", "OH", "TX", "TX", "TX"], "county": list("abcde")}
NAMES, ABOVE = list(PARENTS), list(PARENTS.values())

SPELLINGS = {
    "mapping": lambda: hierarchy(PARENTS),
    "columns of names": lambda: hierarchy({"name": NAMES, "parent": ABOVE}),
    "pandas": lambda: hierarchy(pd.DataFrame({"name": NAMES, "parent": ABOVE})),
    "pandas nan": lambda: hierarchy(pd.DataFrame({"name": NAMES, "parent": [np.nan, *ABOVE[1:]]})),
    "polars": lambda: hierarchy(pl.DataFrame({"place": NAMES, "in": ABOVE}), name="place", parent="in"),
    "arrays": lambda: hierarchy(np.array(NAMES), np.array(ABOVE, dtype=object)),
    "shuffled": lambda: hierarchy([*NAMES[3:], *NAMES[:3]], [*ABOVE[3:], *ABOVE[:3]]),
    "nested": lambda: hierarchy(NESTED, columns=("nation", "state", "county")),
    "nested pandas": lambda: hierarchy(pd.DataFrame(NESTED), columns=("nation", "state", "county")),
    "nested polars": lambda: hierarchy(pl.DataFrame(NESTED), columns=("nation", "state", "county")),
    "nested lazy, in another order": lambda: hierarchy(
        pl.LazyFrame({"people": [3] * 5, **dict(reversed(NESTED.items()))}), columns=("nation", "state", "county")
    ),
    "nested pyarrow": lambda: hierarchy(pl.DataFrame(NESTED).to_arrow(), columns=("nation", "state", "county")),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_gives_the_same_tree(spelling):
    places = SPELLINGS[spelling]()
    assert places.names == ("US", "OH", "TX", "a", "b", "c", "d", "e")
    np.testing.assert_array_equal(places.tree.parent, [-1, 0, 0, 1, 1, 2, 2, 2])
    assert places.tree.bounds == (0, 1, 3, 8)
    assert places.levels == (("nation", "state", "county") if "nested" in spelling else (0, 1, 2))
    np.testing.assert_array_equal(places.answers([1, 2, 3, 4, 5]), [15, 3, 12, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(places.matrix @ [1, 2, 3, 4, 5], [15, 3, 12, 1, 2, 3, 4, 5])
    assert (places.matrix.sum(axis=0) == places.sensitivity).all()


def test_random_hierarchies_against_recursion():
    rng = np.random.default_rng(0)
    for _ in range(30):
        count = int(rng.integers(1, 40))
        above = [None if i < 2 else int(rng.integers(0, i)) for i in range(count)]
        shuffled = rng.permutation(count).tolist()
        places = hierarchy(shuffled, [above[i] for i in shuffled])
        value = dict(zip(places.names, places.answers(np.arange(len(places.leaves))), strict=True))
        for i in range(count):
            children = [j for j in range(count) if above[j] == i]
            if children:
                assert value[i] == sum(value[j] for j in children)
        for level in places.tree.levels[1:]:
            assert (np.diff(places.tree.parent[level]) >= 0).all()


def test_fit_by_level_with_known_numbers_and_structural_zeros():
    places = SPELLINGS["nested"]()
    fit = places.fit(
        {
            "county": Noisy([3.0, 5.0, 2.0, 7.0, 4.0], noise=Laplace(2.0)),
            "state": [Noisy([9.0, 12.0], noise=Gaussian(1.0)), Noisy([8.0, 12.5], noise=Laplace(1.0))],
        },
        known={"nation": 20, "TX": 12},
        structural_zeros="c",
    )
    release = fit.solve()
    assert fit.read("US") == pytest.approx(20)
    assert fit.read("OH") == pytest.approx(8)
    assert fit.read("c") == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(fit.level("state"), [8, 12], atol=1e-6)
    assert sum(fit.to_dict()[name] for name in "cde") == pytest.approx(12)
    # a + b = 8 = 3 + 5: nothing pulls them away.
    np.testing.assert_allclose([fit.read("a"), fit.read("b")], [3, 5], atol=1e-4)
    assert set(release.variables) == {"nation", "state", "county"}
    assert release.guarantee.epsilon == 0


def test_all_nodes_and_labels():
    places = SPELLINGS["mapping"]()
    truth = pd.Series(places.answers([1, 2, 3, 4, 5]), index=list(places.names))
    everything = places.fit(Noisy(truth.sample(frac=1, random_state=1), noise=Laplace(1.0)))
    everything.solve()
    assert everything.to_dict() == pytest.approx(truth.to_dict(), abs=1e-5)
    some = places.fit(
        {2: Noisy(truth[["e", "a", "b", "d", "c"]], noise=Laplace(1.0)), "US": Noisy(15.0, noise=Laplace(1))}
    )
    some.solve()
    assert some.to_dict() == pytest.approx(truth.to_dict(), abs=1e-5)
    plain = places.fit(
        {1: Noisy(pd.Series([3.0, 12.0]), noise=Laplace(1.0)), 2: Noisy([1, 2, 3, 4, 5], noise=Laplace(1))}
    )
    plain.solve()
    assert plain.read("TX") == pytest.approx(12, abs=1e-5)


def test_leaves_at_any_depth_and_repeated_names():
    places = hierarchy(
        pd.DataFrame({"state": ["OH", "OH", "DC", "VA"], "county": ["Washington", "Clark", None, "Washington"]}),
        columns=["state", "county"],
    )
    assert places.names[:3] == (("OH",), ("DC",), ("VA",))
    assert places.leaves == (("DC",), ("OH", "Washington"), ("OH", "Clark"), ("VA", "Washington"))
    assert places.index("Clark") == places.index(("OH", "Clark"))
    with pytest.raises(SpecificationError, match="2 nodes are called 'Washington'"):
        places.index("Washington")
    fit = places.fit(Noisy([5.0, 1.0, 2.0, 3.0, 2.0, 2.0], noise=Laplace(1.0)))
    frame = fit.solve().to_frame("county")
    assert fit.read("DC") == pytest.approx(1)
    assert fit.read("OH") == pytest.approx(5)
    assert frame["county"].tolist() == ["OH / Washington", "OH / Clark", "VA / Washington"]  # as fit.level("county")
    assert dpm.Release.from_json(fit.release.to_json()).to_frame("county").equals(frame)


@pytest.mark.parametrize("how", ["unbiased", "controlled", "nearest"])
def test_rounding_keeps_known_numbers(how):
    places = SPELLINGS["nested"]()
    rng = np.random.default_rng(0)
    noisy = Noisy(places.answers([3, 1, 4, 1, 5]) + rng.normal(size=8), noise=Gaussian(1.0))
    fit = places.fit(noisy, known={"US": 14})
    fit.solve(round=how, rng=1)
    np.testing.assert_array_equal(fit.x, np.rint(fit.x))
    np.testing.assert_array_equal(places.answers(dict(zip(places.leaves, fit.level("county"), strict=True))), fit.x)
    assert fit.read("US") == 14


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_private_sums_by_brute_force(neighbors):
    for places in (SPELLINGS["nested"](), hierarchy({"a": None, "b": "a", "c": "b", "d": "a", "e": None, "f": "e"})):
        private = places.private(None, neighbors=neighbors)
        one = np.eye(len(places.leaves))
        moves = one if neighbors == "add-remove" else [a - b for a in one for b in one]
        sensitivities = np.abs([places.answers(move) for move in moves])
        assert sensitivities.sum(axis=1).max() <= private.sensitivity.l1 <= sensitivities.sum(axis=1).max() + 1
        assert np.sqrt(np.square(sensitivities).sum(axis=1)).max() <= private.sensitivity.l2 + 1e-12


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_no_record_moves_more_than_is_declared_where_a_leaf_is_cut(neighbors):
    """A chain over two leaves, one of them beyond the largest count: replaced, a record moves all that both share."""
    places = hierarchy({"n": None, "s": "n", "c": "s", "x": "c", "y": "c", "far": "n"})
    for tree, most in ((places, 2.0**52 // 3), (hierarchy({"n": None, "s": "n", "x": "s", "y": "s"}), 2.0**51)):
        for x in (5.0, most - 1, most, most + 1):
            one = dict.fromkeys(tree.leaves, 10.0) | {"x": x}
            for leaf in tree.leaves:
                other = one | {leaf: one[leaf] + 1}
                other |= {"y": other["y"] - 1} if neighbors == "replace-one" else {}
                first, second = (tree.private(each, neighbors=neighbors) for each in (one, other))
                moved = np.abs(np.asarray(private_entries(first)) - np.asarray(private_entries(second)))
                assert moved.sum() <= first.sensitivity.l1 and np.square(moved).sum() <= first.sensitivity.l2**2 + 1e-9


def test_counts_of_nested_groups_are_matched_by_their_paths():
    """As pandas' groupby of nested columns gives them, in any order; a path that is not there is refused."""
    frame = pd.DataFrame({"s": ["b", "a", "a", "b", "b"], "c": ["y", "x", "z", "y", "w"]})
    places = hierarchy(frame.drop_duplicates(), columns=("s", "c"))
    counts = frame.groupby(["s", "c"]).size()
    np.testing.assert_array_equal(places.answers(counts), places.answers({"x": 1, "z": 1, "y": 2, "w": 1}))
    deep = hierarchy({"n": None, "a": "n", "x": "a", "y": "n"})
    assert deep.answers({("n", "a", "x"): 1, ("n", "y"): 5}).tolist() == [6, 1, 5, 1]
    with pytest.raises(SpecificationError, match=r"\(top, \.\.\., leaf\)"):
        deep.answers({("n", "y", "x"): 1, ("n", "y"): 5})


def test_what_is_measured_has_a_frame_and_errors_name_levels():
    places = hierarchy(
        {"n": None, "a": "n", "b": "n", "a1": "a", "a2": "a", "b1": "b"}, levels=("land", "state", "town")
    )
    measured = places.measure({"a1": 3, "a2": 5, "b1": 7}, 1.0, weights={"land": 1, "state": 5, "town": 1}, rng=1)
    frame = measured.to_frame()
    assert frame["node"].tolist() == [places.names[i] for i in measured.nodes]
    assert frame["level"].tolist() == ["state" if len(name) == 1 else "town" for name in frame["node"]]
    np.testing.assert_array_equal(frame["value"], measured.noisy.value)
    np.testing.assert_array_equal(frame["deviation"], measured.noisy.standard_deviation)
    with pytest.raises(SpecificationError, match="'state': 1"):
        places.measure({"a1": 3, "a2": 5, "b1": 7}, 1.0, weights=[1, 5, 1])
    with pytest.raises(SpecificationError, match="names levels"):
        hierarchy({"n": None, "a": "n", "b": "n"}).split(1.0, weights={"state": 5})
    counts = dpm.Dataset(pd.DataFrame({"t": ["a1", "b1"]}), domain={"t": ["a1", "a2", "b1"]}).count("t")
    everything = places.fit(measured)
    everything.solve()
    table = everything.release.to_frame()
    assert list(table) == ["variable", "entry", "value"] and dict(zip(table["entry"], table["value"], strict=True)) == (
        everything.to_dict()
    )
    assert table["variable"].tolist() == ["land", *["state"] * 2, *["town"] * 3]
    with pytest.raises(SpecificationError, match="one scale of noise"):
        places.measure(2 * counts, epsilon=1)
    turned = dpm.Dataset(pd.DataFrame({"t": ["a1", "b1"]}), domain={"t": ["b1", "a2", "a1"]}).count("t")
    with pytest.raises(SpecificationError, match="another order"):
        places.query(turned)
    noisy = dpm.measure(places.query(counts), epsilon=1e6, rng=1)  # the remedy
    assert places.fit(noisy).solve() is not None


def one(places):
    return Noisy(np.ones(places.size), noise=Laplace(1.0))


WRONG = {
    "a cycle": lambda p: hierarchy({"r": None, "x": "y", "y": "z", "z": "x"}),
    "own parent": lambda p: hierarchy({"x": "x"}),
    "unknown parent": lambda p: hierarchy({"x": "nobody", "r": None}),
    "twice": lambda p: hierarchy(["x", "x"], [None, None]),
    "nameless": lambda p: hierarchy([None, "x"], [None, None]),
    "lengths": lambda p: hierarchy(["x", "y"], [None]),
    "empty": lambda p: hierarchy({}),
    "no columns": lambda p: hierarchy(pd.DataFrame({"a": [1]})),
    "no such column": lambda p: hierarchy(NESTED, columns=("nation", "town")),
    "leaf twice": lambda p: hierarchy({"s": ["a", "a"], "c": ["x", "x"]}, columns=("s", "c")),
    "gap": lambda p: hierarchy({"s": ["a", None], "c": ["x", "y"]}, columns=("s", "c")),
    "leaf and inner": lambda p: hierarchy({"s": ["a", "a"], "c": ["x", None]}, columns=("s", "c")),
    "level names": lambda p: hierarchy(PARENTS, levels=("nation",)),
    "unknown node": lambda p: p.fit({"Mars": one(p)}),
    "no distribution": lambda p: p.fit({"county": [1, 2, 3, 4, 5]}),
    "size": lambda p: p.fit({"county": Noisy([1.0, 2.0], noise=Laplace(1))}),
    "label outside": lambda p: p.fit({"state": Noisy(pd.Series([1.0], index=["a"]), noise=Laplace(1))}),
    "known twice": lambda p: p.fit(one(p), known={"nation": 3, "US": 4}),
    "known size": lambda p: p.fit(one(p), known={"state": [1, 2, 3]}),
    "known nan": lambda p: p.fit(one(p), known={"US": np.nan}),
    "known private": lambda p: p.fit(one(p), known={"US": dpm.Private(3.0, name="p", linf=1)}),
    "known noisy": lambda p: p.fit(one(p), known={"US": Noisy(3.0, noise=Laplace(1.0))}),
    "private leaves": lambda p: p.answers(dpm.Private(np.ones(5), name="p", linf=1)),
    "unknown zero": lambda p: p.fit(one(p), structural_zeros=["Mars"]),
    "unknown level": lambda p: p.level("planet"),
    "leaf values": lambda p: p.answers([1, 2]),
}


SAID = {"a cycle": "'x' -> 'y' -> 'z'", "unknown node": "levels are called 'nation', 'state', 'county'"}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_input_is_refused(what):
    with pytest.raises(SpecificationError, match=SAID.get(what)):
        WRONG[what](SPELLINGS["nested"]())


def test_a_publication_enters_once():
    places = hierarchy({"all": None, "x": "all", "y": "all"})
    pair = Noisy([1.5, 2.5], noise=Laplace(1.0))
    with pytest.raises(SpecificationError, match="twice"):
        places.fit({1: [pair, pair]})


CONTRADICTIONS = {
    "'US' is known to be 20, but its parts sum to 19": {"known": {"US": 20, "state": [8, 11]}},
    "'OH' is known to be 5, but its parts sum to at least 6": {"known": {"OH": 5, "a": 6}},
    "'a' is known to be -1, but it has to be at least 0": {"known": {"a": -1}},
    "'TX' is known to be 4, but it has to be 0": {"known": {"TX": 4}, "structural_zeros": ["TX"]},
    "'TX' is known to be 4, but its parts sum to 0": {"known": {"TX": 4}, "structural_zeros": ["c", "d", "e"]},
    "'US' is known to be 26, but its parts sum to at most 25": {"known": {"US": 26}, "bounds": (0, 5)},
}


@pytest.mark.parametrize("said", CONTRADICTIONS)
def test_contradictions_name_both_numbers(said):
    places = SPELLINGS["nested"]()
    with pytest.raises(InfeasibleError, match=said):
        places.fit(one(places), **CONTRADICTIONS[said])


def test_counts_with_names_are_put_in_order() -> None:
    places = SPELLINGS["nested"]()
    given = {"d": 4, "a": 1, "e": 5, "b": 2, "c": 3}
    frame = pd.DataFrame({"county": list(given), "people": list(given.values())}).set_index("county")
    expected = places.answers([1, 2, 3, 4, 5])
    for named in (given, pd.Series(given), frame["people"]):
        np.testing.assert_array_equal(places.answers(named), expected)
        np.testing.assert_array_equal(vault.unseal(places.private(named)), expected)
    numbered = pd.Series([1, 2, 3, 4, 5])  # pandas numbers rows that nobody named
    np.testing.assert_array_equal(vault.unseal(places.private(numbered)), expected)
    twice = pd.Series([*given.values(), 6], index=[*given, "a"])
    for wrong in ({**given, "secret": 6}, {"secret": 6, **dict(list(given.items())[1:])}, {"a": 1}, twice):
        with pytest.raises(SpecificationError) as error:
            places.private(wrong)
        assert "secret" not in str(error.value)
