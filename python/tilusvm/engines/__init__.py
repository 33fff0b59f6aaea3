"""What the plugins for serving engines (vLLM, SGLang) share, without an engine: configuration, weights of a rank, caches.

scheme: how layers are quantized, by the configuration and by the headers of the files; parts: what a rank has of packed
weights, cut as they are read; layers: the linear layers and the experts of an engine; cache: the types of a cache.
"""
