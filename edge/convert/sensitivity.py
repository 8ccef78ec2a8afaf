"""Which nodes stay in float: found by measurement, in a bounded number of runs.

As NNCF's accuracy control (quantize all, rank groups by what each costs, revert the costliest
until within the limit), with groups found on the way, since a run for every node is too many:

1. All nodes quantized. Within the limit: done, in one run.
2. The nodes, in graph order, in up to 16 blocks. A block's cost is the noise of the model with
   that block alone quantized; noise of quantizers that know nothing of each other adds up.
3. As long as runs are left, the costliest block of those that would have to be reverted is
   halved and its halves are measured, until those blocks are single nodes.
4. Blocks are reverted by noise over loss, that is share of the nodes and of the weights: as
   many as the sum says, measured, then more or fewer by bisection.
5. Of what was reverted the largest weights are tried once more, one by one, and stay in 8 bits
   where the limit still holds.
6. Of all that was measured to be within the limit, what gives up least is taken.

It is no optimum: noises do not quite add up (one of the two moments of a normalization alone in
8 bits ruins the other), so a higher limit may happen to cost less than a lower one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edge import errors

FIRST_BLOCKS = 16
RANKING_RUNS = 96  # bisection takes at most about 2 log2(blocks) more
LAST_TRIES = 24
HUGE = 1e30  # noise of a model that computes NaN
REMEDY = (
    "calibrate on more and real data, try per_channel or another method, lower the limit "
    "(sqnr_db of [tolerances.int8], or min_sqnr), or choose fp16"
)

Measure = Callable[[tuple[str, ...]], float]


@dataclass(frozen=True)
class Choice:
    """``quantized``: nodes, in the order given. ``kept``: node left in float -> its cost.

    The cost is the SQNR in dB of the model with that node's block alone quantized: the lower,
    the costlier. ``all_db``, ``db``: SQNR with everything and with ``quantized`` quantized.
    """

    quantized: tuple[str, ...]
    kept: dict[str, float]
    all_db: float
    db: float
    runs: int


@dataclass(frozen=True)
class _Block:
    """``loss``: what reverting it gives up, of 2 (all nodes and all weights)."""

    nodes: tuple[str, ...]
    db: float
    loss: float

    @property
    def noise(self) -> float:
        return noise(self.db)

    @property
    def rank(self) -> float:
        return -self.noise / self.loss


def noise(db: float) -> float:
    """Noise power over signal power of an SQNR in dB."""
    return HUGE if db < -10 * 30 else 10.0 ** (-db / 10)


def choose(
    nodes: tuple[str, ...], measure: Measure, limit_db: float, sizes: Mapping[str, int]
) -> Choice:
    """The nodes to quantize so that ``measure`` of them is at least ``limit_db``.

    ``measure`` gives the SQNR in dB with just these nodes quantized; ``sizes`` the number of
    weights by node, where it has some. Raises :class:`errors.ParityFailed` with the nearest
    figure when not even one node can be quantized.
    """
    search = _Search(nodes, measure, limit_db, sizes)
    all_db = search.run(nodes)
    if all_db >= limit_db:
        return Choice(nodes, {}, all_db, all_db, search.runs)
    blocks = search.ranked(noise(all_db))
    count = search.bisect(blocks, noise(all_db))
    search.give_back({node for block in blocks[:count] for node in block.nodes})
    quantized = search.best()
    costs = {node: block.db for block in blocks for node in block.nodes}
    kept = {node: costs[node] for node in nodes if node not in set(quantized)}
    return Choice(quantized, kept, all_db, search.known[quantized], search.runs)


class _Search:
    def __init__(
        self, nodes: tuple[str, ...], measure: Measure, limit_db: float, sizes: Mapping[str, int]
    ) -> None:
        self.nodes, self.measure, self.limit_db, self.sizes = nodes, measure, limit_db, sizes
        self.known: dict[tuple[str, ...], float] = {}

    @property
    def runs(self) -> int:
        return len(self.known)

    def run(self, quantized: tuple[str, ...]) -> float:
        if quantized not in self.known:
            self.known[quantized] = self.measure(quantized)
        return self.known[quantized]

    def without(self, reverted: set[str]) -> tuple[str, ...]:
        return tuple(node for node in self.nodes if node not in reverted)

    def ranked(self, noise_of_all: float) -> list[_Block]:
        """Blocks, first to revert first; those that the limit needs as small as runs allow."""
        size = max(1, -(-len(self.nodes) // FIRST_BLOCKS))
        starts = range(0, len(self.nodes), size)
        blocks = [self._block(self.nodes[start : start + size]) for start in starts]
        while self.runs + 2 <= RANKING_RUNS:
            blocks.sort(key=lambda block: block.rank)
            needed = blocks[: self._needed(blocks, noise_of_all)]
            wide = [block for block in needed if len(block.nodes) > 1]
            if not wide:
                break
            costliest = max(wide, key=lambda block: block.noise)
            blocks.remove(costliest)
            half = len(costliest.nodes) // 2
            blocks += [self._block(costliest.nodes[:half]), self._block(costliest.nodes[half:])]
        return sorted(blocks, key=lambda block: block.rank)

    def _block(self, nodes: tuple[str, ...]) -> _Block:
        return _Block(nodes, self.run(nodes), self._loss(set(nodes)))

    def _loss(self, reverted: set[str]) -> float:
        weights = sum(self.sizes.get(node, 0) for node in reverted)
        total = sum(self.sizes.get(node, 0) for node in self.nodes) or 1
        return len(reverted) / len(self.nodes) + weights / total

    def _needed(self, ranked: list[_Block], noise_of_all: float) -> int:
        """How many of ``ranked`` to revert by the sum of noises, scaled to the noise of all."""
        left = sum(block.noise for block in ranked)
        scale = min(1.0, noise_of_all / left) if left else 1.0
        for count, block in enumerate(ranked):
            if left * scale <= noise(self.limit_db):
                return max(1, count)
            left -= block.noise
        return len(ranked)

    def bisect(self, ranked: list[_Block], noise_of_all: float) -> int:
        """The least count of ``ranked`` that is measured to do, as far as more always helps."""
        bad, good = 0, self._needed(ranked, noise_of_all)
        last = len(ranked) - 1
        while (good := min(good, last)) > bad and not self._within(ranked, good):
            bad, good = good, 2 * good
        if good <= bad:
            raise self._failed()
        while good - bad > 1:
            middle = (good + bad) // 2
            if self._within(ranked, middle):
                good = middle
            else:
                bad = middle
        return good

    def _within(self, ranked: list[_Block], count: int) -> bool:
        reverted = {node for block in ranked[:count] for node in block.nodes}
        return self.run(self.without(reverted)) >= self.limit_db

    def give_back(self, reverted: set[str]) -> None:
        """Measure without reverting the largest weights, as far as they do no harm after all."""
        large = sorted(reverted & set(self.sizes), key=lambda node: (-self.sizes[node], node))
        for node in large[:LAST_TRIES]:
            if self.sizes[node] and self.run(self.without(reverted - {node})) >= self.limit_db:
                reverted = reverted - {node}

    def best(self) -> tuple[str, ...]:
        """Of what was measured to be within the limit, what gives up least."""
        good = (nodes for nodes, db in self.known.items() if db >= self.limit_db)
        return min(good, key=lambda nodes: self._loss(set(self.nodes) - set(nodes)))

    def _failed(self) -> errors.ParityFailed:
        best = max(self.known, key=lambda nodes: (self.known[nodes], len(nodes)))
        return errors.ParityFailed(
            f"int8 does not reach an SQNR of {self.limit_db:g} dB with any node quantized; the "
            f"nearest is {self.known[best]:.1f} dB with {len(best)} of {len(self.nodes)} nodes",
            remedy=REMEDY,
        )
