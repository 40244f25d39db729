"""The tables of the page."""

from .peers import FLOOR, OURS


def table(load, rows, alone):
    """`rows` are pairs of a peer and its figures, the fastest first; a peer that failed has no rate. `alone`: the rates of
    one task with the same holds, by peer."""
    best = max((figures["rate"] for peer, figures in rows if "rate" in figures and peer.name not in (OURS, FLOOR)), default=0)
    heads = ["", "pairs/s", "least – most"]
    # Timers differ from language to language.
    heads += ["of the ideal", "of one task alone"] if load.hold_ms else ["to the best peer"]
    heads += ["changes of hands/s"] if load.processes > 1 else []
    heads += ["server CPU", "client CPU", "commands", "tasks"]
    heads += ["processes"] if load.processes > 1 else []
    heads += ["wait p50", "wait p99", "wait max"]
    heads += ["gap p50", "gap p99"] if load.processes > 1 else []
    heads += ["overlaps"] if load.hot else []
    heads += ["others"]
    lines = [line(heads), line(["---"] + ["---:"] * (len(heads) - 1))]
    for peer, figures in rows:
        lines.append(line(cells(load, peer, figures, best, alone, len(heads))))
    return "\n".join(lines)


def cells(load, peer, figures, best, alone, width):
    if "rate" not in figures:
        return [peer.name, "; ".join(sorted(set(figures["failed"])))] + [""] * (width - 2)
    row = [
        name(peer, figures),
        f"{figures['rate']:,.0f}",
        f"{figures['spread'][0]:,.0f} – {figures['spread'][1]:,.0f}",
    ]
    if load.hold_ms:
        row += [f"{figures['rate'] * load.hold_ms / 1000:.2f}", part_of_alone(peer, figures, alone)]
    else:
        row += [f"{figures['rate'] / best:.2f}" if best else ""]
    row += [f"{figures['changes']:,.0f}"] if load.processes > 1 else []
    row += [
        f"{figures['server_us']:.1f} µs",
        f"{figures['client_us']:.1f} µs",
        f"{figures['commands']:.1f}",
        share(figures["tasks"]),
    ]
    row += [share(figures["processes"])] if load.processes > 1 else []
    row += map(time, figures["wait"])
    row += map(time, figures["gap"]) if load.processes > 1 else []
    row += [f"**{figures['overlaps']}**" if figures["overlaps"] else "0"] if load.hot else []
    return [*row, f"{figures['others']:.0%}"]


def part_of_alone(peer, figures, alone):
    return f"{figures['rate'] / alone[peer.name]:.2f}" if alone.get(peer.name) else ""


def name(peer, figures):
    shown = f"**{peer.name}**" if peer.name == OURS else peer.name
    return shown + (f" ({len(figures['failed'])} runs failed: {figures['failed'][0]})" if figures["failed"] else "")


def share(ends):
    return f"{ends[0]:.2f} – {ends[1]:.2f}"


def time(microseconds):
    if microseconds >= 999_500:
        return f"{microseconds / 1e6:.1f} s"
    if microseconds >= 999.5:
        return f"{microseconds / 1e3:.1f} ms"
    return f"{microseconds:.0f} µs"


def growth_of_rates(loads, rows):
    """Pairs per second and the server's CPU per pair at each number of tasks; `rows` are pairs of a peer and its figures."""
    return growth(loads, rows, lambda figures: f"{figures['rate']:,.0f} ({figures['server_us']:.1f} µs)")


def growth_of_changes(loads, rows):
    """Changes of hands per second and the shares of the processes, at each number of processes."""
    def cell(figures):
        return f"{figures['changes']:,.0f} ({share(figures['processes'])})"

    return growth(loads, rows, cell, lambda load: load.processes)


def growth_of_waits(loads, rows):
    """What waiting costs, and how long it takes until everybody has had the lock, at each number of waiters."""
    def cell(figures):
        stuck = f", **{figures['stuck']:.0f} stuck**" if figures["stuck"] else ""
        return f"{figures['commands_per_s']:,.0f} /s; {time(figures['drained_ms'] * 1000)}{stuck}"

    return growth(loads, rows, cell)


def growth(loads, rows, cell, size=lambda load: load.tasks):
    heads = ["", *(f"{size(load):,}" for load in loads)]
    lines = [line(heads), line(["---"] + ["---:"] * len(loads))]
    for peer, columns in rows:
        words = ["; ".join(sorted(set(each["failed"]))) if each.get("failed") else cell(each) for each in columns]
        lines.append(line([f"**{peer.name}**" if peer.name == OURS else peer.name, *words]))
    return "\n".join(lines)


def notes(rows):
    """A sentence for each peer whose tasks were stuck."""
    return "\n\n".join(
        f"{peer.name}: in {len(figures['stuck'])} of {figures['runs']} runs, up to {max(figures['stuck'])} tasks "
        "still waited 8 s after the end, when nobody held the lock any more."
        for peer, figures in rows if figures.get("stuck")
    )


def verdict_of_holds(load, rows, alone):
    ours = next(((peer, figures) for peer, figures in rows if peer.name == OURS and "rate" in figures), None)
    if ours is None or not alone.get(OURS) or load.name == load.alone:
        return ""
    part = part_of_alone(*ours, alone)
    sharers, shares = ("process", ours[1]["processes"]) if load.processes > 1 else ("task", ours[1]["tasks"])
    return f"{OURS} does {part} times what one of its tasks does alone, and each {sharers} has {share(shares)} of an equal share."


def line(cells):
    return "| " + " | ".join(cells) + " |"


def verdict(load, rows, alone):
    """A sentence: how the library does beside the best of the others, or beside one of its own tasks."""
    if load.hold_ms:
        return verdict_of_holds(load, rows, alone)
    rates = {peer.name: figures["rate"] for peer, figures in rows if "rate" in figures and peer.name != FLOOR}
    ours = rates.pop(OURS, None)
    if ours is None or not rates:
        return ""
    best = max(rates, key=rates.get)
    ratio = ours / rates[best] if rates[best] else float("inf")
    others = {peer.name: figures for peer, figures in rows}
    word = "Ahead" if ratio > 1 else "**Behind**"
    return (
        f"{word}: {OURS} does {ratio:.2f} times what the fastest peer, {best}, does. A pair costs the server "
        f"{others[OURS]['server_us']:.1f} µs with {OURS} and {others[best]['server_us']:.1f} µs with {best}."
    )
