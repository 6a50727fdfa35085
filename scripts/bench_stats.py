# SPDX-License-Identifier: Apache-2.0
"""What scripts/bench says about samples: medians, spreads, ratios and how sure they are."""
import random

SPREAD_MAX = 0.15  # of samples around their median; above it a row is worthless
INTERVAL_MAX = 0.10  # width of a ratio's interval over the ratio
RESAMPLES = 2000


def quantile(values, q):
    """Between the two neighbours in a straight line, as most programs define it."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def median(values):
    return quantile(values, 0.5)


def spread(values):
    return (quantile(values, 0.75) - quantile(values, 0.25)) / median(values)


def pooled(rounds):
    return [value for values in rounds for value in values]


def ratio(over, under):
    """Of the medians of all samples; each is a list of rounds, each of these a list of samples."""
    return median(pooled(over)) / median(pooled(under))


def interval(over, under, seed=1):
    """Where the ratio lies with 95 %: a bootstrap that draws whole rounds, of both sides together as they
    were measured one after the other, and then samples inside each round. None with a single round:
    nothing says how much one differs from the next."""
    count = min(len(over), len(under))
    if count < 2:
        return None
    draw = random.Random(seed)
    ratios = []
    for _ in range(RESAMPLES):
        drawn = [draw.randrange(count) for _ in range(count)]
        ratios.append(
            median([v for i in drawn for v in draw.choices(over[i], k=len(over[i]))])
            / median([v for i in drawn for v in draw.choices(under[i], k=len(under[i]))])
        )
    return quantile(ratios, 0.025), quantile(ratios, 0.975)


class Ratio:
    """How many times as much; `over` and `under` are lists of rounds of samples."""

    def __init__(self, over, under):
        count = min(len(over), len(under))
        self.value = ratio(over[:count], under[:count])
        self.interval = interval(over[:count], under[:count])

    def width(self):
        return None if self.interval is None else (self.interval[1] - self.interval[0]) / self.value

    def is_sure(self):
        return self.interval is not None and self.width() <= INTERVAL_MAX


def noise_of(name, rounds):
    """Why these samples are worthless, or None."""
    found = spread(pooled(rounds))
    return f"{name} spreads over {100 * found:.0f} %" if found > SPREAD_MAX else None


def noise_of_ratio(name, value):
    if value.interval is None:
        return f"{name}: one pair proves nothing"
    if value.is_sure():
        return None
    return f"{name}: {value.interval[0]:.3g} to {value.interval[1]:.3g}"
