"""A linear classifier over hashed n-grams: its loss, the optimiser that fits it, its measures and its files.

Nothing here uses threads, random numbers or BLAS, so a machine gives the same bytes however busy it is.

Legend: D documents, F entries of sparse rows, B buckets.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from marin_corpus.errors import BadConfig
from marin_corpus.files import Location, read_whole
from marin_corpus.filters.quality_features import SparseRows
from marin_corpus.manifest import encode_manifest, read_manifest
from marin_corpus.output import Output

MANIFEST = "model.json"
WEIGHTS = "weights.f32"
KIND = "quality model"

_HISTORY = 10
"""Pairs that L-BFGS keeps (Nocedal and Wright, "Numerical Optimization", 2nd edition, chapter 7: 3 to 20 are usual)."""
_SUFFICIENT_DECREASE = 1e-4
_CURVATURE = 0.9
_MAX_LINE_STEPS = 30


@dataclass(frozen=True, kw_only=True)
class LinearConfig:
    """Size and fit of the classifier."""

    num_buckets: int = 1 << 19
    """A power of two; n-grams that share a bucket share a weight."""
    l2: float = 1e-5
    """Penalty: `l2 / 2` times the sum of squared weights is added to the mean loss. Larger is smoother."""
    max_iterations: int = 100
    """L-BFGS iterations; a fit usually ends before."""
    tolerance: float = 1e-3
    """The fit ends when no component of the gradient is larger than this times its largest one at the start. On
    speeches, a hundredth of it changed the AUC in the fifth digit."""

    def __post_init__(self) -> None:
        if not 1 << 8 <= self.num_buckets <= 1 << 26 or self.num_buckets & (self.num_buckets - 1):
            raise BadConfig(f"num_buckets={self.num_buckets} must be a power of two from 2**8 to 2**26")
        if not self.l2 > 0:
            raise BadConfig(f"l2={self.l2} must be positive: without a penalty separable documents have no best fit")
        if self.max_iterations < 1:
            raise BadConfig(f"max_iterations={self.max_iterations} must be at least 1")
        if not 0 < self.tolerance < 1:
            raise BadConfig(f"tolerance={self.tolerance} must lie between 0 and 1")


@dataclass(frozen=True)
class LinearModel:
    """P(positive) = sigmoid(x . weights + bias)."""

    weights_B: np.ndarray
    """float32."""
    bias: float

    def probabilities(self, rows: SparseRows) -> np.ndarray:
        """P(positive) of each document, float64."""
        return sigmoid(_products(rows, self.weights_B) + self.bias)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    probability: np.ndarray = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return probability


def _products(rows: SparseRows, weights_B: np.ndarray) -> np.ndarray:
    products_D = np.zeros(rows.num_documents)
    for documents, some in rows.chunks():
        products_F = weights_B[some.buckets_F] * some.values_F
        products_D[documents] = np.bincount(some.documents_F(), weights=products_F, minlength=some.num_documents)
    return products_D


class Objective:
    """Weighted logistic loss plus penalty, and its gradient, over theta = (weights, bias); the bias is not penalised.

    Both labels weigh the same, whatever their numbers: a score of 0.5 means "as likely one as the other if both were
    equally frequent", and a hundredfold of negatives does not press all scores to 0.
    """

    def __init__(self, rows: SparseRows, labels_D: np.ndarray, config: LinearConfig) -> None:
        """`labels_D` is boolean, and has both values."""
        self._rows, self._labels_D, self._l2, self._num_buckets = rows, labels_D, config.l2, config.num_buckets
        self._weight_D = np.where(labels_D, 0.5 / labels_D.sum(), 0.5 / (~labels_D).sum())

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient."""
        rows, weights_B = self._rows, theta[:-1]
        logits_D = _products(rows, weights_B) + theta[-1]
        margin_D = np.where(self._labels_D, logits_D, -logits_D)
        losses_D = np.maximum(-margin_D, 0.0) + np.log1p(np.exp(-np.abs(margin_D)))
        value = float((self._weight_D * losses_D).sum() + 0.5 * self._l2 * (weights_B * weights_B).sum())
        residual_D = self._weight_D * (sigmoid(logits_D) - self._labels_D)
        gradient = np.empty_like(theta)
        gradient[:-1] = self._l2 * weights_B
        for documents, some in rows.chunks():
            gradient[:-1] += np.bincount(
                some.buckets_F,
                weights=residual_D[documents][some.documents_F()] * some.values_F,
                minlength=self._num_buckets,
            )
        gradient[-1] = residual_D.sum()
        return value, gradient


def minimise(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    *,
    max_iterations: int,
    tolerance: float,
) -> tuple[np.ndarray, int]:
    """L-BFGS for a smooth convex function (Nocedal and Wright, algorithms 7.4 and 7.5), with a bisecting Wolfe search.

    Returns:
        The minimiser and the number of iterations. It stops when the gradient is small, or when rounding leaves no
        step that decreases the value.
    """
    theta = start
    value, gradient = objective(theta)
    limit = tolerance * float(np.abs(gradient).max())
    pairs: list[tuple[np.ndarray, np.ndarray, float]] = []
    for iteration in range(max_iterations):
        if float(np.abs(gradient).max()) <= limit:
            return theta, iteration
        direction = _direction(gradient, pairs)
        found = _line_search(objective, theta, value, gradient, direction, first=not pairs)
        if found is None:
            return theta, iteration
        new_theta, value, new_gradient = found
        moved, turned = new_theta - theta, new_gradient - gradient
        pairs = [*pairs[-_HISTORY + 1 :], (moved, turned, _dot(moved, turned))]
        theta, gradient = new_theta, new_gradient
    return theta, max_iterations


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    # Not np.dot: the order of BLAS' sums depends on the number of threads.
    return float((a * b).sum())


def _direction(gradient: np.ndarray, pairs: list[tuple[np.ndarray, np.ndarray, float]]) -> np.ndarray:
    direction = -gradient
    steps = []
    for moved, turned, curvature in reversed(pairs):
        step = _dot(moved, direction) / curvature
        direction -= step * turned
        steps.append(step)
    if pairs:
        _, turned, curvature = pairs[-1]
        direction *= curvature / _dot(turned, turned)
    for (moved, turned, curvature), step in zip(pairs, reversed(steps), strict=True):
        direction += (step - _dot(turned, direction) / curvature) * moved
    return direction


def _line_search(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]],
    theta: np.ndarray,
    value: float,
    gradient: np.ndarray,
    direction: np.ndarray,
    *,
    first: bool,
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """A point along `direction` that fulfils the weak Wolfe conditions; None if rounding leaves none."""
    slope = _dot(gradient, direction)
    low, high = 0.0, np.inf
    # Without curvature known yet: a step of unit length.
    step = 1.0 / max(1e-12, float(np.sqrt(_dot(gradient, gradient)))) if first else 1.0
    for _ in range(_MAX_LINE_STEPS):
        point = theta + step * direction
        new_value, new_gradient = objective(point)
        if not new_value <= value + _SUFFICIENT_DECREASE * step * slope:
            high = step
        elif _dot(new_gradient, direction) < _CURVATURE * slope:
            low = step
        else:
            return point, new_value, new_gradient
        step = 2.0 * low if high == np.inf else 0.5 * (low + high)
    return None


def fit(rows: SparseRows, labels_D: np.ndarray, config: LinearConfig) -> tuple[LinearModel, int]:
    """The model of least objective, and the number of iterations that took."""
    theta, iterations = minimise(
        Objective(rows, labels_D, config),
        np.zeros(config.num_buckets + 1),
        max_iterations=config.max_iterations,
        tolerance=config.tolerance,
    )
    return LinearModel(weights_B=theta[:-1].astype(np.float32), bias=float(theta[-1])), iterations


def roc_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Probability that a random positive scores above a random negative, ties counting one half.

    By mean ranks (Mann and Whitney, 1947). nan if there are not both labels (bool).
    """
    num_positive, num_negative = int(labels.sum()), int((~labels).sum())
    if not num_positive or not num_negative:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2
    above = mean_ranks[inverse][labels].sum() - num_positive * (num_positive + 1) / 2
    return float(above / (num_positive * num_negative))


def save_model(model: LinearModel, facts: dict[str, Any], output: Output) -> None:
    """Write `weights.f32` (little-endian float32) and, after it, `model.json`."""
    data = model.weights_B.astype("<f4").tobytes()
    fields = {
        "num_buckets": len(model.weights_B),
        "bias": model.bias,
        "weights_xxh3_128": xxhash.xxh3_128_hexdigest(data),
    }
    output.write_file(WEIGHTS, data)
    output.write_file(MANIFEST, encode_manifest(KIND, {**fields, **facts}))


def read_model_facts(url: Location) -> dict[str, Any]:
    """What `model.json` says. Raises `Mismatch`, `CorruptData`."""
    from upath import UPath

    return read_manifest(UPath(url), MANIFEST, kind=KIND)


def load_model(url: Location) -> LinearModel:
    """Read a model's files. Raises `Mismatch`, and `CorruptData` if the weights are not those of `model.json`."""
    from upath import UPath

    facts = read_model_facts(url)
    data = read_whole(
        str(UPath(url) / WEIGHTS),
        4 * facts["num_buckets"],
        facts["weights_xxh3_128"],
        next="train the classifier again",
    )
    return LinearModel(weights_B=np.frombuffer(data, dtype="<f4").astype(np.float32), bias=float(facts["bias"]))
