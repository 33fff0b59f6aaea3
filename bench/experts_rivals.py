"""Other products of mixtures of experts with low-precision weights, for bench/experts_peers.py: a Triton kernel in the
way of vLLM's fused_moe for weights of 4 bits, humming's grouped product, where that package is there, and Marlin's; and
our own: matmul_lowbit with another type (lowbit:TYPE), and with activations of 8 bits matmul_scaled (scaled, in blocks
of 128, with every kernel scaled:all) and matmul_lowbit_a8 (a8:i8, a8:f8_e4m3, also a8:i8+all).

Each has a class: rival(count, k, n, type, group) makes random weights, rival.ways(rows) are what to try, by name,
rival.prepare(offsets, rows, way) what a launch needs of the routing (of Triton and Marlin the list of tiles, which
vLLM's moe_align_block_size makes; untimed), rival.launch(i, x, prepared, out) launches, rival.dequantize(e) is float64
[k, n], and rival.seen(x), where it is there, the activations as 8 bits have them, which are made untimed.

    experts_rivals.py MIXTURE PRODUCT TOKENS...     compiles what they launch, before experts_peers.py measures"""
import ctypes
import json
import sys

import torch
import triton
import triton.language as tl

BYTES = 1 << 29
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E2M1 += [-value for value in E2M1]


RAISE = tl.constexpr(2.0**63)  # twice: from the exponents of bf16 to those of e2m1


@triton.jit
def fused_experts(
    x, w, s, out, tiles, offsets, n, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, IS_FLOAT: tl.constexpr,
):  # fmt: skip
    columns = tl.cdiv(n, BN)
    tile, column = tl.program_id(0) // columns, tl.program_id(0) % columns
    expert, begin = tl.load(tiles + 2 * tile).to(tl.int64), tl.load(tiles + 2 * tile + 1)
    if expert < 0:
        return
    rows, is_own = begin + tl.arange(0, BM), begin + tl.arange(0, BM) < tl.load(offsets + expert + 1)
    cols, at = (column * BN + tl.arange(0, BN)) % n, tl.arange(0, BK)
    a = x + rows[:, None].to(tl.int64) * k + at[None, :]
    b = w + expert * n * (k // 2) + cols[None, :] * (k // 2) + at[:, None] // 2
    scales = s + expert * n * (k // GROUP) + cols[None, :] * (k // GROUP)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, tl.cdiv(k, BK)):
        inside = step * BK + at < k
        left = tl.load(a, is_own[:, None] & inside[None, :], 0.0)
        codes = (tl.load(b, inside[:, None], 0) >> (at[:, None] % 2 * 4)) & 15
        if BK <= GROUP:
            scale = tl.load(scales + step * BK // GROUP).to(tl.float32)
        else:
            scale = tl.load(scales + (step * BK + at[:, None]) // GROUP, inside[:, None], 0.0).to(tl.float32)
        if IS_FLOAT:
            bits = ((codes.to(tl.int16) & 8) << 12) | ((codes.to(tl.int16) & 7) << 6)
            right = bits.to(tl.bfloat16, bitcast=True).to(tl.float32) * (RAISE * RAISE) * scale
        else:
            right = (codes.to(tl.float32) - 8.0) * scale
        acc = tl.dot(left, right.to(tl.bfloat16), acc)
        a += BK
        b += BK // 2
    to = column * BN + tl.arange(0, BN)
    is_own = is_own[:, None] & (to < n)[None, :]
    tl.store(out + rows[:, None].to(tl.int64) * n + to[None, :], acc.to(tl.bfloat16), is_own)


class Triton:
    """With the best of a few tiles, tried at each number of rows."""

    def __init__(self, count, k, n, type, group):
        self.k, self.n, self.count, self.group, self.is_float = k, n, count, group, type[0] == "f"
        self.copies = max(2 if BYTES else 1, BYTES // (count * k * n // 2))
        self.w = torch.randint(0, 256, (self.copies, count, n, k // 2), dtype=torch.uint8, device="cuda")
        self.s = (torch.rand((self.copies, count, n, k // group), device="cuda") * 0.01 + 0.01).bfloat16()

    def ways(self, rows):
        """Tiles of (rows, columns, k), warps and stages, as many of vLLM's tables have them."""
        each = rows / self.count
        height = 16 if each <= 16 else 64 if each <= 64 else 128
        tiles = (height, 64, 64, 4, 4), (height, 128, 64, 8 if height == 128 else 4, 3)
        return {f"triton {tile[0]}x{tile[1]}": tile for tile in tiles}

    def prepare(self, offsets, rows, tile):
        sizes = offsets.diff()
        most = min(rows, rows // tile[0] + self.count)
        ends = ((sizes + tile[0] - 1) // tile[0]).cumsum(0)
        at = torch.arange(most, device="cuda")
        expert = torch.searchsorted(ends, at, right=True)
        known = expert < self.count
        expert = expert.clamp(max=self.count - 1)
        first = torch.where(expert > 0, ends[(expert - 1).clamp(min=0)], 0)
        begin = offsets[expert] + (at - first) * tile[0]
        return torch.stack([torch.where(known, expert, -1), begin], -1).int().contiguous(), offsets, tile

    def launch(self, i, x, prepared, out):
        tiles, offsets, (bm, bn, bk, warps, stages) = prepared
        i %= self.copies
        grid = (tiles.shape[0] * triton.cdiv(self.n, bn),)
        fused_experts[grid](
            x, self.w[i], self.s[i], out, tiles, offsets, self.n, self.k,
            BM=bm, BN=bn, BK=bk, GROUP=self.group, IS_FLOAT=self.is_float, num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def dequantize(self, e):
        codes = torch.stack([self.w[0, e] & 15, self.w[0, e] >> 4], -1).view(self.n, self.k)
        return numbers(codes, self.is_float).mul(self.s[0, e].double().repeat_interleave(self.group, 1)).t()


def numbers(codes, is_float):
    return torch.tensor(E2M1, dtype=torch.float64, device="cuda")[codes.long()] if is_float else codes.double() - 8


class Humming:
    def __init__(self, count, k, n, type, group):
        from humming.layer import HummingLayer

        self.k, self.n, self.count, self.group, self.is_float = k, n, count, group, type[0] == "f"
        size = count * k * n // 2
        self.copies = max(2 if BYTES else 1, BYTES // size)
        kind = {"dtype": "float4e2m1" if self.is_float else "uint4", "group_size": group}
        self.layers, self.tuned = [], {}
        for i in range(self.copies):
            layer = HummingLayer(n, k, dict(kind), num_experts=count, torch_dtype=torch.bfloat16).cuda()
            words = torch.randint(-(2**31), 2**31, (count, n, k // 8), dtype=torch.int32, device="cuda")
            scales = (torch.rand((count, n, k // group), device="cuda") * 0.01 + 0.01).bfloat16()
            assert layer.weight.shape == words.shape, (layer.weight.shape, words.shape)
            if i == 0:
                self.words, self.scales = words.clone(), scales.clone()
            layer.weight.data, layer.weight_scale.data = words, scales.view(layer.weight_scale.shape)
            layer.transform()
            self.layers.append(layer)
        self.config = json.dumps({"gemm_type": "grouped_contiguous"})

    def tuning(self, rows):
        from humming.tune import get_heuristics_config

        if rows not in self.tuned:
            config = get_heuristics_config(self.layers[0].humming_config, shape_m=rows, gemm_type="grouped_contiguous")
            self.tuned[rows] = json.dumps(config)
        return self.tuned[rows]

    def ways(self, rows):
        return {"humming": self.tuning(rows)}

    def prepare(self, offsets, rows, way):
        return offsets.long(), way

    def launch(self, i, x, prepared, out):
        offsets, tuning = prepared
        self.layers[i % self.copies](x, out, expert_layout=offsets, compute_config=self.config, tuning_config=tuning)

    def dequantize(self, e):
        codes = (self.words[e].long()[..., None] >> 4 * torch.arange(8, device="cuda")) & 15
        scales = self.scales[e].double().repeat_interleave(self.group, 1)
        return (numbers(codes.view(self.n, self.k), self.is_float) * scales).t()


# Where vLLM's Marlin has the weights of 16 rows and 64 columns, in words of 8, and 64 scales of a group of rows.
MARLIN_ROWS = [16 * (2 * (i % 4) + r) + i // 4 + 8 * c for i in range(32) for c in (0, 1) for r in (0, 1, 8, 9)]
MARLIN = [MARLIN_ROWS[8 * i + p] + 256 * j for i in range(32) for j in range(4) for p in (0, 2, 4, 6, 1, 3, 5, 7)]
MARLIN_SCALES = [i + 8 * j for i in range(8) for j in range(8)]


class Marlin:
    """vLLM's product of fused_marlin_moe, with its host's choice, by the library of bench/marlin_moe_glue.cu."""

    def __init__(self, count, k, n, type, group, library):
        if (type, group) != ("u4", 128):
            raise ValueError("u4 in groups of 128 alone")
        self.library = ctypes.CDLL(library)
        self.k, self.n, self.count = k, n, count
        self.copies = max(2 if BYTES else 1, BYTES // (count * k * n // 2))
        shape = (self.copies, count, k // 16, n * 2)
        self.w = torch.randint(-(2**31), 2**31, shape, dtype=torch.int32, device="cuda")
        self.s = (torch.rand((self.copies, count, k // 128, n), device="cuda") * 0.01 + 0.01).bfloat16()
        self.multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
        self.locks = torch.zeros(4 * self.multiprocessors, dtype=torch.int32, device="cuda")
        self.parts = torch.empty(4 * self.multiprocessors * 64 * 256, device="cuda")
        self.ones = torch.ones(1 << 17, device="cuda")

    def ways(self, rows):
        """The tile's rows, as fused_marlin_moe chooses them."""
        height = next((h for h in (8, 16, 32, 48, 64) if rows / self.count / h < 0.9), 64)
        return {"marlin": height}

    def prepare(self, offsets, rows, height):
        """What moe_align_block_size makes: the rows of each tile, `rows` for none, its expert, and all tiles' rows."""
        sizes = offsets.diff().tolist()
        tiles = [-(-size // height) for size in sizes]
        places = torch.full((sum(tiles) * height,), rows, dtype=torch.int32)
        at = row = 0
        for size, of_expert in zip(sizes, tiles):
            places[at : at + size] = torch.arange(row, row + size)
            at, row = at + of_expert * height, row + size
        experts = torch.repeat_interleave(torch.arange(self.count), torch.tensor(tiles)).int()
        return places.cuda(), experts.cuda(), torch.tensor([len(places)]).int().cuda(), height

    def launch(self, i, x, prepared, out):
        places, experts, padded, height = prepared
        i %= self.copies
        tensors = x, self.w[i], out, self.parts, self.s[i], places, experts, padded, self.ones, self.locks
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        sizes = height, self.count, x.shape[0], self.n, self.k, self.multiprocessors
        self.library.marlin_moe(*pointers, *sizes, stream)

    def dequantize(self, e):
        codes = (self.w[0, e].long()[..., None] >> 4 * torch.arange(8, device="cuda")) & 15
        found, scales = torch.empty_like(codes).view(-1, 1024), torch.empty_like(self.s[0, e]).view(-1, 64)
        found[:, MARLIN], scales[:, MARLIN_SCALES] = codes.view(-1, 1024), self.s[0, e].view(-1, 64)
        found = found.view(self.k // 16, self.n // 16, 16, 16).permute(0, 2, 1, 3).reshape(self.k, self.n)
        return (found - 8).double() * scales.view(-1, self.n).double().repeat_interleave(128, 0)


class Lowbit:
    """Ours, with another type of weights."""

    def __init__(self, count, k, n, type, group, other):
        from experts_peers import Stack

        self.name, self.stack = other, Stack(count, k, n, other, group)
        if other.startswith("f8"):
            self.stack.packed &= 0xBF  # no NaN

    def ways(self, rows):
        return {self.name: None}

    def prepare(self, offsets, rows, way):
        return offsets

    def launch(self, i, x, offsets, out):
        return self.stack.entry(i, x, offsets, out)

    def dequantize(self, e):
        return self.stack.layers.linear(e).dequantize(torch.float64).T


class Eight:
    """Ours, with activations of 8 bits: which program, its constants, and what is measured."""

    def __init__(self, count, k, n, name, constants, every):
        from tilusvm import ops

        self.k, self.n, self.count, self.name, self.taken = k, n, count, name, {}
        self.program = ops.program(name, EXPERTS=True, OTYPE="bf16", **constants)
        self.every = every

    def ways(self, rows):
        names = [n for n in self.program if n not in ("pack", self.name) and "plain" not in n and "tensor" not in n]
        return {n: n for n in [self.name, *(names if self.every else ())]}

    def prepare(self, offsets, rows, way):
        return offsets, self.program[way]

    def activations(self, x):
        if x.data_ptr() not in self.taken:
            self.taken = {x.data_ptr(): self.narrow(x)}
        return self.taken[x.data_ptr()]

    def seen(self, x):
        return self.activations(x)[2]


class Scaled(Eight):
    """f8 by f8 in blocks of 128, as DeepSeek-V3."""

    def __init__(self, count, k, n, type, group, every=""):
        super().__init__(count, k, n, "matmul_scaled", {"BY_GROUP": True}, every == "all")
        self.copies = max(2 if BYTES else 1, BYTES // (count * k * n))
        self.w = torch.randint(0, 256, (self.copies, count, n, k), dtype=torch.uint8, device="cuda") & 0xBF
        self.s = torch.rand((self.copies, count, -(-n // 128), k // 128), device="cuda") * 0.01 + 0.01

    def narrow(self, x):
        groups = x.float().view(x.shape[0], -1, 128)
        scale = groups.abs().amax(-1, keepdim=True) / 448
        a = (groups / scale).to(torch.float8_e4m3fn)
        by_group = torch.zeros(self.k // 128, -(-x.shape[0] // 4) * 4, device="cuda")
        by_group[:, : x.shape[0]] = scale[..., 0].t()
        return a.view(x.shape), by_group, (a.double() * scale).view(x.shape)

    def launch(self, i, x, prepared, out):
        offsets, kernel = prepared
        a, scales, _ = self.activations(x)
        i %= self.copies
        sizes = x.shape[0], self.n, self.k, self.count
        kernel(*sizes, a.view(torch.uint8), offsets, self.w[i], scales, self.s[i], out)

    def dequantize(self, e):
        scale = self.s[0, e].double().repeat_interleave(128, 0)[: self.n].repeat_interleave(128, 1)
        return (self.w[0, e].view(torch.float8_e4m3fn).double() * scale).t()


class Act8(Eight):
    """Weights of the mixture's type by activations of 8 bits, of which a row has a scale."""

    def __init__(self, count, k, n, type, group, atype="i8"):
        self.atype, every = (atype + "+").split("+")[:2]
        super().__init__(
            count, k, n, "matmul_lowbit_a8", {"WTYPE": type, "GROUP": group, "ATYPE": self.atype}, every == "all"
        )
        size = count * k * n // 2
        self.copies = max(2 if BYTES else 1, BYTES // size)
        shape = (self.copies, count, n // 64, k // 128, 4096)
        self.p = torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda")
        self.codes = torch.randint(0, 256, (k, count * n // 2), dtype=torch.uint8, device="cuda")
        self.program["pack"](k, count * n, self.codes, self.p[0].view(count * n // 64, k // 128, 4096))
        self.s = torch.rand((self.copies, count, k // group, n), device="cuda") * 0.01 + 0.01
        self.group = group

    def narrow(self, x):
        most = 127 if self.atype == "i8" else 448
        scale = x.float().abs().amax(-1, keepdim=True) / most
        a = x.float() / scale
        a = a.round().to(torch.int8) if self.atype == "i8" else a.to(torch.float8_e4m3fn)
        return a, scale, a.double() * scale

    def launch(self, i, x, prepared, out):
        offsets, kernel = prepared
        a, scales, _ = self.activations(x)
        i %= self.copies
        a = a if self.atype == "i8" else a.view(torch.uint8)
        kernel(x.shape[0], self.n, self.k, self.count, a, offsets, self.p[i], scales, self.s[i], out)

    def dequantize(self, e):
        own = self.codes[:, e * self.n // 2 : (e + 1) * self.n // 2]
        codes = torch.stack([own & 15, own >> 4], -1).view(self.k, self.n)
        return numbers(codes, False) * self.s[0, e].double().repeat_interleave(self.group, 0)


RIVALS = {"triton": Triton, "humming": Humming, "marlin": Marlin, "lowbit": Lowbit, "scaled": Scaled, "a8": Act8}


def warm(mixture, product, *tokens):
    global BYTES
    from experts_peers import MIXTURES

    BYTES = 0
    count, top, hidden, inner, type, group = MIXTURES[mixture]
    k, n = (hidden, 2 * inner) if product == "gate_up" else (inner, hidden)
    for rival in (Triton, Humming):
        made = rival(count, k, n, type, group)
        for rows in (int(m) * top for m in tokens):
            offsets = torch.linspace(0, rows, count + 1, device="cuda").int()
            x, out = (torch.zeros(rows, width, device="cuda", dtype=torch.bfloat16) for width in (k, n))
            for way in made.ways(rows).values():
                made.launch(0, x, made.prepare(offsets, rows, way), out)


if __name__ == "__main__":
    warm(*sys.argv[1:])
