"""Checks of a network that transformers has loaded: what its files declare is used, or the model is refused.

Transformers draws weights at random that files lack, drops those that a class does not take, leaves buffers
that are in no file as its loader makes them, and runs its own class in place of one whose Python files may
not run; none of that is an error for it. Each check here is one function. What it compares with comes
another way: from the report of the files' names, or from the class built without `from_pretrained`.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.encoders.torch.adapters import merge_adapter
from pipeline.encoders.torch.devices import is_out_of_memory
from pipeline.models.card import family_of
from pipeline.models.files import ADAPTER, ADAPTER_FOLDER, damaged, untrusted_code
from pipeline.models.model import ResolvedBase

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

Report = Mapping[str, Collection[str]]
"""Names of weights, by what transformers says of them: `missing_keys`, `unexpected_keys`."""
Figures = dict[str, str]
"""What each check has found, by its name, for people."""


def load_checked(
    model: ResolvedBase, original: Callable[..., Any], kind: type, *arguments: Any, **settings: Any
) -> Any:
    """Load a network by transformers' `from_pretrained`, check it, and merge its adapter.

    It is compared with what the model's files declare, and keeps the `Figures`.

    Raises:
        InputError: Files lack weights, or have others than the network takes; or the class that they name did
            not run.
    """
    import transformers

    asked = settings.pop("output_loading_info", False)
    network, report = original(kind, *arguments, output_loading_info=True, **settings)
    name, own = type(network).__name__, not architecture(network)
    declared = next(iter(model.card.architectures), name)
    # a `model_type` that transformers knows is enough for it to run a network of its own
    if not own and model.card.own_code and not hasattr(transformers, declared):
        raise untrusted_code(model.name, f": it is a {declared}, and transformers would run its own {name}")
    lacking = check_lacking(model, network, report) if report["missing_keys"] else "none"
    unused = check_dropped(model, network, report) if report["unexpected_keys"] else "none"
    network.figures = {
        "code": f"{name}, the model's own code" if own else f"{name} of transformers",
        "weights that its files lack": lacking,
        "weights that are not used": unused,
        "buffers that are in no file": check_own_buffers(model, network) if own else "made by transformers",
    }
    if (model.files.folder() / ADAPTER_FOLDER / ADAPTER).is_file():
        network = merge_adapter(network, model)
    return (network, report) if asked else network


def architecture(network: torch.nn.Module) -> str:
    """A network's class in transformers, as "bert.BertModel"; "" for other classes, and for subclasses."""
    kind = type(network)
    steps = kind.__module__.split(".")
    return f"{steps[2]}.{kind.__name__}" if steps[:2] == ["transformers", "models"] else ""


def check_lacking(model: ResolvedBase, network: PreTrainedModel, report: Report) -> str:
    """Refuse a network some of whose weights are in no file, but for a pooler that nothing reads.

    A pooler's missing weights are made NaN, which shows if they are used; see `observe`.
    """
    import torch

    missing = sorted(report["missing_keys"])
    other = [name for name in missing if "pooler." not in f".{name}"]
    if other:
        raise _lacking(model.name, other, report)
    for name in missing:
        with torch.no_grad():
            network.get_parameter(name).fill_(torch.nan)
    return f"{counted(len(missing), 'weight')} of a pooler"


def _lacking(name: str, missing: list[str], report: Report) -> InputError:
    lacking = f"model '{name}': its files lack {counted(len(missing), 'weight')}, such as {missing[0]}"
    wrapped = (
        stored.removesuffix(weight)
        for weight in missing
        for stored in sorted(report["unexpected_keys"])
        if stored.endswith(f".{weight}")
    )
    prefix = next(wrapped, "")
    if not prefix:
        return damaged(lacking)
    return InputError(
        f"{lacking}, and hold {prefix}{missing[0]}",
        allowed="the names that transformers gives to weights",
        fix=f"save the network without what wraps it, or remove '{prefix}' from the names of its tensors",
    )


def check_dropped(model: ResolvedBase, network: PreTrainedModel, report: Report) -> str:
    """Refuse a network that leaves out weights of its own parts that are in the files.

    Weights of other parts, such as the head of a language model, are not needed for vectors or scores, nor
    are those of a pooler where the class has none.
    """
    body = network.base_model
    parts = {*dict(network.named_children()), *dict(body.named_children())} - {network.base_model_prefix}
    parts |= {name for name, _ in body.named_parameters(recurse=False)}
    dropped, unused = list[str](), list[str]()
    for name in sorted(report["unexpected_keys"]):
        steps = name.removeprefix(f"{network.base_model_prefix}.").split(".")
        (dropped if steps[0] in parts and "pooler" not in steps else unused).append(name)
    if dropped:
        raise InputError(
            f"model '{model.name}': {type(network).__name__} leaves out {counted(len(dropped), 'weight')} of "
            f"its files, such as {dropped[0]}",
            allowed="a network that takes all weights of its parts",
            fix="check the settings in its config.json, such as the number of layers and the kind of "
            "positions, or use the class that the weights are of",
        )
    return f"{counted(len(unused), 'weight')}, such as {unused[0]}"


def check_own_buffers(model: ResolvedBase, network: PreTrainedModel) -> str:
    """Give a network of the model's own code the buffers that its class makes on a CPU; count those.

    Transformers builds a network without memory, and then only its own classes fill such buffers again.
    """
    import torch

    loaded = dict(_unsaved_buffers(network))
    if not loaded:
        return "none"
    first, second = (dict(_unsaved_buffers(_build(network, seed))) for seed in range(2))
    changed = 0
    for name, buffer in loaded.items():
        computed = first.get(name)
        if computed is None or computed.is_meta or not torch.equal(computed, second[name]):
            raise InputError(
                f"model '{model.name}': its buffer {name} is in no file, and its Python files make another "
                "one each time, or one of weights",
                allowed="buffers that are saved, or made of the model's config alone",
                fix="choose another model",
            )
        if buffer.shape != computed.shape or not torch.equal(buffer.cpu(), computed.to(buffer.dtype)):
            owner, _, own = name.rpartition(".")
            network.get_submodule(owner)._buffers[own] = computed.to(buffer.device, buffer.dtype)
            changed += 1
    return f"{counted(len(loaded), 'buffer')}, {changed} of them made again on the CPU"


def _unsaved_buffers(network: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The buffers of a network that no file has, with their names."""
    for place, module in network.named_modules():
        for name in sorted(module._non_persistent_buffers_set):
            buffer = module._buffers.get(name)
            if buffer is not None:
                yield f"{place}.{name}".lstrip("."), buffer


def _build(network: PreTrainedModel, seed: int) -> PreTrainedModel:
    """A network of the same class with the buffers that it makes, its weights left out."""
    import torch

    original = torch.nn.Module.register_parameter

    def without_memory(module: torch.nn.Module, name: str, weight: Any) -> None:
        meta = None if weight is None else torch.nn.Parameter(weight.to("meta"), weight.requires_grad)
        original(module, name, meta)

    with contextlib.ExitStack() as stack:
        stack.callback(setattr, torch.nn.Module, "register_parameter", original)
        torch.nn.Module.register_parameter = without_memory  # type: ignore[assignment, method-assign]
        stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.manual_seed(seed)
        return type(network)(copy.deepcopy(network.config))


SHORT, LONG = 5, 12  # words of the texts that a network is observed on
ROUNDING = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.1}
"""How far numbers of a text alone and beside padding may differ, as a share of the largest, by number format.
With a format's own rounding, networks of 2 to 24 layers stay below a tenth of that."""


class NetworkBehaviour(NamedTuple):
    """What a network does to a few tokens."""

    figures: Figures
    reads_padding: bool  # whether what is computed of a text depends on the padding behind it


def observe(model: ResolvedBase, network: torch.nn.Module) -> NetworkBehaviour:
    """Run a network on a few made-up tokens, and compare what it does with what is declared.

    Of a module that is no network of transformers, those in it are run; of networks inside others the whole.

    Raises:
        InputError: It cannot be run; it uses a pooler's weights that its files lack, see `check_lacking`; or
            tokens see others than the files say.
    """
    from transformers import PreTrainedModel

    if not isinstance(network, PreTrainedModel):
        inner = [observe(model, child) for child in network.children()]
        merged = {name: figure for part in inner for name, figure in part.figures.items()}
        return NetworkBehaviour(merged, any(part.reads_padding for part in inner))
    alone, beside, both = _outputs(model, network)
    weights = dict(network.named_parameters())
    lacking = [name for name in weights if "pooler." in f".{name}" and weights[name].isnan().all()]
    if lacking and any(output.isnan().any() for output in alone):
        raise _lacking(model.name, sorted(lacking), {"unexpected_keys": ()})
    for name in lacking:
        weights[name].data.zero_()
    config, family = model.card.config, family_of(model.name)
    declared_both = (
        config.get("is_causal") is False
        or config.get("use_bidirectional_attention") in (True, "all")
        or (family is not None and family.bidirectional)
    )
    if (both is False and declared_both) or (both and config.get("is_causal") is True):
        raise _other_attention(model.name, both)
    attention = {
        None: "not observed, as it gives no state for each token",
        True: "a token sees those before and after it",
        False: "a token sees those before it",
    }[both]
    difference = max(
        float((padded[:, : whole.shape[1]] - whole).abs().max() / whole.abs().max())
        for whole, padded in zip(alone, beside, strict=True)
    )
    rounding = ROUNDING.get(str(next(network.parameters()).dtype).removeprefix("torch."), 0.1)
    padding = f"changes a text's numbers by {difference:.1g} of the largest"
    figures = {**getattr(network, "figures", {}), "attention": attention, "padding": padding}
    return NetworkBehaviour(figures, reads_padding=difference > rounding)


def _other_attention(name: str, both: bool) -> InputError:
    """The refusal of a network whose attention, in `both` directions or not, is not what is declared."""
    declared, found = ("as causal", "after it, too") if both else ("in both directions", "before it alone")
    return InputError(
        f"model '{name}' declares attention {declared}, and with the installed transformers a token sees "
        f"those {found}",
        allowed="a network that obeys is_causal and use_bidirectional_attention of its config.json",
        fix="set is_causal in its config.json, which transformers obeys for most decoders, or use its "
        "Python files by trust_remote_code",
    )


def _outputs(
    model: ResolvedBase, network: PreTrainedModel
) -> tuple[list[torch.Tensor], list[torch.Tensor], bool | None]:
    """What the body and the network give for a text alone and for it beside a longer one.

    And whether the first token's state depends on the last word; None if there is no state for each token.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    config, embedded = network.config, tokens_embedded(network) or 64
    first, last = (
        next((number for name in names if isinstance(number := getattr(config, name, None), int)), None)
        for names in (("cls_token_id", "bos_token_id"), ("sep_token_id", "eos_token_id"))
    )
    special = {first, last, model.pad_id}
    words = list(itertools.islice((n for n in itertools.cycle(range(embedded)) if n not in special), 5, 99))
    texts = list[torch.Tensor]()
    for numbers in (words[:SHORT], [*words[: SHORT - 1], words[SHORT]], words[:LONG]):
        ids = [n for n in (first, *numbers, last) if n is not None and 0 <= n < embedded]
        texts.append(torch.tensor(ids[:-1] if ids[-1] == model.pad_id else ids))
    short, other, long = texts

    body: Any = network.base_model
    runs = [(part, batch) for part in dict.fromkeys((body, network)) for batch in ([short], [short, long])]
    outputs = list[torch.Tensor]()
    for part, batch in (*runs, (body, [other])):
        rows = pad_sequence(batch, batch_first=True, padding_value=model.pad_id).to(network.device)
        mask = pad_sequence([torch.ones_like(ids) for ids in batch], batch_first=True).to(network.device)
        try:
            with torch.no_grad():
                output = part(input_ids=rows, attention_mask=mask)
            outputs.append((output if isinstance(output, torch.Tensor) else output[0]).detach().float())
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            if is_out_of_memory(error) or "CUDA" in str(error):
                raise
            raise _does_not_run(model.name, error) from error
    alone, beside = outputs[:-1:2], [output[:1] for output in outputs[1:-1:2]]
    if alone[0].shape[:2] != (1, len(short)):
        return alone, beside, None
    return alone, beside, float((alone[0][0, 0] - outputs[-1][0, 0]).abs().max()) > 0


def _does_not_run(name: str, error: Exception) -> InputError:
    return InputError(
        f"model '{name}' does not run on texts: {type(error).__name__}: {error}".splitlines()[0],
        allowed="a network that takes token ids and their mask",
        fix="choose another model",
    )


def tokens_embedded(network: torch.nn.Module) -> int | None:
    """The number of tokens that a network has embeddings of; None if it does not say."""
    modules: Iterator[Any] = network.modules()
    for module in modules:
        if hasattr(module, "get_input_embeddings"):
            with contextlib.suppress(AttributeError, NotImplementedError):  # a model's own code may lack it
                return int(module.get_input_embeddings().num_embeddings)
            size = getattr(getattr(module, "config", None), "vocab_size", None)
            return size if isinstance(size, int) else None
        if type(module).__name__ == "EmbeddingBag":
            return int(module.num_embeddings)
    return None
