"""Filters and routes: drops events below a limit, and sends the others to the file of their tenant.

Usage: python route_events.py DIRECTORY [EVENTS]
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import ascot
import polars

TENANTS = ["red", "green", "blue"]


def make_days(directory: Path, events: int) -> list[Path]:
    """Writes the events of three days, as CSV."""
    days = [directory / f"day-{number}.csv" for number in range(3)]
    for number, day in enumerate(days):
        rows = range(number, events, len(days))
        lines = (f"{TENANTS[row % 7 % 3]},{row},{row * 37 % 1000 / 10}\n" for row in rows)
        day.write_text("tenant,event,load\n" + "".join(lines))
    return days


def route(inputs: list[ascot.FlowInput]) -> Iterator[tuple[str, polars.DataFrame]]:
    """Yields the events with a load of 50 or more, for the output that has the name of their tenant."""
    for day in inputs:
        for batch in day:
            events = polars.DataFrame(batch).filter(polars.col("load").cast(polars.Float64) >= 50)
            for (tenant,), rows in events.group_by("tenant"):
                yield str(tenant), rows


def main(directory: Path, events: int) -> None:
    days = make_days(directory, events)
    outputs = {tenant: directory / f"{tenant}.csv" for tenant in TENANTS}
    job = ascot.flow(days, outputs, route, memory="64MiB")
    print(job.report)
    for tenant, path in outputs.items():
        print(f"{tenant}: {len(polars.read_csv(path)):,} events")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 300_000)
