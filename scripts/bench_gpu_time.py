# SPDX-License-Identifier: Apache-2.0
"""The time of a call on the first GPU."""
import statistics

import torch

REPEATS = 20


def milliseconds(call):
    """The median of REPEATS calls, after some that warm up."""
    times = []
    for _ in range(REPEATS + 5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[5:])
