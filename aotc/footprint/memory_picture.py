"""Who lives where in the arena, kernel after kernel: a picture of a MemoryMap."""

from aotc.emit.bundle.memory_map import MemoryMap, Moment
from aotc.svg import draw_path, draw_rect, draw_svg, draw_text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1000, 480, 80, 20, 40, 40
COLOURS = ("#1764ab", "#3a8a4d", "#c8a951", "#7b4fa3", "#00a0a0", "#fc8d72", "#6baed6")
SCRATCH, FRONT = "#bbbbbb", "#666666"
TICKS = 4
LETTER, LINE = 4.6, 9  # of the smallest letters: width at most, height
SHORTEST = 6  # letters of a name that are worth showing


def draw_memory(memory: MemoryMap, title: str) -> str:
    """SVG text: kernels in call order from left to right, bytes of the arena upwards: its tensors
    where they lie, while they live, and each kernel's scratch above them.  The kernel that needs
    most is marked."""
    across = (WIDTH - LEFT - RIGHT) / max(1, len(memory.users))
    up = (HEIGHT - TOP - BOTTOM) / memory.arena
    base = HEIGHT - BOTTOM
    parts = [draw_text(LEFT, 20, f"{title}: arena of {memory.arena} bytes", "start")]
    for n in range(TICKS + 1):
        count = memory.arena * n // TICKS
        parts.append(draw_text(LEFT - 6, base - count * up + 3, str(count), "end"))
    if memory.front:
        parts.append(draw_rect(LEFT, base - memory.front * up, across * len(memory.users),
                               memory.front * up, FRONT, "counters of the profile"))
    for n, t in enumerate(sorted(memory.tenants, key=lambda t: t.first)):
        x, y = LEFT + t.first * across, base - (t.offset + t.bytes) * up
        wide, high = (t.last + 1 - t.first) * across - 0.5, t.bytes * up
        name = t.onnx or t.name
        parts.append(draw_rect(x, y, wide, high, COLOURS[n % len(COLOURS)],
                               f"{name}: {t.bytes} bytes, kernels {t.first} to {t.last}"))
        room = int(wide / LETTER) - 1  # names are told apart by their ends
        label = name if len(name) <= room else f"..{name[2 - room:]}"
        if high > LINE and room > SHORTEST:
            parts.append(f'<g fill="white">{draw_text(x + 3, y + LINE - 1, label, "start")}</g>')
    for n, user in enumerate(memory.users):
        if user.scratch:
            end = memory.front + memory.slots + user.scratch
            parts.append(draw_rect(LEFT + n * across, base - end * up, across - 0.5,
                                   user.scratch * up, SCRATCH,
                                   f"{user.name}: {user.scratch} bytes of scratch"))
    if memory.peak is not None:
        parts += _marked(memory, memory.peak, across)
    parts += [draw_path(f"M{LEFT},{TOP} V{base} H{WIDTH - RIGHT}", "black"),
              draw_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8,
                        "kernels in call order; grey: scratch of one worker", "middle")]
    return draw_svg(WIDTH, HEIGHT, 8, parts)


def _marked(memory: MemoryMap, peak: Moment, across: float) -> list[str]:
    """The frame around the column of the kernel that needs most, and what it is."""
    x, base = LEFT + peak.kernel * across, HEIGHT - BOTTOM
    low = (f"{memory.users[peak.kernel].name}: {peak.stored} bytes of tensors, {peak.scratch} of "
           "scratch")
    anchor = "start" if x < WIDTH / 2 else "end"
    return [draw_path(f"M{x:.2f},{base} V{TOP} h{across:.2f} V{base}", "#b3261e",
                      'stroke-width="1.5"'),
            draw_text(x, base + 12, f"most: {low}", anchor)]


__all__ = ["draw_memory"]
