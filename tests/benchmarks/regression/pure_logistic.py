"""Logistic regression at delta 0, as planned by default: held-out log loss and accuracy after ``PublicEncoder``.

FOLDER holds ``05_reg_adult`` and ``05_reg_fairml``. Six lists and five numbers of Adult, ten lists and six numbers of
the bank's calls; bounds are round numbers of public knowledge ("adult, gains to 10": capital gains are cut there, a
tenth of the largest, which 1 in 25 reports). Every repetition has its own split and noise. Beside it: a constant (the
base rate), and no privacy. ``plain bounds``: the same estimator without the encoder's norms. Medians, and quartiles of
what is planned. ``--splits FOLDER`` writes the splits for ``diffprivlib_peer.py --splits`` and does nothing else.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from dpmodel.learn import PrivateLogisticRegression, PublicEncoder
from tests.benchmarks.measuring import data_path, parser

# name -> (file, label, its positive value, columns of categories, columns of numbers with bounds)
SETS: dict[str, tuple[str, str, str, list[str], dict[str, tuple[float, float]]]] = {
    "adult": (
        "05_reg_adult/adult_fairml.csv.gz",
        "income",
        ">50K",
        ["workclass", "marital_status", "occupation", "relationship", "race", "sex"],
        {
            "age": (17, 90),
            "education_num": (1, 16),
            "capital_gain": (0, 100),
            "capital_loss": (0, 5),
            "hours_per_week": (1, 99),
        },
    ),
    "bank": (
        "05_reg_fairml/bank.csv.gz",
        "subscribed",
        "yes",
        ["job", "marital", "education", "default", "housing", "loan", "contact", "month", "day_of_week", "poutcome"],
        {
            "age": (17, 98),
            "campaign": (1, 40),
            "previous": (0, 7),
            "emp_var_rate": (-4, 2),
            "cons_price_idx": (92, 95),
            "cons_conf_idx": (-51, -26),
        },
    ),
}


SETS["adult, gains to 10"] = (*SETS["adult"][:4], {**SETS["adult"][4], "capital_gain": (0, 10)})


def read(folder: Path, name: str) -> tuple[pd.DataFrame, np.ndarray, PublicEncoder]:
    file, label, positive, lists, bounds = SETS[name]
    table = pd.read_csv(folder / file)
    y = (table.pop(label) == positive).to_numpy(dtype=int)
    encoder = PublicEncoder(bounds=bounds, domain={column: sorted(table[column].unique()) for column in lists})
    return table, y, encoder


def scores(model: Any, X: Any, y: np.ndarray) -> tuple[float, float]:
    chances = model.predict_proba(X)[:, 1]
    loss = -np.mean(np.log(np.where(y == 1, chances, 1 - chances)))
    return float(loss), float(np.mean((chances > 0.5) == y))


def main() -> None:
    arguments = parser(
        __doc__,
        repetitions=5,
        sets=["adult", "bank"],
        records=[1000, 20_000],
        epsilons=[0.1, 0.5, 1.0, 5.0],
        neighbors="replace-one",
        alone=False,
        splits="",
    )
    arguments.add_argument("folder", type=data_path("adult_fairml.csv.gz"))
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    print("set, records, epsilon: log loss (accuracy) as planned; plain bounds; constant; without privacy; mechanism")
    for name in given.sets:
        table, y, encoder = read(given.folder, name)
        base = float(y.mean())
        constant = -base * math.log(base) - (1 - base) * math.log(1 - base)
        if given.splits:
            X, made = encoder.fit(table).transform(table), {"norm": np.float64(encoder.max_l2_)}
            for seed in range(given.repetitions):
                order = np.random.default_rng(seed).permutation(len(y))
                train, test = order[: given.records[-1]], order[given.records[-1] :][:10_000]
                made |= {f"X{seed}": X[train], f"y{seed}": y[train], f"test{seed}": X[test], f"labels{seed}": y[test]}
            np.savez(Path(given.splits) / f"{name.replace(', ', '-').replace(' ', '-')}.npz", **made)
            continue
        for count in given.records:
            for epsilon in given.epsilons:
                rows, chosen = [], set()
                for seed in range(given.repetitions):
                    order = np.random.default_rng(seed).permutation(len(y))
                    train, test = order[:count], order[count:][:10_000]
                    own = {"bounds": (-1, 1), "classes": (0, 1), "epsilon": epsilon, "C": 1e6, "random_state": seed}
                    own["neighbors"] = given.neighbors
                    planned = make_pipeline(encoder, PrivateLogisticRegression(**own))
                    planned.fit(table.iloc[train], y[train])
                    chosen.add(planned[-1].release_.mechanism)
                    if given.alone:
                        rows.append([scores(planned, table.iloc[test], y[test])])
                        continue
                    X = encoder.transform(table)
                    plain = PrivateLogisticRegression(**own).fit(X[train], y[train])
                    exact = LogisticRegression(C=1e6, max_iter=1000).fit(X[train], y[train])
                    found = (scores(planned, table.iloc[test], y[test]), scores(plain, X[test], y[test]))
                    rows.append([*found, scores(exact, X[test], y[test])])
                loss = np.median(np.array(rows), axis=0)
                told = [f"{value:.3f} ({right:.3f})" for value, right in loss.tolist()]
                low, high = np.quantile(np.array(rows)[:, 0, 0], [0.25, 0.75])
                told[0] += f" [{low:.3f}, {high:.3f}]"
                told.insert(2, f"{constant:.3f} ({max(base, 1 - base):.3f})")
                print(f"{name}, {count}, {epsilon:g}: {'; '.join(told)}; {', '.join(sorted(chosen))}", flush=True)


if __name__ == "__main__":
    main()
