"""DuckDB as a peer: COPY (SELECT ... ORDER BY ...) from Parquet to Parquet or from CSV to CSV."""

from __future__ import annotations

import common
import duckdb


def source(args: common.argparse.Namespace) -> str:
    """The table function that reads the input."""
    if args.kind != "csv":
        return f"read_parquet('{args.input}')"
    if args.varchar:
        return f"read_csv('{args.input}', header=true, all_varchar=true)"
    return f"read_csv('{args.input}', header=true)"


def main() -> None:
    flags = common.parser(__doc__ or "")
    flags.add_argument("--unordered", action="store_true", help="preserve_insertion_order=false")
    flags.add_argument("--varchar", action="store_true", help="read CSV columns as text")
    args = flags.parse_args()
    con = duckdb.connect()
    con.execute(f"SET memory_limit='{args.memory}B'")
    con.execute(f"SET threads={args.threads}")
    con.execute(f"SET temp_directory='{args.temp}'")
    con.execute(f"SET preserve_insertion_order={'false' if args.unordered else 'true'}")
    con.execute("SET enable_progress_bar=false")
    form = "FORMAT csv, HEADER" if args.kind == "csv" else "FORMAT parquet, COMPRESSION uncompressed"
    query = f"SELECT * FROM {source(args)} ORDER BY {common.order_by(args.kind)}"
    con.execute(f"COPY ({query}) TO '{args.output}' ({form})")


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        common.fail(error)
