# SPDX-License-Identifier: Apache-2.0
"""One line of the table of scripts/bench, and what goes into its cells."""
import bench_stats as stats


class Row:
    """A line of the table; `?` marks a cell that the noise makes worthless."""

    COLUMNS = ["work", "tokens/s", "spread", "of the limit", "× PyTorch", "× llm.c", "memory ÷ PyTorch",
               "start ÷ PyTorch", "beside", "noise"]

    def __init__(self, title):
        self.cells = {name: "–" for name in self.COLUMNS}
        self.cells["work"] = title
        self.noise, self.details = [], []

    def put_speed(self, tokens, rounds):
        times = stats.pooled(rounds)
        reason = stats.noise_of("tokens/s", rounds)
        self.cells["tokens/s"] = f"{tokens / stats.median(times):,.4g}" + ("?" if reason else "")
        self.cells["spread"] = f"{100 * stats.spread(times):.1f} %"
        if reason:
            self.noise.append(reason)

    def put_ratio(self, column, over, under, text="{:.2f}"):
        value = stats.Ratio(over, under)
        reason = stats.noise_of_ratio(column, value)
        self.cells[column] = text.format(value.value) + ("?" if reason else "")
        if reason:
            self.noise.append(reason)

    def finish(self, quick):
        if quick:
            self.noise = ["quick: only whether all runs"]
        self.cells["noise"] = "worthless: " + "; ".join(self.noise) if self.noise else "steady"
        return self


def rates(rounds, amount):
    return [[1e-9 * amount / seconds for seconds in values] for values in rounds]


def put_share(row, rounds, amount, limits, kind):
    count = min(len(rounds), len(limits))
    over = rates(rounds[:count], amount)
    row.put_ratio("of the limit", [[100 * r for r in values] for values in over], limits[:count],
                  "{:.1f} %" + (" (memory)" if kind == "read" else ""))
    values = stats.pooled(limits)
    unit = "GB/s read" if kind == "read" else "GFLOP/s"
    row.details.append(f"limit {stats.median(values):.1f} {unit}, {max(values):.1f} at best; "
                       f"reached {stats.median(stats.pooled(over)):.1f}")


def put_torch(row, ours, peer, tried, with_start):
    row.put_ratio("× PyTorch", peer.rounds, ours.rounds)
    alike = [peer, *tried]
    least = min(stats.median(one.peaks) for one in alike)
    row.cells["memory ÷ PyTorch"] = f"{stats.median(ours.peaks) / least:.2f}"
    row.details.append(f"peak memory {stats.median(ours.peaks) / 2**20:,.0f} MiB, PyTorch's {least / 2**20:,.0f}")
    if with_start:
        best = min(alike, key=lambda one: stats.median(one.starts))
        quickest = stats.median(best.starts)
        reason = stats.noise_of("start", [ours.starts]) or stats.noise_of("PyTorch's start", [best.starts])
        row.cells["start ÷ PyTorch"] = f"{stats.median(ours.starts) / quickest:.2f}" + ("?" if reason else "")
        row.noise += [reason] if reason else []
        ends = min(stats.median(one.first_steps) for one in alike)
        row.details.append(f"first step begins after {stats.median(ours.starts):.2f} s and is done after "
                           f"{stats.median(ours.first_steps):.2f} s, PyTorch's {quickest:.2f} and {ends:.2f}")
    row.details.append(f"{peer.name}: {peer.step():.3f} s a step, the quickest of "
                       + ", ".join(f"{one.name[8:]} {one.step():.3f}" for one in tried))
