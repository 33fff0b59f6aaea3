"""What each process of test_vllm.py's test of two processes does: its part of a model, with vLLM's own sums over gloo.

    torchrun --nproc-per-node 2 vllm_worker.py FOLDER
"""

import os
import sys

import torch
import torch.distributed as dist

import tilusvm.vllm

tilusvm.vllm.register()

from torch_kit import close  # noqa: E402
from vllm.config import VllmConfig, set_current_vllm_config  # noqa: E402
from vllm.distributed import parallel_state  # noqa: E402
from vllm_kit import PLAIN, VOCABULARY, config_of, logits, plain_model, take_backend  # noqa: E402


def main():
    folder, rank = sys.argv[1], int(os.environ["RANK"])
    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(2, rank, "env://", rank, "gloo")
        parallel_state.initialize_model_parallel(2)
    torch.manual_seed(0)  # the same weights in both
    exact = plain_model(folder if rank == 0 else None)
    dist.barrier()
    take_backend()
    config = config_of(folder, PLAIN, 2)
    config.parallel_config.rank = rank
    ids = torch.randint(0, VOCABULARY, (22,))
    with set_current_vllm_config(config), torch.inference_mode():
        wanted = exact(ids[None]).logits[0]
        for begin, end, found in logits(config, ids, 20):
            if rank == 0:
                close(found, wanted[begin:end], 2e-2)
    dist.barrier()
    if rank == 0:
        print("vllm: all is right", flush=True)
    parallel_state.destroy_model_parallel()
    parallel_state.destroy_distributed_environment()


if __name__ == "__main__":
    main()
