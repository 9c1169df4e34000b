"""A key-value cache with a slot for each row that decodes, for continuous batching.

The keys of all layers lie in one tensor, the values in another: a step writes its tokens into them in place, and
attends to the columns in use. Running rows take the first slots, so a row that ends is replaced by the last one. On a
GPU a step is a CUDA graph, which saves the kernel launches; there the number of rows and columns is rounded up, so that
few graphs are made.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers import Cache, DynamicCache

_COLUMNS = 128  # the cache grows by multiples of this
_ROWS = 8  # the rows of the smallest graph; larger ones have powers of two
_PREFILL_TOKENS = 8192  # the most tokens of prompts, with padding, in one forward pass


def inner(model: Any) -> Any:
    """The model inside an adapter (PEFT), or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def holds(model: Any) -> bool:
    """Whether a model's cache is one of plain attention, with masks that can be given to it."""
    wanted = inner(model)
    known = inspect.signature(type(wanted).forward).parameters
    if not {"position_ids", "past_key_values", "logits_to_keep"} <= known.keys():
        return False
    if getattr(wanted.config, "_attn_implementation", None) not in ("sdpa", "eager"):
        return False
    layers = DynamicCache(config=wanted.config).layers
    return bool(layers) and all(type(layer).__name__ == "DynamicLayer" for layer in layers)


class SlotCache:
    """The cache of one model. `join` adds rows, `step` gives their next logits, `write` says the chosen tokens."""

    def __init__(self, model: Any, size: int) -> None:
        self._model, self._size = model, size
        self._graphs: dict[tuple[int, int], tuple[Any, torch.Tensor]] = {}
        self._weights: tuple[int, ...] = ()
        self._stores: list[torch.Tensor] = []  # keys and values: layer, slot, head, column, size
        self._view: _View | None = None

    def begin(self) -> None:
        """Forget all rows. Graphs stay unless the weights moved to other addresses."""
        device = self._model.device
        if self._view is None or self._view.tokens.device != device:
            self._stores, self._view = [], _View(self._size, device)
            self._graphs.clear()
        self._lengths: list[int] = []
        weights = tuple(weight.data_ptr() for weight in self._model.parameters()) if device.type == "cuda" else ()
        if weights != self._weights:
            self._graphs.clear()
            self._weights = weights

    def join(self, prompts: list[list[int]]) -> None:
        """Fill new slots with prompts, each but for its last token, which is the row's next one to step."""
        assert self._view is not None
        first = len(self._lengths)
        slots: dict[tuple[int, ...], list[int]] = {}
        for slot, prompt in enumerate(prompts, first):
            slots.setdefault(tuple(prompt[:-1]), []).append(slot)
        self._lengths += [len(prompt) - 1 for prompt in prompts]
        for chunk in _chunks(sorted((text for text in slots if text), key=len)):
            self._fill(chunk, [slots[text] for text in chunk])
        tokens = torch.tensor([prompt[-1] for prompt in prompts], device=self._view.tokens.device)
        self._view.tokens[first : first + len(prompts)] = tokens
        self._place()

    def step(self) -> torch.Tensor:
        """The logits of the next token of each row."""
        assert self._view is not None
        rows, columns = len(self._lengths), max(self._lengths) + 1
        self._reserve(columns)
        if self._view.tokens.device.type != "cuda":
            return self._forward(rows, columns)
        rows_up = min(max(_ROWS, 1 << (rows - 1).bit_length()), self._size)
        columns_up = _up(columns, _COLUMNS)
        captured = self._graphs.get((rows_up, columns_up))
        if captured is None:
            captured = self._graphs[rows_up, columns_up] = self._capture(rows_up, columns_up)
        graph, logits = captured
        graph.replay()
        return logits[:rows]

    def erase(self, slots: list[int]) -> None:
        """Clear slots whose keys or values may be NaN: a mask does not hide NaN from the next row of the slot."""
        for slot in slots:
            for store in self._stores:
                store[:, slot].zero_()

    def keep(self, slots: list[int]) -> list[int]:
        """Drop all other rows. Returns which row is now in each of the first slots."""
        count = len(slots)
        free = sorted(set(range(count)) - set(slots))
        moved = [slot for slot in slots if slot >= count]
        now = list(range(count))
        for slot, source in zip(free, moved, strict=True):
            now[slot] = source
        if moved:
            used = max(self._lengths[slot] for slot in moved) + 1
            for store in self._stores:
                at, source_at = (torch.tensor(numbers, device=store.device) for numbers in (free, moved))
                store[:, at, :, :used] = store[:, source_at, :, :used]
        self._lengths = [self._lengths[slot] for slot in now]
        return now

    def write(self, tokens: torch.Tensor) -> None:
        """The tokens that were chosen for the rows, to be stepped next."""
        assert self._view is not None
        self._view.tokens[: len(tokens)] = tokens
        self._lengths = [length + 1 for length in self._lengths]
        self._place()

    def _place(self) -> None:
        """Tell the model in which column of its slot each row writes. Unused slots write into their first."""
        assert self._view is not None
        lengths = self._lengths + [0] * (self._size - len(self._lengths))
        self._view.columns.copy_(torch.tensor(lengths))

    def _fill(self, texts: list[tuple[int, ...]], slots: list[list[int]]) -> None:
        """Compute texts of about one length, padded on the right where no token looks, and copy them to their slots."""
        width = len(texts[-1])
        device = self._model.device
        ids = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts], device=device)
        cache = DynamicCache(config=inner(self._model).config)
        self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1, return_dict=True)
        computed = [[layer.keys for layer in cache.layers], [layer.values for layer in cache.layers]]
        if not self._stores:
            self._stores = [_empty(states, self._size, _up(width + 1, _COLUMNS)) for states in computed]
        self._reserve(width + 1)
        source = torch.tensor([index for index, places in enumerate(slots) for _ in places], device=device)
        places = torch.tensor([slot for places in slots for slot in places], device=device)
        for store, states in zip(self._stores, computed, strict=True):
            for layer, state in enumerate(states):
                store[layer, places, :, :width] = state[source].to(store.dtype)

    def _reserve(self, columns: int) -> None:
        """Make room for this number of columns."""
        if not self._stores:  # only prompts of one token so far: no text has shown the shape yet
            self._fill([(0,)], [[0]])
        have = self._stores[0].shape[3]
        if columns > have:
            wanted = max(_up(columns, _COLUMNS), min(2 * have, have + 1024))
            self._stores = [torch.nn.functional.pad(store, (0, 0, 0, wanted - have)) for store in self._stores]
            self._graphs.clear()  # they write to the old addresses

    def _forward(self, rows: int, columns: int) -> torch.Tensor:
        assert self._view is not None
        self._view.use(self._stores, rows, columns)
        at = self._view.columns[:rows, None]
        seen = torch.arange(columns, device=at.device) <= at
        dtype = self._stores[0].dtype
        mask = torch.zeros(seen.shape, dtype=dtype, device=at.device).masked_fill_(~seen, torch.finfo(dtype).min)
        output = self._model(
            input_ids=self._view.tokens[:rows, None],
            attention_mask=mask[:, None, None],
            position_ids=at,
            past_key_values=self._view,
            logits_to_keep=1,
            use_cache=True,
            return_dict=True,
        )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _capture(self, rows: int, columns: int) -> tuple[Any, torch.Tensor]:
        """A CUDA graph of one step. Two steps before it warm the libraries up; they write what the graph writes."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._forward(rows, columns)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            logits = self._forward(rows, columns)
        return graph, logits


class _View(Cache):  # type: ignore[misc]  # transformers has no types
    """The model's view of the cache in one step: the slots and columns in use."""

    def __init__(self, size: int, device: torch.device) -> None:
        super().__init__(layers=[])
        self.tokens = torch.zeros(size, dtype=torch.long, device=device)
        self.columns = torch.zeros(size, dtype=torch.long, device=device)
        self._slots = torch.arange(size, device=device)

    def use(self, stores: list[torch.Tensor], rows: int, columns: int) -> None:
        """Show this number of slots and columns of the keys and values."""
        self._stores, self._rows, self._columns = stores, rows, columns

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one token of each row, and return the keys and values of all columns in use."""
        keys, values = (store[layer_idx] for store in self._stores)
        slots, at = self._slots[: self._rows], self.columns[: self._rows]
        # Under a trainer's mixed precision a step computes other types than the cache of the prompt has.
        keys[slots, :, at] = key_states[:, :, 0].to(keys.dtype)
        values[slots, :, at] = value_states[:, :, 0].to(values.dtype)
        return keys[: self._rows, :, : self._columns], values[: self._rows, :, : self._columns]


def _empty(states: list[Any], size: int, columns: int) -> torch.Tensor:
    """A store for states such as these, one of each layer."""
    _, heads, _, width = states[0].shape
    return torch.zeros((len(states), size, heads, columns, width), dtype=states[0].dtype, device=states[0].device)


def _up(number: int, step: int) -> int:
    """The next multiple of a step."""
    return -(-number // step) * step


def _chunks(texts: list[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Split texts, sorted by length, into groups that one forward pass takes."""
    groups: list[list[tuple[int, ...]]] = []
    for text in texts:
        if groups and len(text) * (len(groups[-1]) + 1) <= _PREFILL_TOKENS:
            groups[-1].append(text)
        else:
            groups.append([text])
    return groups
