"""Faults of the lowering: ``smallest`` pins the smallest program, by N, then K, then policy, then
lowering, with what each engine finds in it."""

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
        also=(
            (5, "refill, copy stream and compute stream"),
            (7, "arrives, two copy streams"),
            (7, "resumes, two copy streams"),
            (7, "arrives, copy stream and compute stream"),
            (7, "resumes, copy stream and compute stream"),
        ),
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
        also=(
            (5, "run, two copy streams"),
            (5, "run, compute stream and a copy stream"),
            (5, "run, copy stream and compute stream"),
            (7, "arrives, compute stream and a copy stream"),
            (7, "resumes, compute stream and a copy stream"),
        ),
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
        also=((5, "refill, compute stream and a copy stream"),),
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
        also=(
            (5, "write, two copy streams"),
            (5, "keep, compute stream and a copy stream"),
            (5, "write, compute stream and a copy stream"),
            (5, "write, copy stream and compute stream"),
            (5, "keep, copies on the compute stream"),
            (5, "write, copies on the compute stream"),
        ),
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
        also=(
            (5, "keep, two copy streams"),
            (5, "keep, copy stream and compute stream"),
        ),
    ),
    Mutant(
        "nothing is joined",
        "program",
        "for one in _join(streams, stream)",
        "for one in _join(streams, stream) if False",
        5,
        "join, one copy stream",
        "N=1, K=1, modular, one copy stream, captured "
        "(clocks: RAW, WAW, joined, meaning; "
        "interleavings: RAW, WAW, identity, joined, meaning; solver: RAW, WAW, joined, meaning)",
        also=(
            (5, "join, two copy streams"),
            (5, "join, compute stream and a copy stream"),
            (5, "join, copy stream and compute stream"),
        ),
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
        "graphs",
        "return (*ends, EndCapture(COMPUTE, self.name))",
        "return (EndCapture(COMPUTE, self.name),)",
        9,
        None,
        "N=1, K=1, modular, one copy stream, captured "
        "(clocks: RAW, WAW, joined, meaning; "
        "interleavings: RAW, WAW, identity, joined, meaning; solver: RAW, WAW, joined, meaning)",
    ),
    Mutant(
        "capture waiting on an outside event",
        "graphs",
        "if isinstance(operation, Wait) and operation.event not in self.recorded:",
        "if False:",
        9,
        None,
        "N=1, K=1, modular, one copy stream, captured "
        "(clocks: joined; interleavings: joined; solver: joined)",
    ),
    Mutant(
        "replay without join",
        "graphs",
        "            *lower_join(streams),\n            replay,",
        "            replay,",
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
    Mutant(
        "a graph that needs nothing",
        "graphs",
        "return {slot: one.module for slot, one in first.items() if isinstance(one, Run)}",
        "return {}",
        9,
        None,
        "N=2, K=1, modular, one copy stream, captured, cut short "
        "(clocks: identity; interleavings: identity; solver: identity)",
    ),
    Mutant(
        "a graph that leaves nothing",
        "graphs",
        "return {copy.slot: copy.module for copy in copies}",
        "return {}",
        9,
        None,
        "N=2, K=1, modular, one copy stream, captured, in pieces "
        "(clocks: identity; interleavings: identity; solver: identity)",
    ),
    Mutant(
        "a replay without records",
        "graphs",
        "*(Record(COMPUTE, landed(slot)) for slot in slots),",
        "",
        9,
        None,
        "N=1, K=1, restart, one copy stream, captured, written "
        "(clocks: meaning; interleavings: meaning; solver: meaning)",
    ),
)
