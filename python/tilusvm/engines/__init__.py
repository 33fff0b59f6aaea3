"""What the plugins for serving engines (vLLM, SGLang) share: configuration, weights of a rank, products, caches.

scheme: how layers are quantized, by the configuration and by the headers of the files; parts: what a rank has of packed
weights, cut as they are read; foreign: of those of other methods; layers: the products of linear layers and of experts;
loader and methods: what classes of an engine are mixed with; cache: the types of a cache. Nothing here imports an
engine.
"""
