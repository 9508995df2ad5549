"""Faults put into the lowering and into the clocks by hand. See ``mutants``.

``smallest`` pins the smallest program, by N, then K, then policy, then lowering, with what each
engine finds in it; for the clocks the smallest program on which they and the other engines differ.
"""

from __future__ import annotations

from proofs.mutation import Mutant

PROGRAM_MUTANTS = (
    Mutant(
        "no fork event",
        "program",
        "        Record(COMPUTE, RAN),\n",
        "",
        5,
        "refill, one copy stream",
        "N=1, K=1, modular, one copy stream (clocks: WAR; interleavings: WAR; solver: WAR)",
    ),
    Mutant(
        "no wait for the copy",
        "program",
        "return (Wait(COMPUTE, landed(slot), module), run)",
        "return (run,)",
        5,
        "run, one copy stream",
        "N=1, K=1, modular, one copy stream "
        "(clocks: RAW; interleavings: RAW, identity; solver: RAW)",
    ),
    Mutant(
        "stream-wide wait replaced by nothing",
        "program",
        "        Wait(stream, RAN),\n",
        "",
        5,
        "refill, one copy stream",
        "N=1, K=1, modular, one copy stream (clocks: WAR; interleavings: WAR; solver: WAR)",
    ),
    Mutant(
        "wait on a stale record",
        "program",
        "        copy,\n        Record(stream, landed(refill.slot)),",
        "        Record(stream, landed(refill.slot)),\n        copy,",
        5,
        "refill, one copy stream",
        "N=1, K=1, modular, one copy stream "
        "(clocks: RAW, meaning; interleavings: RAW, identity, meaning; solver: RAW, meaning)",
    ),
    Mutant(
        "two copy streams without order",
        "program",
        "if len(streams.copies) > 1 else ()",
        "if False else ()",
        5,
        "refill, two copy streams",
        "N=2, K=1, modular, two copy streams, skipped "
        "(clocks: RAW, WAW, meaning; "
        "interleavings: RAW, WAW, identity, meaning; solver: RAW, WAW, meaning)",
    ),
    Mutant(
        "a host write during a copy",
        "program",
        "        Wait(HOST, drained),\n",
        "",
        5,
        "write, one copy stream",
        "N=1, K=1, modular, copies on the compute stream, written "
        "(clocks: RAW, block; "
        "interleavings: RAW, block, identity; "
        "solver: RAW, block)",
    ),
    Mutant(
        "a host write during a run",
        "program",
        "running = () if stream == COMPUTE else (Record(COMPUTE, RAN), Wait(HOST, RAN))",
        "running = ()",
        5,
        "keep, one copy stream",
        "N=1, K=1, modular, one copy stream, written "
        "(clocks: RAW; interleavings: RAW; solver: RAW)",
    ),
    Mutant(
        "nothing is joined",
        "program",
        "for one in _join(streams, stream))",
        "for one in _join(streams, stream) if False)",
        5,
        "join, one copy stream",
        "N=1, K=1, modular, one copy stream, captured "
        "(clocks: RAW, WAW, joined, meaning; "
        "interleavings: RAW, WAW, identity, joined, meaning; solver: RAW, WAW, joined, meaning)",
    ),
    Mutant(
        "resuming without a wait",
        "program",
        "RESUME: [operations[:-1] for operations in self.begin],",
        "RESUME: [() for operations in self.begin],",
        9,
        None,
        "N=1, K=1, modular, one copy stream: resume 0",
    ),
    Mutant(
        "a reload without its fences",
        "program",
        "RELOAD: [lower_refill(refill, self.streams) for refill in own],",
        "RELOAD: [lower_refill(refill, self.streams)[2:3] for refill in own],",
        9,
        None,
        "N=1, K=1, modular, one copy stream: reload 0",
    ),
    Mutant(
        "the write of another slot",
        "program",
        "        Write(module, slot),",
        "        Write(module, slot + 1),",
        5,
        "keep, one copy stream",
        "N=1, K=1, modular, one copy stream, written "
        "(clocks: identity; "
        "interleavings: identity; "
        "solver: identity)",
    ),
    Mutant(
        "unjoined capture",
        "program",
        "capture=(*join, begin, *body, *ends, end),",
        "capture=(*join, begin, *body, end),",
        9,
        None,
        "N=1, K=1, modular, one copy stream, captured "
        "(clocks: RAW, WAW, joined, meaning; "
        "interleavings: RAW, WAW, identity, joined, meaning; solver: RAW, WAW, joined, meaning)",
    ),
    Mutant(
        "capture waiting on an outside event",
        "program",
        "if not isinstance(operation, Wait) or operation.event in recorded:",
        "if True:",
        9,
        None,
        "N=1, K=1, modular, one copy stream, captured "
        "(clocks: joined; interleavings: joined; solver: joined)",
    ),
    Mutant(
        "replay without join",
        "program",
        "            *join,\n            Replay(COMPUTE, GRAPH),",
        "            Replay(COMPUTE, GRAPH),",
        9,
        None,
        "N=1, K=1, modular, one copy stream, captured "
        "(clocks: RAW, WAW, joined, meaning; "
        "interleavings: RAW, WAW, identity, joined, meaning; solver: RAW, WAW, joined, meaning)",
    ),
    Mutant(
        "pageable source inside a capture",
        "program",
        "copy = Copy(stream, refill.slot, refill.module)",
        "copy = Copy(stream, refill.slot, refill.module, True)",
        9,
        None,
        "N=1, K=1, modular, one copy stream, captured "
        "(clocks: pageable; interleavings: pageable; solver: pageable)",
    ),
)

ORDER_MUTANTS = (
    Mutant(
        "clocks blind to WAR",
        "order",
        "found = uncovered(WAR, clock, state.read[slot])",
        "found = uncovered(WAR, clock, NOTHING)",
        11,
        None,
        "N=1, K=1, modular, one copy stream, no fork",
    ),
    Mutant(
        "clocks blind to WAW",
        "order",
        "found += uncovered(WAW, clock, state.copied[slot])",
        "found += uncovered(WAW, clock, NOTHING)",
        11,
        None,
        "N=1, K=1, modular, one copy stream, captured, no join",
    ),
    Mutant(
        "clocks blind to RAW",
        "order",
        "later(state.copied[slot], state.read[slot])",
        "state.read[slot]",
        11,
        None,
        "N=1, K=1, modular, one copy stream, no wait for the copy",
    ),
    Mutant(
        "clocks blind to what a run writes",
        "order",
        "later(state.copied[slot], state.read[slot])",
        "state.copied[slot]",
        11,
        None,
        "N=1, K=1, modular, one copy stream, written, no fork",
    ),
    Mutant(
        "clocks blind to identity",
        "order",
        "if state.content[slot] != module or state.version[slot] != state.written[module]:",
        "if state.version[slot] != state.written[module]:",
        11,
        None,
        "N=1, K=1, modular, one copy stream, written, another kept",
    ),
    Mutant(
        "clocks blind to old versions",
        "order",
        "if state.content[slot] != module or state.version[slot] != state.written[module]:",
        "if state.content[slot] != module:",
        11,
        None,
        "N=1, K=1, modular, one copy stream, written, not loaded anew",
    ),
    Mutant(
        "clocks blind to what a wait means",
        "order",
        "found = [] if module is None else means(state, event, module, clock)",
        "found = [] if True else means(state, event, module, clock)",
        11,
        None,
        "N=1, K=1, modular, one copy stream, stale record",
    ),
    Mutant(
        "clocks blind to host writes",
        "order",
        "found = uncovered(BLOCK, clock, state.reading[module])",
        "found = uncovered(BLOCK, clock, NOTHING)",
        11,
        None,
        "N=1, K=1, modular, one copy stream, written, no wait of the host",
    ),
    Mutant(
        "clocks blind to joins",
        "order",
        "uncovered(JOINED, clock, {s: tick for s, tick in work.items() if tick})",
        "uncovered(JOINED, clock, NOTHING)",
        11,
        None,
        "N=1, K=1, modular, one copy stream, captured, no join",
    ),
    Mutant(
        "clocks blind to what a write reads",
        "order",
        "if slot is not None:",
        "if False:",
        11,
        None,
        "N=1, K=1, modular, one copy stream, written, no fork",
    ),
    Mutant(
        "a pageable block is read later",
        "order",
        "if not pageable:",
        "if True:",
        11,
        None,
        "N=1, K=1, modular, one copy stream, written, pageable",
    ),
    Mutant(
        "a wait that waits for nothing",
        "order",
        "clock = later(clock, state.record[event])",
        "clock = later(clock, NOTHING)",
        5,
        "run, one copy stream",
        "N=1, K=1, modular, one copy stream, as it is",
    ),
    Mutant(
        "a wait that forgets the others",
        "order",
        "clock = later(clock, state.record[event])",
        "clock = state.record[event]",
        5,
        "run elsewhere, one copy stream",
        "N=1, K=1, modular, one copy stream, no fork",
    ),
    Mutant(
        "what the host waited for is forgotten",
        "order",
        "return later(own, host) if host else own",
        "return own",
        11,
        None,
        "N=1, K=1, modular, one copy stream, host waits",
    ),
)
