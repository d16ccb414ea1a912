"""diffprivlib's LogisticRegression on signed rows, for half_spaces.py; does not import dpmodel.

    python peer.py INPUT.npz

INPUT: rows (n, d) of unit norm, labels (n,) of -1 and 1, epsilons, runs. Prints one JSON line per epsilon with the
rows it puts on the wrong side, by the C with the smallest median (a choice that nobody pays for).
"""

import json
import sys
import warnings

import numpy as np
from diffprivlib.models import LogisticRegression

SIZES = (0.01, 0.1, 1.0, 10.0, 100.0, 1e4)


def violated(rows: np.ndarray, labels: np.ndarray, epsilon: float, size: float, seed: int) -> int:
    model = LogisticRegression(
        epsilon=epsilon, data_norm=1.0 + 1e-9, C=size, fit_intercept=False, max_iter=500, random_state=seed
    )
    model.fit(rows, labels)
    return int(np.sum(labels * (rows @ model.coef_.ravel()) < 0))


def main() -> None:
    warnings.simplefilter("ignore")
    given = np.load(sys.argv[1], allow_pickle=False)
    rows, labels = given["rows"], given["labels"]
    for epsilon in given["epsilons"]:
        tried = {
            size: [violated(rows, labels, float(epsilon), size, seed) for seed in range(int(given["runs"]))]
            for size in SIZES
        }
        best = min(tried, key=lambda size: float(np.median(tried[size])))
        print(json.dumps({"epsilon": float(epsilon), "C": best, "violated": tried[best]}), flush=True)


if __name__ == "__main__":
    main()
