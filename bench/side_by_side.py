"""How bench/lowbit_peers.py and bench/flashinfer_peers.py time what stands beside each other: CUDA graphs of many
launches, whose replays alternate, so that the board's clocks and temperature are the same for all."""
import copy
import statistics
import time

import torch
from timing import elapsed_us

WARM_UP = 2


def twin(module):
    """The same module with parameters and buffers in memory of its own."""
    made = copy.copy(module)
    made._parameters = {
        name: value if value is None else torch.nn.Parameter(value.detach().clone(), False)
        for name, value in module._parameters.items()
    }
    made._buffers = {name: value if value is None else value.clone() for name, value in module._buffers.items()}
    return made


def copies_beside_l2(size):
    """So many copies of so many bytes that a round through them is larger than three times the L2; three at least."""
    return max(3, int(3 * torch.cuda.get_device_properties(0).L2_cache_size / size) + 1)


class Job:
    """What is timed under a name: launch(i), of so many launches, on the present stream."""

    def __init__(self, name, launch, launches, **facts):
        self.name, self.launches, self.facts, self.times = name, launches, facts, []
        self.launch = launch  # the graph does not keep the memory that it was given
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            launch(0)  # makes what launches on this stream need
            stream.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            self.graph.capture_begin()  # without the collection of garbage that torch.cuda.graph begins with
            for i in range(launches):
                launch(i)
            self.graph.capture_end()

    def replay(self):
        self.times.append(elapsed_us(self.graph.replay) / self.launches)

    @property
    def us(self):
        return round(statistics.median(self.times[WARM_UP:]), 3)

    @property
    def least(self):
        return round(min(self.times[WARM_UP:]), 3)


def alternate(jobs, replays, rest=0.0):
    for _ in range(WARM_UP + replays):
        for job in jobs:
            time.sleep(rest)
            job.replay()
