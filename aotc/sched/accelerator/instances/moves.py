"""What is put between instances: concat, copy and redistribute."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aotc.sched.accelerator.instances.binding import Bind
from aotc.sched.accelerator.instances.instances import InstanceGraph

CONCAT, COPY, REDISTRIBUTE = "concat", "copy", "redistribute"


@dataclass(frozen=True)
class Move:
    """concat: outputs ``sources`` of one sub-graph become one tensor for ``consumer``.  copy: a
    source is brought from memory ``level`` to the consumer's.  redistribute: its parts change
    cores, in parts ``bind`` on the way."""

    kind: str
    consumer: str
    sources: tuple[str, ...]
    level: int = 0
    bind: Bind = ()

    def __str__(self) -> str:
        rest = f" from level {self.level}" if self.kind == COPY else (
            f" as {self.bind}" if self.kind == REDISTRIBUTE else "")
        return f"{self.kind} {' '.join(self.sources)} for {self.consumer}{rest}"


def moves(graph: InstanceGraph, order: Sequence[str], scope: Mapping[str, int],
          bind: Mapping[str, Bind], wanted: Mapping[tuple[str, str], Bind | None]
          ) -> tuple[Move, ...]:
    """Moves in the order in which they are needed.  scope: of outputs.  bind: of instances.
    wanted: (consumer, producer) -> parts in which the consumer reads it, None where it does not
    matter."""
    out: list[Move] = []
    read: dict[str, dict[str, list[str]]] = {}  # instance -> tensor -> those that have parts of it
    for e in graph.edges:
        read.setdefault(e.consumer, {}).setdefault(e.source, []).append(e.producer)
    for x in order:
        for source, found in read.get(x, {}).items():
            names = [graph.instance[p].output(source) for p in found]
            for p, name in zip(found, names):
                want = wanted.get((x, p))
                if scope[name]:
                    out.append(Move(COPY, x, (name,), scope[name]))
                elif want is not None and want != bind[p]:
                    both = tuple(map(min, want, bind[p]))
                    out.append(Move(REDISTRIBUTE, x, (name,), 0, both))
            if len(found) > 1:
                out.append(Move(CONCAT, x, tuple(names)))
    return tuple(out)
