"""A whole model of blocks: prompts, and steps of one token that a CUDA graph replays; what they generate."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import dataclasses

import torch

from .. import nn, parallel
from .._registry import HALVES
from ..ops import argmax
from ._block import Block, Few, Norm, Options, check_layers, early, text_config
from ._generate import Rows, Sent, check_ids, request_of
from ._latent import block_of
from ._parts import TESTED, Unknown, layer_types, once
from ._speculate import steps

__all__ = ["Decoder", "Context", "rotation_table"]


@dataclasses.dataclass
class Context:
    """What the layers of one call share."""

    new: int  #: tokens of a sequence
    positions: torch.Tensor  #: i32 [tokens]
    table: torch.Tensor  #: f32 [max, head]
    starts: torch.Tensor  #: i32 [batch + 1]: the rows of each sequence
    cache: object = None
    even: bool = True  #: all sequences have as many new tokens; else `new` is the most
    absolute: bool = True  #: row p of the table is position p, also of what the cache holds
    attend: object = None  #: (block, q, k, v) -> out, in the place of the package's attention


def rotation_table(rotary, layer_type, positions, device):
    """Of each position the cosines and then the sines, f32 [positions, elements that are turned], as the model's own
    module computes them."""
    rotary = copy.deepcopy(rotary).to(device)
    x = torch.empty(1, 1, 1, dtype=torch.float32, device=device)
    ids = torch.arange(positions, device=device)[None]
    words = {"layer_type": layer_type} if hasattr(rotary, "layer_types") else {}
    cos, sin = rotary(x, position_ids=ids, **words)
    own = once(cos)
    return torch.cat([cos[0, :, own], sin[0, :, own]], -1).contiguous()


def check_rotary(rotary, max_tokens):
    """ValueError where the rotary embedding of so many tokens is another one than that of few."""
    words = getattr(rotary.config, "rope_parameters", None) or {}
    kind, most = words.get("rope_type"), words.get("original_max_position_embeddings")
    most = rotary.config.max_position_embeddings if most is None else most
    if kind in ("dynamic", "longrope") and max_tokens > most:
        raise ValueError(
            f"max_tokens must be {most} at most, as the model's rotary embedding ({kind}) is another one beyond that, "
            f"not {max_tokens}: accelerate_ takes it"
        )


class Decoder:
    """Runs a causal language model of transformers by this package's kernels, layer by layer.

    model: one whose layers are all made of known parts (accelerate_ says which); its linear layers of torch or
    tilusvm.nn, on its device, or of tilusvm.parallel, a part on each rank; accelerate_d or not. ValueError with the
    reason for another; of families that are not TESTED the logits of a few tokens are compared with the model's. batch
    sequences, at most max_tokens each; cache: a type of PagedCache, or of LatentCache, None: that of the model. The
    weights that are merged (q, k, v; gate, up) are copied, and with consume the model gives its own up. Of a model that
    accelerate_ changed the layers are used as they are, with its options.

    Of up to ops.FEW_ROWS rows a layer is five launches: products of tilusvm.nn are also the norm before them, the sum
    with the residual, the activation, the norms of heads, and the append to the cache behind them. With
    Options(addends=True) so are layers with norms behind their products, too, for up to 4 rows. Options(fuse=False):
    none of it.

        decoder = Decoder(model, batch=1, max_tokens=4096, cache="f8_e4m3")
        tokens = decoder.generate(prompt, 128)              # ids [batch, tokens] of the prompt and 128 more, greedy
    """

    _turn = None  #: the Request whose steps are under way

    #: Steps that a GPU may begin before the host has seen whether the rows end at the present one.
    ahead = 2

    def __init__(self, model, batch, max_tokens, *, cache=None, zeros=False, page=64, options=None, consume=False):
        config = text_config(model)
        body = model.model
        if options is not None and any(isinstance(layer, Block) for layer in body.layers):
            raise ValueError("the model has been accelerated: its options are those of accelerate_")
        self.config, self.options = config, options or Options()
        self.generation_config = getattr(model, "generation_config", None)
        self.embed, self.head = body.embed_tokens, early(model.lm_head)
        self.device = self.embed.weight.device
        self.norm = body.norm if isinstance(body.norm, Norm) else Norm(body.norm, self.options.norms)
        dtype = body.norm.weight.dtype
        if dtype not in HALVES:
            raise TypeError(f"model must be of torch.float16 or torch.bfloat16, not {dtype}: call its half() before")
        tested = config.model_type in TESTED
        if tested:
            check_layers(body.layers, config, mlp=self.options.mlp)
        self.factor = None
        if config.model_type == "gemma2":
            self.factor = torch.tensor(config.hidden_size**0.5, dtype=dtype, device=self.device)
        self.final_cap = getattr(config, "final_logit_softcapping", None)
        self.rotary, self.tables = body.rotary_emb, {}
        self.kinds, self.blocks = layer_types(config), []
        for i, layer in enumerate(body.layers):
            if isinstance(layer, Block):
                self.blocks.append(layer)
                continue
            try:
                self.blocks.append(block_of(layer, i, config, self.options, self.rotary))
            except Unknown as why:
                raise ValueError(
                    f"no Decoder for layer {i} of the model: {why}; accelerate_ takes what it can"
                ) from None
            if consume and tested:  # the others are called once more
                layer.self_attn, layer.mlp = torch.nn.Identity(), torch.nn.Identity()
        rows = {block.rows_of_token for block in self.blocks}
        self.fuses = self.norm.reference is None and len(rows) == 1 and all(block.fuses() for block in self.blocks)
        self.few_rows = self.blocks[0].few_rows
        for kind, block in zip(self.kinds, self.blocks) if self.fuses else ():
            width = rotation_table(self.rotary, kind, 1, self.device).shape[-1]
            if type(block) is Block and width == block.head:  # the caches of others are transformers'
                block.pair_heads()
        self.ranks = ranks_of(self.blocks)
        if not tested:
            self._compare(model)
        self.serve(batch, max_tokens, cache=cache, zeros=zeros, page=page)

    @torch.no_grad()
    def _compare(self, model):
        """ValueError where it is not the model that it was made of."""
        ids = torch.arange(1, 9, device=self.device)[None] % self.embed.weight.shape[0]
        self.serve(1, 16, page=16)
        found, wanted = self.forward(ids).double(), model(ids, use_cache=False).logits[:, -1].double()
        error = float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-6))
        if not error <= 5e-2:
            raise ValueError(
                f"no Decoder for the model: its logits are other ones, by {error:.1e}, as something around its layers "
                f"is not known; accelerate_ leaves that to transformers"
            )

    def serve(self, batch, max_tokens, *, cache=None, zeros=False, page=64):
        """Another cache, for so many sequences of at most max_tokens; an empty one."""
        self.graph = self._turn = None
        self.graphs = {}  #: of `several` new tokens: the graph, its tokens, its logits
        check_rotary(self.rotary, max_tokens)
        self.cache = self.blocks[0].cache_of(
            self.config, batch, max_tokens, type=cache, zeros=zeros, page=page, dtype=self.norm.weight.dtype,
            device=self.device,
        )  # fmt: skip
        for kind in set(self.kinds):
            if kind not in self.tables or self.tables[kind].shape[0] < max_tokens:
                self.tables[kind] = rotation_table(self.rotary, kind, max_tokens, self.device)

    def prepare(self, tokens):
        """Makes and loads the code of the kernels that a prompt of so many tokens of each sequence, and the steps
        behind it, launch, that of different kernels side by side; without it the first launch of each waits for its
        own. Before the first prompt: what the cache has is lost."""
        cache, layer = self.cache, self.blocks[0]
        hidden = self.norm.weight.shape[0]
        logits = torch.zeros(cache.batch, self.head.out_features, dtype=self.norm.weight.dtype, device=self.device)
        jobs = [lambda: argmax(logits), lambda: self._head_of(x[: cache.batch])]
        self._turn = None
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

    @torch.no_grad()
    def forward(self, ids):
        """Logits [batch, vocabulary] of the token behind the newest ones, ids [batch, tokens]."""
        check_ids(ids, self.cache.batch)
        self._turn = None
        cache, few = self.cache, Block.few_queries
        if cache.tokens + ids.shape[1] > cache.max_tokens:
            cache.advance(ids.shape[1])  # says how many it holds
        if not cache.tokens or ids.shape[1] <= few:
            return self._forward(ids)
        for part in ids.split(few, 1):  # so many can attend to what is in the cache
            logits = self._forward(part)
        return logits

    def _forward(self, ids):
        new, cache = ids.shape[1], self.cache
        cache.advance(new)
        newest = torch.arange(new, dtype=torch.int32, device=self.device)
        positions = (cache.lengths[:, None] - new + newest).flatten()
        return self._run(ids.flatten(), new, positions)

    def _prompts(self, flat, lengths):
        """Logits behind prompts of any lengths, which stand one behind the other in flat, into the empty cache."""
        if len(set(lengths)) == 1:
            return self._forward(flat.view(len(lengths), -1).to(self.device))
        self.cache.advance(lengths)
        starts = self.cache.starts(lengths)
        positions = torch.cat([torch.arange(length, dtype=torch.int32) for length in lengths])
        return self._run(flat.to(self.device), max(lengths), positions.to(self.device), starts)

    def _run(self, ids, new, positions, starts=None, every=False):
        """starts: where the rows of each sequence begin, which have at most `new`; None: each has `new`. every: the
        logits behind each token, not those behind the last of each sequence alone."""
        x = self.embed(ids)
        if self.factor is not None and not hasattr(self.embed, "embed_scale"):
            x = x * self.factor
        cache, residual, inner = self.cache, None, None
        even = starts is None
        starts = cache.starts(new) if even else starts
        contexts = [Context(new, positions, self.tables[kind], starts, cache, even) for kind in self.kinds]

        def newest(*tensors):
            if not even:  # of each sequence the last
                return [t.index_select(0, starts[1:] - 1) for t in tensors]
            whole = new == 1 or every
            return tensors if whole else [t.view(cache.batch, new, -1)[:, -1].clone() for t in tensors]

        if self.fuses and x.shape[0] <= self.few_rows:
            logits = self._run_few(x, contexts, None if new == 1 or every else newest)
        else:
            for block, context in zip(self.blocks, contexts):
                x, residual = block.run(x, residual, context, inner)
                inner = block.after_mlp
            x, residual = newest(x, residual)
            logits = self.head(self.norm(x, residual, inner)).contiguous()
        return logits if not self.final_cap else torch.tanh(logits / self.final_cap) * self.final_cap

    def _run_few(self, residual, contexts, newest):
        """Of few rows, by products with what stands before and behind them: the first norm alone is a launch."""
        state = Few(residual, self.blocks[0].before, self.blocks[-1].after_mlp)
        norms = [block.before for block in self.blocks[1:]] + [self.norm]
        for block, context, following in zip(self.blocks, contexts, norms):
            block.run_few(state, context, following)
        if newest is not None:
            state.chosen(newest)
        if self._head_takes(state.residual.shape[0]):
            return self.head.normed(state.h, state.squares, **state.words(self.norm))
        if state.after is None:
            return self.head(self.norm(state.residual)).contiguous()
        return self.head(self.norm(state.addend, state.residual, state.after)).contiguous()

    def _head_takes(self, rows):
        """Does the head take the last norm with its product?"""
        return self.fuses and rows <= self.few_rows and type(self.head) is nn.Linear and self.head.fuses

    def _head_of(self, x):
        """A launch of the head as a step has it."""
        if not self._head_takes(x.shape[0]):
            return self.head(x)
        planes = (x.shape[0],) if self.blocks[0].rows_of_token == 1 else (4, x.shape[0])
        squares = x.new_zeros(*planes, -(-x.shape[1] // 64), dtype=torch.float32)
        return self.head.normed(x if len(planes) == 1 else torch.cat([x, x]), squares)

    # ---- steps from a graph ----

    def _step(self):
        """One token more of each sequence: from self.token to self.token."""
        self.cache.lengths.add_(1)
        logits = self._run(self.token, 1, self.cache.lengths - 1)
        self.logits = logits
        self.token.copy_(argmax(logits))

    @torch.no_grad()
    def capture(self):
        """Makes the graph of a step; what the cache holds beyond its lengths is lost."""
        self._turn = None
        self.token = torch.zeros(self.cache.batch, dtype=torch.int64, device=self.device)
        self.graph = self._graph_of(self._step)

    def _graph_of(self, step):
        """The graph of what a function launches."""
        cache = self.cache
        stream = torch.cuda.Stream(self.device)
        lengths = cache.lengths.clone()
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            step()  # makes on this stream what launches need
            cache.lengths.copy_(lengths)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                step()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        return graph

    @torch.no_grad()
    def several(self, ids):
        """Logits [batch, new, vocabulary] behind each of as many new tokens of each sequence, ids [batch, new], at most
        few_queries of Block, for which the caller has said the lengths before (cache.rewind) and sees to the room: a
        replay, where a GPU has them, whose logits the next one overwrites."""
        batch, new = ids.shape
        if self.device.type != "cuda":
            return self._several(ids)
        if new not in self.graphs:
            given, made = torch.zeros_like(ids), []
            graph = self._graph_of(lambda: made.append(self._several(given)))
            self.graphs[new] = graph, given, made[-1]
        graph, given, logits = self.graphs[new]
        given.copy_(ids)
        graph.replay()
        return logits

    def _several(self, ids):
        batch, new = ids.shape
        lengths = self.cache.lengths.add_(new)
        newest = torch.arange(new, dtype=torch.int32, device=self.device)
        positions = (lengths[:, None] - new + newest).flatten()
        return self._run(ids.flatten(), new, positions, every=True).view(batch, new, -1)

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

    # ---- generation ----

    def generate(self, ids, max_new_tokens=None, **words):
        """The prompts and what the model says behind them, int64 [batch, tokens], on its device.

        ids: [batch, tokens], what a tokenizer gives (input_ids, attention_mask), or a list of prompts of any lengths,
        each a list of tokens, which stand padded at their left in the result. max_new_tokens: None: that of the
        model's generation_config, or as many as the cache has room for.

        attention_mask     [batch, tokens]: tokens where it is 0 are left out; None: where they are pad tokens that are
                           no eos tokens
        eos_token_id       a token, or several, at which a row ends; [] for none; None: of generation_config
        pad_token_id       what rows have behind their ends; None: of generation_config, or the first eos token
        stop_strings       text, or several, at which a row ends; tokenizer: the model's
        do_sample          draws tokens, as any of the next four does; else the greatest logit is taken
        temperature, top_k, top_p  as for ops.sample; what is not given is that of generation_config, or 1, 0 and 1
        seed               from 0 to 2^63 - 1; None: of torch's generator. A row's draws depend on the seed, its place
                           in the batch and the step, and not on what else is in the batch
        draft              a PromptLookup or a DraftModel, which drafts several tokens of a row; a step of the model then
                           says which are kept. Tokens are the same, or drawn by the same probabilities, but not by the
                           same random numbers
        streamer           of transformers: its put has the prompts, then the tokens of each step, and its end is called

        It is over when all rows have ended. A GPU does not wait for the host at each step: the tokens are copied behind
        it, and up to `ahead` further steps are under way when the host sees that rows ended; what these add is dropped.
        Without eos, stop strings and streamer nothing is copied. The cache holds of each row all tokens but the last.
        """
        streamer = words.get("streamer")
        try:
            return self._generate(request_of(self, ids, max_new_tokens, words))
        finally:  # whatever happens: others may wait for it
            if hasattr(streamer, "end"):
                streamer.end()

    def _generate(self, request):
        found = []
        if request.is_watched:
            rows = Rows(request)
            for _ in self._watched(request, rows, found):
                pass
        else:
            for step in range(request.most):
                found.append(self._token(request, step))
        new = torch.stack(found, 1)
        if request.is_watched:
            new = new[:, : rows.steps]
            behind = torch.arange(rows.steps) >= rows.kept[:, None]
            new = new.masked_fill(behind.to(self.device), request.pad)
        return torch.cat([request.ids.to(self.device), new], 1)

    def stream(self, ids, max_new_tokens=None, **words):
        """An iterator of what generate finds: of each step the tokens, int64 [batch], on the host, as soon as they are
        there, until all rows have ended. Its arguments are those of generate, but for streamer. It is over when the
        Decoder is used for something else."""
        if words.get("streamer") is not None:
            raise ValueError("streamer goes with generate: stream gives the tokens itself")
        request = request_of(self, ids, max_new_tokens, words)
        return self._watched(request, Rows(request), [])

    def _watched(self, request, rows, found):
        """Of each step the tokens on the host, of rows that ended the pad token; all, on the device, into found."""
        streamer = request.streamer
        if streamer is not None:
            streamer.put(request.ids)
        for tokens in self._on_host(request, rows, found):
            tokens = rows.put(tokens)
            if streamer is not None:
                streamer.put(tokens)
            yield tokens
            if rows.ended.all():
                break
        if self._turn is request:
            self.cache.rewind([length + kept - 1 for length, kept in zip(request.lengths, rows.kept.tolist())])

    def _on_host(self, request, rows, found):
        """The tokens of each step, on the host: behind those that are given at most `ahead` steps are under way."""
        if request.draft is not None:
            for tokens in steps(self, request, rows):
                found.append(tokens.to(self.device))
                yield tokens
            return
        sent = None
        for step in range(request.most):
            if step:
                self.check_turn(request)
            found.append(self._token(request, step))
            if sent is None:
                sent = Sent(found[0], self.ahead if is_asynchronous(self.device) else 0)
            sent.send(found[-1])
            if len(sent) == len(sent.slots):
                yield sent.take()
        while len(sent):
            yield sent.take()

    @torch.no_grad()
    def _token(self, request, step):
        """The tokens of a step, on the device; the first is behind the prompts."""
        if step == 0:
            if self.device.type == "cuda" and self.graph is None:
                self.cache.reset()
                self.capture()
            logits = self.begin(request)
            if self.graph is None:
                self.token = torch.empty(len(request.lengths), dtype=torch.int64, device=self.device)
                self.logits = logits
            else:
                self.logits.copy_(logits)
        else:
            self.step()
        if request.sampling is not None:  # behind the graph, whose launches have the same arguments at each step
            self.token.copy_(request.sampling.draw(self.logits, step))
        elif step == 0:
            self.token.copy_(argmax(self.logits))
        return self.token.clone()

    @torch.no_grad()
    def begin(self, request):
        """The prompts of a request into the cache, whose steps are under way from here on: the logits behind them."""
        self.cache.reset()
        self._turn = request
        return self._prompts(request.flat, request.lengths)

    def first(self, request):
        """The tokens behind the prompts of a request whose further ones are drafted."""
        logits = self.begin(request)
        return argmax(logits) if request.sampling is None else request.sampling.draw(logits, 0)

    def check_turn(self, request):
        """RuntimeError where the steps under way are those of another request."""
        if self._turn is not request:
            raise RuntimeError("the Decoder has been used for something else: this stream is over")


def is_asynchronous(device):
    """Are steps under way when a launch returns? The interpreter is done then."""
    return device.type == "cuda"


def ranks_of(blocks):
    """The process group that the layers are split over, as (group,), where None is that of all; None: they are not."""
    for block in blocks:
        for module in block.modules():
            if isinstance(module, (parallel.ColumnParallelLinear, parallel.RowParallelLinear)):
                return (module.process_group,)
    return None
