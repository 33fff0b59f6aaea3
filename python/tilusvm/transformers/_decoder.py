"""A whole model of blocks: prompts, and steps of one token that a CUDA graph replays."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import dataclasses

import torch

from .._registry import HALVES
from ..ops import argmax
from ._block import Block, Norm, Options, early, text_config
from ._cache import PagedCache

__all__ = ["Decoder", "Context", "rotation_table"]


@dataclasses.dataclass
class Context:
    """What the layers of one call share."""

    new: int  #: tokens of each sequence
    positions: torch.Tensor  #: i32 [tokens]
    table: torch.Tensor  #: f32 [max, head]
    starts: torch.Tensor  #: i32 [batch + 1]: the rows of each sequence
    cache: object = None
    absolute: bool = True  #: row p of the table is position p, also of what the cache holds
    attend: object = None  #: (block, q, k, v) -> out, in the place of the package's attention


def rotation_table(rotary, layer_type, positions, device):
    """Of each position the cosines and then the sines, f32 [positions, head], as the model's own module computes
    them."""
    rotary = copy.deepcopy(rotary).to(device)
    x = torch.empty(1, 1, 1, dtype=torch.float32, device=device)
    ids = torch.arange(positions, device=device)[None]
    words = {"layer_type": layer_type} if hasattr(rotary, "layer_types") else {}
    cos, sin = rotary(x, position_ids=ids, **words)
    half = cos.shape[-1] // 2
    return torch.cat([cos[0, :, :half], sin[0, :, :half]], -1).contiguous()


def layer_types(config):
    return getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers


class Decoder:
    """Runs a causal language model of transformers by this package's kernels, layer by layer.

    model: of the Llama, Qwen 2 and 3, Gemma 2 and 3 or Mistral families, or Mixtral, Qwen 2 or 3 MoE; its linear layers
    of torch or tilusvm.nn, on its device, or of tilusvm.parallel, a part on each rank. batch sequences of one length,
    at most max_tokens; cache: a type of PagedCache, None: that of the model. The weights that are merged (q, k, v;
    gate, up) are copied, and with consume the model gives its own up.

        decoder = Decoder(model, batch=1, max_tokens=4096, cache="f8_e4m3")
        tokens = decoder.generate(prompt, 128)              # ids [batch, tokens] of the prompt and 128 more, greedy
    """

    def __init__(self, model, batch, max_tokens, *, cache=None, zeros=False, page=64, options=None, consume=False):
        config = text_config(model)
        body = model.model
        self.config, self.options = config, options or Options()
        self.embed, self.head = body.embed_tokens, early(model.lm_head)
        self.device = self.embed.weight.device
        self.norm = Norm(body.norm, self.options.norms)
        dtype = body.norm.weight.dtype
        if dtype not in HALVES:
            raise TypeError(f"model must be of torch.float16 or torch.bfloat16, not {dtype}: call its half() before")
        self.factor = None
        if config.model_type == "gemma2":
            self.factor = torch.tensor(config.hidden_size**0.5, dtype=dtype, device=self.device)
        self.final_cap = getattr(config, "final_logit_softcapping", None)
        kinds = layer_types(config)
        self.tables = {kind: rotation_table(body.rotary_emb, kind, max_tokens, self.device) for kind in set(kinds)}
        self.kinds, self.blocks = kinds, []
        for i, layer in enumerate(body.layers):
            self.blocks.append(Block(layer, i, config, self.options))
            if consume:
                layer.self_attn, layer.mlp = torch.nn.Identity(), torch.nn.Identity()
        self.serve(batch, max_tokens, cache=cache, zeros=zeros, page=page)

    def serve(self, batch, max_tokens, *, cache=None, zeros=False, page=64):
        """Another cache, for so many sequences, at most as long as at first; an empty one."""
        self.graph = None
        self.cache = PagedCache(
            self.config, batch, max_tokens, type=cache, zeros=zeros, page=page, dtype=self.norm.weight.dtype,
            device=self.device, kv_heads=self.blocks[0].kv_heads,
        )  # fmt: skip

    def prepare(self, tokens):
        """Makes and loads the code of the kernels that a prompt of so many tokens of each sequence, and the steps
        behind it, launch, that of different kernels side by side; without it the first launch of each waits for its
        own. Before the first prompt: what the cache has is lost."""
        cache, layer = self.cache, self.blocks[0]
        hidden = self.norm.weight.shape[0]
        logits = torch.zeros(cache.batch, self.head.out_features, dtype=self.norm.weight.dtype, device=self.device)
        jobs = [lambda: argmax(logits), lambda: self.head(x[: cache.batch])]
        cache.reset()
        cache.advance(tokens)
        for new in {tokens, 1}:
            x = torch.zeros(cache.batch * new, hidden, dtype=logits.dtype, device=self.device)
            positions = torch.zeros(x.shape[0], dtype=torch.int32, device=self.device)
            context = Context(new, positions, self.tables[self.kinds[0]], cache.starts(new), cache)
            jobs += layer.first_launches(x, context)

        def run(job):
            with torch.no_grad(), torch.cuda.stream(stream) if stream else contextlib.nullcontext():
                job()

        stream = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as threads:
            list(threads.map(run, jobs))
        cache.reset()

    def _check(self, ids):
        if not isinstance(ids, torch.Tensor):
            raise TypeError(f"ids must be a tensor of tokens, not {type(ids).__name__}")
        if ids.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"ids must be torch.int64 or torch.int32, not {ids.dtype}")
        batch = self.cache.batch
        if ids.dim() != 2 or ids.shape[0] != batch or not ids.shape[1]:
            raise ValueError(f"ids must have the shape [{batch}, tokens], not {list(ids.shape)}")

    @torch.no_grad()
    def forward(self, ids):
        """Logits [batch, vocabulary] of the token behind the newest ones, ids [batch, tokens]."""
        self._check(ids)
        new = ids.shape[1]
        cache = self.cache
        cache.advance(new)
        newest = torch.arange(new, dtype=torch.int32, device=self.device)
        positions = (cache.lengths[:, None] - new + newest).flatten()
        return self._run(ids.flatten(), new, positions)

    def _run(self, ids, new, positions):
        x = torch.nn.functional.embedding(ids, self.embed.weight)
        if hasattr(self.embed, "embed_scale"):
            x = x * self.embed.embed_scale.to(x.dtype)
        elif self.factor is not None:
            x = x * self.factor
        cache, residual, inner = self.cache, None, None
        for kind, block in zip(self.kinds, self.blocks):
            context = Context(new, positions, self.tables[kind], cache.starts(new), cache)
            x, residual = block(x, residual, context, inner)
            inner = block.after_mlp
        if new > 1:  # of each sequence the last
            x, residual = (t.view(cache.batch, new, -1)[:, -1].contiguous() for t in (x, residual))
        logits = self.head(self.norm(x, residual, inner)).contiguous()
        return logits if not self.final_cap else torch.tanh(logits / self.final_cap) * self.final_cap

    # ---- steps from a graph ----

    def _step(self):
        """One token more of each sequence: from self.token to self.token."""
        self.cache.lengths += 1
        logits = self._run(self.token, 1, self.cache.lengths - 1)
        self.logits = logits
        self.token.copy_(argmax(logits))

    @torch.no_grad()
    def capture(self):
        """Makes the graph of a step; what the cache holds beyond its lengths is lost."""
        cache = self.cache
        self.token = torch.zeros(cache.batch, dtype=torch.int64, device=self.device)
        stream = torch.cuda.Stream(self.device)
        lengths = cache.lengths.clone()
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            self._step()  # makes on this stream what launches need
            cache.lengths.copy_(lengths)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                self._step()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        self.graph = graph

    def step(self):
        """The next token of each sequence into self.token, its logits into self.logits: a replay, where a GPU has
        them."""
        cache = self.cache
        if cache.tokens + 1 > cache.max_tokens:
            raise ValueError(f"the cache holds {cache.max_tokens} tokens of a sequence")
        cache.tokens += 1
        if self.graph is not None:
            self.graph.replay()
        else:
            with torch.no_grad():
                self._step()

    @torch.no_grad()
    def generate(self, ids, new_tokens):
        """ids [batch, tokens] and new_tokens more of each, those of the greatest logits."""
        self._check(ids)
        tokens, most = ids.shape[1] + new_tokens - 1, self.cache.max_tokens
        if tokens > most:
            raise ValueError(f"the cache holds {most} tokens of a sequence, not {tokens}: max_tokens of the Decoder")
        self.cache.reset()
        if self.device.type == "cuda" and self.graph is None:
            self.capture()
        first = self.forward(ids.to(self.device))
        if self.graph is None:
            self.token = torch.empty(ids.shape[0], dtype=torch.int64, device=self.device)
        self.token.copy_(argmax(first))
        found = [self.token.clone()]
        for _ in range(new_tokens - 1):
            self.step()
            found.append(self.token.clone())
        return torch.cat([ids.to(self.device), torch.stack(found, 1)], 1)
