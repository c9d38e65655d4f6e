"""Sorts a file of benchmark records within a small memory, and shows the plan, the progress and the report.

Usage: python sort_with_progress.py DIRECTORY [RECORDS]
"""

import sys
from pathlib import Path

import ascot


def main(directory: Path, records: int) -> None:
    source, target = directory / "events.rec", directory / "sorted.rec"
    layout = ascot.Fixed(100, key=slice(0, 10))
    ascot.gen(records, to=source)
    print(ascot.plan.sort(source, layout=layout, to=target, memory="32MiB"))

    def show(progress: ascot.Progress) -> None:
        share = progress.share()
        print(f"{progress.phase}: {'?' if share is None else f'{share:.0%}'}", file=sys.stderr)

    job = ascot.sort(source, layout=layout, to=target, memory="32MiB", progress=show)
    print(job.report)
    try:
        ascot.merge([source, target], layout=layout, to=target)
    except ascot.NotSorted as error:
        print(f"{error.file}: record {error.record} is out of order, as it should be")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
