"""``Dataset``: private parameters from a table, with the sensitivity that the declared relation gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, overload

from dpmodel._types import Integers
from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset import aggregates, matrices
from dpmodel.marks.dataset.aggregates import Means
from dpmodel.marks.dataset.declared import Declared, refuse_unknown
from dpmodel.marks.dataset.estimates import Estimates
from dpmodel.marks.dataset.matrices import Term
from dpmodel.marks.dataset.open_table import open_table, scan_file
from dpmodel.marks.dataset.table import People, Table, is_positive
from dpmodel.marks.domain import Domain, Outside
from dpmodel.marks.private import Private
from dpmodel.marks.records import Neighbors, Records
from dpmodel.privacy import Budget
from dpmodel.text import TextTable, number


class Dataset:
    """A table of people's records, and what is publicly known of its columns.

    Its methods return ``Private`` parameters of the same ``Records``: sensitivities follow from what is declared here,
    rows and columns keep their names, and nothing is read off the data, shapes and types of columns included (the
    number of rows of ``rows`` and ``incidence`` is public). Every cell is read by itself, as its column was declared.
    A pickle of it holds the table.

    Parameters
    ----------
    table : a frame of pandas, polars (eager or lazy), pyarrow, DuckDB, Dask or PySpark. ``Dataset.scan`` reads files.
    privacy_id : the column that says whose row it is. Without one, every row is a record of its own. Equal ids are one
        person, so a frame must not have rounded them: integers beyond 2^53 are not floats (one missing id makes some).
    max_rows : the most rows of one person that count, needed for counts and sums of a table with ``privacy_id``. The
        first in the order of ``order`` are kept, the others left out.
    order : columns that say which rows of a person come first; then the declared columns from left to right, numbers by
        value and categories by their place in the list. A column of ``order`` that is not declared has numbers first,
        then texts and times. Other columns take no part.
    bounds : {column: (lo, hi)} for columns of numbers, or of text that is written like a number; values beyond are
        clipped.
    domain : {column: categories} for columns that are grouped by or encoded: a list, or a number of codes 0, 1, ... A
        value is the category that equals it, or is written like it (3, 3.0 and "3"; a day and its text).
    integers : columns with bounds whose values are integers, or are rounded to them: their sums get discrete noise.
    decimal : "," for text such as 1,5.
    neighbors : "replace-one" (a person's rows are replaced by others) or "add-remove" (a person's rows may be absent).
        None: those of ``records``, "replace-one" without.
    outside : what is done with a row whose value is missing, infinite or not in the domain (of the columns that are
        used), or that has no privacy id. "error": the query is refused, without saying which. "drop": counts and sums
        leave the row out; in ``rows`` a number becomes the middle of its bounds and a category all zeros. A rule for
        each row by itself, whatever the others hold.
    records : whose table it is. None: the people of all tables and parameters of which nobody said whose they are, so
        that one person may be in each of them. ``Records("staff")`` for a table of other people; then the others in a
        problem need named ``Records`` too.
    name : of the records, in messages and guarantees.

    Raises
    ------
    SpecificationError
        For columns that are not there or repeat, and settings that do not fit.
    MissingExtraError
        For engines that are not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"town": ["Ulm", "Bonn", "Ulm"], "income": [30_000, 52_000, 41_000]})
    >>> people = Dataset(frame, bounds={"income": (0, 200_000)}, domain={"town": ["Bonn", "Ulm"]})
    >>> people.count(by="town")
    Private('count by town', shape=(2,), unit='all', l1=2, l2=1.41421, linf=1, value sealed)
    >>> people.sum("income", by="town").linf
    200000.0
    """

    def __init__(
        self,
        table: Any,
        *,
        privacy_id: str | None = None,
        max_rows: int | None = None,
        order: str | Sequence[str] | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        domain: Mapping[str, Any] | None = None,
        integers: str | Sequence[str] = (),
        decimal: str = ".",
        neighbors: Neighbors | None = None,
        outside: Outside = "error",
        records: Records | None = None,
        name: str | None = None,
    ) -> None:
        found: Table = table if isinstance(table, Table) else open_table(table)
        if outside not in ("error", "drop"):
            raise SpecificationError("Dataset: outside is neither 'error' nor 'drop'", remedy="outside='error'")
        if max_rows is not None and not is_positive(max_rows):
            raise SpecificationError("Dataset: max_rows is not a positive integer", remedy="max_rows=1")
        if decimal not in (".", ","):
            raise SpecificationError("Dataset: decimal is neither '.' nor ','", remedy="decimal=',' for 1,5")
        if privacy_id is None and (max_rows is not None or order is not None):
            raise SpecificationError(
                "Dataset: max_rows or order without privacy_id",
                why="without it every row is a record of its own",
                remedy="privacy_id='person', the column that says whose row it is",
            )
        said = neighbors if neighbors is not None or records is None else records.neighbors
        if records is not None and records.neighbors == "add-remove" != said:
            raise SpecificationError(
                f"Dataset: neighbors={neighbors!r} and records under 'add-remove'",
                why="what a record may change is said once, of the people",
                remedy="neighbors= alone, or records=Records(name, neighbors=...) alone",
            )
        first = (order,) if isinstance(order, str) else tuple(order or ())
        for column in [*([] if privacy_id is None else [privacy_id]), *first]:
            refuse_unknown(column, found.columns)
        self._people = People(
            found,
            Declared.of(found.columns, bounds, domain, integers, decimal),
            Records.of_table(name, said or "replace-one", records),
            privacy_id,
            max_rows,
            first,
            outside,
        )

    @staticmethod
    def scan(path: Any, *, separator: str = ",", encoding: str = "utf-8", **declared: Any) -> Dataset:
        """A dataset of a parquet or csv file, or of many (``"visits/*.parquet"``), read block by block by DuckDB.

        Parameters
        ----------
        path : file or pattern. ``declared`` : as for ``Dataset``, ``decimal=","`` among them.
        separator : of a csv file, whose first line names the columns; quotes are double ones. Every cell is text, which
            is read as its column was declared. A line with too few or too many values is refused.
        encoding : of a csv file: "utf-8" or "latin-1".

        Raises
        ------
        SpecificationError, MissingExtraError
            For other files, and where DuckDB (extra "data") is not installed.
        """
        named = (declared.get(each) for each in ("privacy_id", "order", "bounds", "domain", "integers"))
        needed = [c for each in named if each is not None for c in ([each] if isinstance(each, str) else each)]
        return Dataset(scan_file(path, needed, separator, encoding), **declared)

    @property
    def records(self) -> Records:
        """Whose data it is; give it to other parameters that the same people move."""
        return self._people.records

    def as_domain(self, columns: Iterable[str] | None = None) -> Domain:
        """The declared domain, or that of these columns of it."""
        if isinstance(columns, Mapping):
            raise SpecificationError(
                "a domain beside a Dataset, which has its own", remedy="domain=[columns of it], or none"
            )
        declared = self._people.declared
        chosen = tuple(columns) if columns is not None else declared.domain.columns if declared.domain else ()
        return Domain.of({column: declared.categories(column) for column in chosen})

    def cell_counts(self, columns: Sequence[str], among: Sequence[str]) -> Integers:
        """(cells,) rows in every cell of the domain of ``columns``, in C order, of those that are inside in all columns
        of ``among``. PRIVATE: for ``query_release``."""
        return aggregates.cell_counts(self._people, columns, among)

    @overload
    def count(
        self,
        by: str | Sequence[str] | None = ...,
        *,
        distinct: bool = ...,
        name: str | None = ...,
        keys: Literal["public"] = ...,
    ) -> Private: ...

    @overload
    def count(
        self,
        by: str | Sequence[str] | None = ...,
        *,
        distinct: bool = ...,
        name: str | None = ...,
        keys: Literal["private"],
        epsilon: float,
        delta: float,
        level: float = ...,
        budget: Budget | None = ...,
        rng: Any = ...,
    ) -> Estimates: ...

    def count(
        self,
        by: str | Sequence[str] | None = None,
        *,
        distinct: bool = False,
        name: str | None = None,
        keys: str = "public",
        epsilon: float | None = None,
        delta: float = 0.0,
        level: float = 0.95,
        budget: Budget | None = None,
        rng: Any = None,
    ) -> Private | Estimates:
        """Number of rows (of people, with ``distinct``) for every combination of the categories of ``by``.

        Parameters
        ----------
        by : columns with a domain. One: shape (categories,); two: a matrix; more: flat, in C order; none: one number.
        distinct : count every person once per cell; one person is then in at most ``max_rows`` cells.
        keys : "private" where nobody has a list of the categories: ``by`` then takes columns without a domain too, and
            the counts are released at once, those of keys with many rows alone
            (``dpmodel/released/faces/unknown_keys.py``). For that ``epsilon``, ``delta`` > 0, ``level`` of the
            intervals, ``budget`` and ``rng`` as for ``measure``. A key that is written like a number is that number.

        Returns
        -------
        Private
            Integers. A person with k rows moves them by 2k in l1 (replace-one; k under add-remove), k in linf.
        Estimates
            With private keys: the keys that were found, those with the largest counts first.
        """
        given = {
            "epsilon": epsilon is not None,
            "delta": delta != 0,
            "budget": budget is not None,
            "rng": rng is not None,
        }
        if keys == "private":
            return self._release("unknown_keys", "counts", by, distinct, name, epsilon, delta, level, budget, rng)
        unused = [argument for argument, there in given.items() if there]
        if keys != "public" or unused:
            raise SpecificationError(
                f"Dataset.count: {unused[0]}= for public keys" if unused else "Dataset.count: no such keys",
                why="counts of a public list are private until they are measured, which may be with others",
                remedy="measure(people.count(by), epsilon), or keys='private' where nobody has a list",
            )
        return aggregates.count(self._people, by, distinct, name)

    def crosstab(self, rows: str, columns: str, *, name: str | None = None) -> Private:
        """``count`` by two columns: a matrix (categories of ``rows``, categories of ``columns``)."""
        return self.count([rows, columns], name=name)

    def sum(self, column: str, by: str | Sequence[str] | None = None, *, name: str | None = None) -> Private:
        """Sums of a column, clipped to its bounds and rounded to a public grid of about 2^-20 of them.

        Parameters
        ----------
        column : with bounds. ``by`` : as for ``count``.

        Returns
        -------
        Private
            In the column's units. Integers for columns of ``integers``: rounded to integers within 2^20, and to a
            power of two beyond.
        """
        return aggregates.sums(self._people, column, by, name)

    def mean(self, column: str, by: str | Sequence[str] | None = None, *, name: str | None = None) -> Private | Means:
        """Means of a column, clipped to its bounds.

        Parameters
        ----------
        column : with bounds. ``by`` : as for ``count``.

        Returns
        -------
        Means
            For ``measure``: how many rows a group has is private, so the sums of v - low and of high - v are measured
            together, where a person with k rows moves them by 2k (hi - lo) in l1 (replace-one; k (hi - lo) under
            add-remove), and a mean follows from their quotient.
        Private
            Of all rows together where their number n is public (replace-one, every row a record and none left out): one
            record moves it by (hi - lo) / n.
        """
        return aggregates.mean(self._people, column, by, name)

    def histogram(self, column: str, edges: Iterable[float], *, name: str | None = None) -> Private:
        """Numbers of rows with a value in [edges[i], edges[i + 1]), the last bin closed.

        Parameters
        ----------
        column : with bounds. ``edges`` : (bins + 1,) increasing numbers, which are public. Values beyond
            are counted in the first and the last bin.

        Returns
        -------
        Private
            (bins,) integers; labels are pairs of edges.
        """
        return aggregates.histogram(self._people, column, edges, name)

    def quantile_counts(self, column: str, thresholds: Iterable[float], *, name: str | None = None) -> Private:
        """Numbers of rows with a value of at most t, for every threshold t: what a quantile is found from.

        Parameters
        ----------
        column : with bounds. ``thresholds`` : (q,) increasing public numbers.

        Returns
        -------
        Private
            (q,) integers; one record moves every one of them by at most ``max_rows``.
        """
        return aggregates.quantile_counts(self._people, column, thresholds, name)

    def rows(
        self,
        columns: str | Iterable[Term],
        *,
        ordinal: str | Sequence[str] = (),
        scale: bool = False,
        first: bool = False,
        in_blocks: bool | None = None,
        name: str | None = None,
    ) -> Private:
        """Every row as numbers, for regressions and for programs in which one person owns one constraint.

        Parameters
        ----------
        columns : a list of columns for a matrix: numbers by their bounds, categories one-hot; a tuple of columns is
            their interaction, all products of their encodings. Or one column for a vector: a number, or the codes 0 and
            1 of a domain of two categories.
        ordinal : columns of categories that become their codes 0, 1, ... ``scale`` : whether numbers and codes are
            mapped to [-1, 1] by their bounds.
        first : take the first row of each person, where ``max_rows`` lets more of them count elsewhere.
        in_blocks : whether rows stay where they are and are read a block at a time, for regressions and programs in
            which a record owns its constraints (True), or come into memory, for all models (False). None: in blocks on
            Dask and PySpark, and where a file or query has more than 2^26 numbers. Rows of a query in blocks are
            written once to a temporary file of this user.

        Returns
        -------
        Private
            (rows, encoded columns), unit "row", or (rows,), unit "entry"; of the same ``Records``, so that row i of one
            belongs to entry i of the other. The number of rows is public, under "add-remove" too.
        """
        return matrices.rows(self._people, columns, ordinal, scale=scale, first=first, in_blocks=in_blocks, name=name)

    def incidence(
        self,
        person: str,
        item: str,
        *,
        items: Sequence[Any] | None = None,
        in_blocks: bool | None = None,
        name: str | None = None,
    ) -> Private:
        """Who has what: a matrix of zeros and ones with a row per person and a column per item.

        Parameters
        ----------
        person : ``privacy_id``, the column that says whose row it is. ``item`` : the column of items. ``items`` : the
            public list of items; the declared domain of ``item`` where it is left out.
        in_blocks : whether the matrix is made and stays where the table is, and is read a block at a time by
            regressions and programs in which a person owns a constraint (True), or comes into memory as a sparse matrix
            (False). None: in blocks on Dask and PySpark.

        Returns
        -------
        Private
            (people, items), sparse, unit "row"; in memory people are in the order of ``rows``, in blocks the matrix
            stands alone. Which entries are 1 is private; how many people there are is public. With ``max_rows`` the
            first that many items of each person count.
        """
        return matrices.incidence(self._people, person, item, items, in_blocks=in_blocks, name=name)

    # ------------------------------------------------------------------ what is released at once
    def quantile(
        self,
        column: str,
        q: float,
        epsilon: float,
        *,
        by: str | Sequence[str] | None = None,
        level: float | None = 0.95,
        budget: Budget | None = None,
        rng: Any = None,
    ) -> Estimates:
        """Release a quantile of a column and an interval that holds it, by the exponential mechanism on a public grid.

        The value is right in its rank, not in its size, and values that many rows share are no harder than others. The
        argument: ``dpmodel/released/faces/quantiles.py``. Exact for pure epsilon; a record's rows count as for ``sum``.

        Parameters
        ----------
        column : with bounds. ``q`` : between 0 and 1, the share of rows below. ``by`` : columns with a domain; a
            quantile of each group, from the same epsilon.
        epsilon : what is spent. ``level`` : of the interval, whose ends are drawn together with the quantile. None: no
            interval, and about half the error in rank.
        budget : a ``Budget`` to charge. ``rng`` : as for ``measure``.

        Raises
        ------
        SpecificationError, BudgetExceededError
            Before anything is spent, among others for a column without bounds (declare them, or ask ``bounds``).

        Examples
        --------
        >>> import pandas as pd
        >>> hours = pd.DataFrame({"hours": [40] * 600 + [20] * 400})
        >>> people = Dataset(hours, bounds={"hours": (0, 99)}, integers="hours")
        >>> people.quantile("hours", 0.5, epsilon=5).value.item()
        40.0
        """
        return self._release("quantiles", "quantiles", column, q, epsilon, by, level, budget, rng)

    def quantiles(
        self,
        column: str,
        q: Iterable[float],
        epsilon: float,
        *,
        by: str | Sequence[str] | None = None,
        level: float | None = 0.95,
        budget: Budget | None = None,
        rng: Any = None,
    ) -> Estimates:
        """Release several quantiles of a column together: the worst rank among them is what noise is for.

        Where many are wanted of few values, they are read off a noisy histogram, and have an interval each. Those of
        groups always have one, as what is noise in a small group is none in a large one; without ``by`` the release
        states by how much no rank is off. Parameters as for ``quantile``; ``q`` : increasing shares. ``level`` : of
        both. None: no interval, and about a third of the error in rank for groups.
        """
        if isinstance(q, str) or not isinstance(q, Iterable):
            raise SpecificationError("Dataset.quantiles: q is no list of shares", remedy="q=[0.25, 0.5, 0.75]")
        return self._release("quantiles", "quantiles", column, list(q), epsilon, by, level, budget, rng)

    def median(
        self,
        column: str,
        epsilon: float,
        *,
        by: str | Sequence[str] | None = None,
        level: float | None = 0.95,
        budget: Budget | None = None,
        rng: Any = None,
    ) -> Estimates:
        """``quantile`` with q = 0.5."""
        return self.quantile(column, 0.5, epsilon, by=by, level=level, budget=budget, rng=rng)

    def variance(
        self,
        column: str,
        epsilon: float,
        delta: float = 0.0,
        *,
        by: str | Sequence[str] | None = None,
        level: float = 0.95,
        budget: Budget | None = None,
        rng: Any = None,
    ) -> Estimates:
        """Release the variance of a column, clipped to its bounds (divided by the number of rows, as ``numpy.var``).

        The sum of squares about a noisy mean, or three sums where the number of rows is private:
        ``dpmodel/released/faces/variance.py``. Parameters as for ``quantile``; ``delta`` : allows three sums Gaussian
        noise.
        """
        return self._release("variance", "variance", column, epsilon, delta, by, level, budget, rng)

    def std(
        self,
        column: str,
        epsilon: float,
        delta: float = 0.0,
        *,
        by: str | Sequence[str] | None = None,
        level: float = 0.95,
        budget: Budget | None = None,
        rng: Any = None,
    ) -> Estimates:
        """The root of ``variance``, which says all."""
        return self._release("variance", "variance", column, epsilon, delta, by, level, budget, rng, root=True)

    def bounds(
        self, column: str, epsilon: float, *, level: float = 0.95, budget: Budget | None = None, rng: Any = None
    ) -> Estimates:
        """Release limits for a column of numbers that nobody knows: 0 or powers of two that few rows are beyond.

        They are for ``bounds=`` of a new Dataset. How many rows may be beyond is stated, and does not depend on how
        many there are: about 29 / epsilon at a side. The column need not be declared.

        Parameters
        ----------
        column : of numbers. ``level`` : of that statement. ``epsilon``, ``budget``, ``rng`` : as for ``quantile``.

        Returns
        -------
        Estimates
            (2,) the lower and the upper limit: ``bounds={"income": tuple(limits)}``.
        """
        return self._release("quantiles", "limits", column, epsilon, level, budget, rng)

    def evaluate(
        self,
        model: Any,
        target: str,
        epsilon: float,
        delta: float = 0.0,
        *,
        features: Sequence[str] | None = None,
        metrics: str | Sequence[str] | None = None,
        clip: float = 0.001,
        level: float = 0.95,
        budget: Budget | None = None,
        rng: Any = None,
    ) -> Estimates:
        """Release how good a fitted classifier is on this table: one measurement, whose budget its numbers share.

        Accuracy; log loss, with probabilities of at least ``clip``; of two classes the area under the curve, of scores
        rounded to public bands, and calibration: the share of the second class where it is predicted with so much
        probability. The argument: ``dpmodel/released/faces/evaluate.py``.

        Parameters
        ----------
        model : fitted, with ``predict`` and ``classes_``, better with ``predict_proba``: scikit-learn's or anybody's.
            It must answer for each row by itself. Fitted on these rows without privacy, it tells of them itself.
        target : the column of labels, whose domain has the model's classes. ``features`` : the columns that the model
            reads, declared ones (None: as it was fitted, or all but the target).
        metrics : of "accuracy", "log loss", "auc", "calibration" (None: all that the model allows); fewer are closer.
        clip : the least probability that counts in the log loss, in which a row costs -ln(clip) at most.
        epsilon, delta, level, budget, rng : as for ``variance``.
        """
        given = (model, target, epsilon, delta, features, metrics, clip, level, budget, rng)
        return self._release("evaluate", "evaluate", *given)

    def _release(self, module: str, name: str, *given: Any, **named: Any) -> Estimates:
        # Found by name when first asked for: what charges and draws stands above this room.
        released: Estimates = getattr(import_module(f"dpmodel.released.faces.{module}"), name)(
            self._people, *given, **named
        )
        return released

    def _repr_html_(self) -> str:
        declared = self._people.declared
        rows = []
        for column in declared.columns:
            told = "not declared"
            if column in declared.bounds:
                told = f"{number(declared.bounds[column][0])} to {number(declared.bounds[column][1])}"
                told += ", integers" * (column in declared.integers)
            elif declared.listed(column):
                categories = [str(c) for c in declared.categories(column)]
                told = ", ".join(categories[:8]) + (f" and {len(categories) - 8} more" if len(categories) > 8 else "")
            rows.append((column, told))
        return TextTable(("column", "bounds or categories"), rows, title=repr(self))._repr_html_()

    def __repr__(self) -> str:
        people = self._people
        count = len(people.declared.columns)
        said = [f"{count} column{'s' * (count != 1)}"]
        said += [f"privacy_id={people.person!r}"] * (people.person is not None)
        said += [f"max_rows={people.max_rows}"] * (people.max_rows is not None)
        return f"Dataset({', '.join(said)}, neighbors={people.records.neighbors!r})"
