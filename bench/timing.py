"""How the Python scripts here take time on a GPU: between two events, and of CUDA graphs of many launches."""
import statistics
import time

import torch


def elapsed_us(work):
    """Microseconds of the GPU between two events around work(), which is waited for."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def launches_of(ms, work):
    """How many of work() take longer than so many milliseconds together, by one of them."""
    return int(ms * 1e3 / elapsed_us(work)) + 1


def captured(launch, count, **words):
    """A CUDA graph of launch(0) to launch(count - 1), which have to have run before; words are torch.cuda.graph's."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **words):
        for i in range(count):
            launch(i)
    return graph


def median_us(work, samples, *, warm_up=0, rest=0.0):
    """The median of so many runs of work(), each behind `rest` seconds, behind warm_up runs that do not count."""
    times = []
    for _ in range(warm_up + samples):
        if rest:
            time.sleep(rest)
        times.append(elapsed_us(work))
    return statistics.median(times[warm_up:])
