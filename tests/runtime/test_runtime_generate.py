"""generate() as people call it: with and without a cache, of an encoder-decoder, streamed from a
thread, in turns with another model; tokens and logits are bit for bit the plain model's."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from torch import nn

import runtime
from runtime.unverified import offload_without_proof
from schedule import OffloadError
from tests.runtime.test_runtime_transformers import PROMPT, TOKENS, Answer, ask, built, fresh
from tests.runtime.threads import SECONDS

pytestmark = pytest.mark.usefixtures("sanitized")


@pytest.mark.parametrize("cache", [True, False], ids=["cache", "no cache"])
@pytest.mark.parametrize(("kind", "layers"), [("Qwen3", 5), ("T5", 3)])
def test_with_and_without_a_cache_tokens_are_the_plain_models(
    kind: str, layers: int, cache: bool
) -> None:
    """And the twin: the same safe schedule is wrong without the guard where an encoder, once a
    call, and a decoder, once a token, share the slots; it misses nothing where all run in order."""
    wanted = ask(built(kind, layers), use_cache=cache)
    model = fresh(kind, layers)
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        for _ in range(2):
            assert ask(model, use_cache=cache).same(wanted)
        report = offloaded.report()
        assert report.copies > TOKENS
        assert (report.misses > 0) == (kind == "T5")
    with offload_without_proof(model, slots=2, policy="chain", output_may_be_wrong=True) as it:
        assert ask(model, use_cache=cache).same(wanted) == (kind != "T5")
        assert it.report().copies > TOKENS
    with offload_without_proof(model, slots=2, policy="modular", output_may_be_wrong=True):
        assert not ask(model, use_cache=cache).same(wanted)


class Numbers:
    """A tokenizer of tokens that are their numbers."""

    def decode(self, tokens: list[int], **_: Any) -> str:
        return "".join(f"{token} " for token in tokens)


def stream(model: nn.Module) -> tuple[Any, Thread]:
    """A generation of one sequence in a thread, and its streamer."""
    transformers = pytest.importorskip("transformers")
    streamer = transformers.TextIteratorStreamer(Numbers(), timeout=SECONDS)
    options = {"do_sample": False, "pad_token_id": 0, "streamer": streamer}
    options |= {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS}
    return streamer, Thread(
        target=model.generate, kwargs={"input_ids": PROMPT[:1], **options}, name="streamed"
    )


def streamed(model: nn.Module) -> str:
    streamer, thread = stream(model)
    thread.start()
    text = "".join(streamer)
    thread.join(SECONDS)
    return text


def test_text_that_is_streamed_from_a_thread_is_the_plain_models() -> None:
    """A new thread for each; and the model is used from this one in between."""
    model, plain = fresh("Qwen3", 5), built("Qwen3", 5)
    wanted, answer = streamed(plain), ask(plain)
    assert len(wanted.split()) == PROMPT.shape[1] + TOKENS
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        for _ in range(3):
            assert streamed(model) == wanted
            assert ask(model).same(answer)
        assert offloaded.report().misses == 0
        assert offloaded.report().copies > TOKENS


def test_to_ask_while_a_stream_is_inside_a_layer_is_an_error_and_the_stream_goes_on() -> None:
    model, wanted = fresh("Qwen3", 5), streamed(built("Qwen3", 5))
    refused: list[str] = []

    def ask_too(*_: object) -> None:
        thread = Thread(target=second)
        thread.start()
        thread.join(SECONDS)

    def second() -> None:
        with pytest.raises(OffloadError, match="runs in thread 'streamed'") as caught:
            ask(model)
        refused.append(str(caught.value))

    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        handles = [layer.mlp.register_forward_pre_hook(ask_too) for layer in model.model.layers]
        assert streamed(model) == wanted
        assert len(refused) == 5 * TOKENS
        assert all(text.startswith("model.layers.0 (module 0) was called") for text in refused)
        assert offloaded.report().misses == 0
        for handle in handles:
            handle.remove()


def test_two_models_that_share_an_input_in_turns_layer_by_layer() -> None:
    """One runs inside the layers of the other, on the same tensors."""
    one, other = fresh("Qwen3", 5), fresh("Llama", 5)
    wanted, inside = ask(built("Qwen3", 5)), ask(built("Llama", 5))
    with (
        runtime.offload(one, slots=2, policy="chain") as first,
        runtime.offload(other, slots=3, policy="balanced") as second,
    ):
        found: list[Answer] = []
        handle = one.model.layers[2].mlp.register_forward_pre_hook(
            lambda *_: found.append(ask(other)) if len(found) < 2 else None
        )
        assert ask(one).same(wanted)
        handle.remove()
        assert len(found) == 2
        assert all(answer.same(inside) for answer in found)
        for offloaded in (first, second):
            assert offloaded.report().misses == 0
            assert offloaded.report().copies > TOKENS
    with (
        offload_without_proof(one, slots=2, policy="modular", output_may_be_wrong=True),
        runtime.offload(other, slots=3, policy="balanced"),
    ):
        assert not ask(one).same(wanted)
        assert ask(other).same(inside)
