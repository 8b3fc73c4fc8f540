"""The rows of a batch that may come and go between two steps, and their KV cache."""

import inspect


class Rows:
    """The live rows of a batch: ids, context lengths, last tokens, and their KV cache.

    Keys and values are [rows, kv_heads, columns, head_dim], each row to the right: what
    lies left of a row's start is hidden by the mask.
    """

    def __init__(self, model):
        names = inspect.signature(model.forward).parameters
        self.model, self.takes = model, "cache" if "cache" in names else "past_key_values"
        self.ids, self.lengths, self.kv = [], [], []

    def join(self, ids: list[int], prompts: list[list[int]], tokens: list) -> None:
        """Prefill `prompts` in one pass and put their rows below those that are there."""
        wide = max(map(len, prompts))
        padded = [[0] * (wide - len(p)) + list(p) for p in prompts]
        kv = self._pass(padded, [len(p) for p in prompts], wide, [], ids, tokens)
        columns = max([wide, *self.lengths])
        here = self.kv or [(None, None)] * len(kv)
        self.kv = [
            (_below(k, new_k, columns), _below(v, new_v, columns))
            for (k, v), (new_k, new_v) in zip(here, kv, strict=True)
        ]
        self.ids, self.lengths = self.ids + ids, self.lengths + [len(p) for p in prompts]

    def step(self, tokens: list) -> None:
        """One token more for every row."""
        last = [[tokens[i][-1]] for i in self.ids]
        self.lengths = [n + 1 for n in self.lengths]
        columns = max(self.lengths)
        self.kv = self._pass(last, self.lengths, columns, self.kv, self.ids, tokens)

    def keep(self, ids: list[int]) -> None:
        """Drop the other rows, and the columns that no kept row uses."""
        rows = [r for r, i in enumerate(self.ids) if i in ids]
        if len(rows) < len(self.ids):
            self.lengths = [self.lengths[r] for r in rows]
            wide = max(self.lengths, default=0)
            cut = [tuple(x[rows, :, x.shape[2] - wide :] for x in kv) for kv in self.kv]
            self.ids, self.kv = ids, cut if ids else []

    def _pass(self, rows, lengths, columns, kv, ids, tokens) -> list:
        """A forward pass; appends each row's next token and returns keys and values."""
        import torch
        from transformers import DynamicCache

        where = self.model.device
        given, cache = torch.tensor(rows, device=where), DynamicCache()
        for layer, (k, v) in enumerate(kv):
            cache.update(k, v, layer)
        start = columns - torch.tensor(lengths, device=where)[:, None]  # [rows, 1]
        at = torch.arange(columns, device=where) - start  # [rows, columns]
        spots = at[:, -given.shape[1] :].clamp(min=0)
        options = {"attention_mask": (at >= 0).long(), "position_ids": spots}
        options |= {self.takes: cache, "use_cache": True, "logits_to_keep": 1}
        logits = self.model(given, **options)[0]  # [rows, 1, vocab]
        for i, token in zip(ids, logits[:, -1].argmax(-1).tolist(), strict=True):
            tokens[i].append(token)
        return [(layer.keys, layer.values) for layer in cache.layers]


def _below(old, new, columns: int):
    """`new` under `old`, both [rows, kv_heads, time, head_dim] with zeros to their left."""
    import torch
    from torch.nn.functional import pad

    both = [pad(x, (0, 0, columns - x.shape[2], 0)) for x in (old, new) if x is not None]
    return torch.cat(both)
