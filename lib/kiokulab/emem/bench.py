"""How the cost of an emem run grows with its items, against the reference responder in lexical mode."""

from __future__ import annotations

import time

from kiokulab.emem import dataset, ingest, responder
from kiokulab.emem.client import Responder
from kiokulab.serving import serve

SIZES = (100, 1_000, 10_000)


def items(n: int) -> dataset.Dataset:
    """`n` items of invented words; one in fifty has an update, one in a hundred a companion."""
    names = [f"item{number}" for number in range(n)]
    rows = tuple(
        dataset.Item(
            name,
            f"The cupboard {name} holds {number} jars of plum jam.",
            f"How many jars does the cupboard {name} hold?",
            str(number),
            f"The cupboard {name} holds {number + 1} jars of plum jam." if number % 50 == 0 else None,
            str(number + 1) if number % 50 == 0 else None,
            f"The cupboard {name} is empty." if number % 100 == 0 else None,
        )
        for number, name in enumerate(names)
    )
    return dataset.Dataset(rows, "bench", "", "full", "made for the bench")


def lines(sizes: tuple[int, ...] = SIZES) -> str:
    """A table: items, calls, seconds, and microseconds an item."""
    table = [f"emem, reference responder, lexical mode\n{'items':>8}{'calls':>9}{'seconds':>10}{'ms an item':>12}"]
    for n in sizes:
        data = items(n)
        with (
            serve(
                responder.build(responder.FileStore(), key_seed=ingest.REFERENCE_SEED, clock=lambda: ingest.FIXED_TIME)
            ) as url,
            Responder(url) as client,
        ):
            began = time.perf_counter()
            ingest.drive(client, data)
            seconds = time.perf_counter() - began
        table.append(f"{n:>8}{client.calls:>9}{seconds:>10.1f}{1000 * seconds / n:>12.2f}")
    return "\n".join(table)
