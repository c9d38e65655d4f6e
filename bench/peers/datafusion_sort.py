"""DataFusion as a peer: COPY (SELECT ... ORDER BY ...) with a memory pool and a disk manager of its own."""

from __future__ import annotations

import common
import pyarrow as pa
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext


def context(args: common.argparse.Namespace) -> SessionContext:
    """A session within the memory pool, spilling to the temporary directory."""
    runtime = RuntimeEnvBuilder().with_disk_manager_specified(args.temp)
    pool = runtime.with_fair_spill_pool if args.pool == "fair" else runtime.with_greedy_memory_pool
    config = SessionConfig().with_target_partitions(args.threads).with_batch_size(args.batch)
    config = config.set("datafusion.execution.sort_spill_reservation_bytes", str(args.reserve))
    config = config.set("datafusion.execution.parquet.compression", "uncompressed")
    config = config.set("datafusion.execution.parquet.dictionary_enabled", "false")
    config = config.set("datafusion.execution.parquet.max_row_group_size", "122880")
    return SessionContext(config, pool(args.memory))


def register(session: SessionContext, args: common.argparse.Namespace) -> None:
    """Names the input `t`."""
    if args.kind != "csv":
        session.register_parquet("t", args.input)
        return
    schema = pa.schema([(name, pa.string()) for name in common.COLUMNS]) if args.text else None
    session.register_csv("t", args.input, schema=schema, has_header=True)


def main() -> None:
    flags = common.parser(__doc__ or "")
    flags.add_argument("--pool", choices=("fair", "greedy"), default="greedy")
    flags.add_argument("--reserve", type=int, default=10 << 20, help="sort_spill_reservation_bytes")
    flags.add_argument("--batch", type=int, default=8192, help="rows of a batch")
    flags.add_argument("--text", action="store_true", help="read CSV columns as text")
    args = flags.parse_args()
    session = context(args)
    register(session, args)
    form = "STORED AS CSV OPTIONS ('format.has_header' 'true')" if args.kind == "csv" else "STORED AS PARQUET"
    order = common.order_by(args.kind)
    session.sql(f"COPY (SELECT * FROM t ORDER BY {order}) TO '{args.output}' {form}").collect()


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        common.fail(error)
