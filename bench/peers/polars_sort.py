"""Polars as a peer: scan, sort, sink with the streaming engine, spilling to the temporary directory.

Its memory and spill settings are variables of the environment, read when the library is loaded; the bench
sets them and prints them with the command.
"""

from __future__ import annotations

import common
import polars as pl


def scan(args: common.argparse.Namespace) -> pl.LazyFrame:
    """The lazy input."""
    if args.kind != "csv":
        return pl.scan_parquet(args.input, low_memory=args.low_memory)
    schema = dict.fromkeys(common.COLUMNS, pl.String) if args.text else None
    return pl.scan_csv(args.input, schema=schema, low_memory=args.low_memory)


def main() -> None:
    flags = common.parser(__doc__ or "")
    flags.add_argument("--low-memory", action="store_true", help="low_memory of the scan")
    flags.add_argument("--text", action="store_true", help="read CSV columns as text")
    args = flags.parse_args()
    by = common.ORDER[args.kind]
    lazy = scan(args).sort([name for name, _ in by], descending=[falls for _, falls in by])
    if args.kind == "csv":
        lazy.sink_csv(args.output, engine="streaming")
    else:
        lazy.sink_parquet(args.output, compression="uncompressed", engine="streaming", statistics=False)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        common.fail(error)
