"""Spark as a peer: one local session, DataFrame.sort from Parquet to a directory of Parquet parts."""

from __future__ import annotations

import common
from pyspark.sql import SparkSession


def session(args: common.argparse.Namespace) -> SparkSession:
    """A local session; the heap is given by the bench, since the JVM starts with it."""
    builder = (
        SparkSession.builder.master(f"local[{args.threads}]")
        .config("spark.driver.memory", f"{args.heap >> 20}m")
        .config("spark.local.dir", str(args.temp))
        .config("spark.sql.warehouse.dir", str(args.temp / "warehouse"))
        .config("spark.sql.shuffle.partitions", str(args.partitions))
        .config("spark.sql.parquet.compression.codec", "uncompressed")
        .config("spark.shuffle.compress", str(args.compress).lower())
        .config("spark.shuffle.spill.compress", str(args.compress).lower())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    if args.off_heap:
        builder = builder.config("spark.memory.offHeap.enabled", "true")
        builder = builder.config("spark.memory.offHeap.size", str(args.off_heap))
    return builder.getOrCreate()


def main() -> None:
    flags = common.parser(__doc__ or "")
    flags.add_argument("--heap", type=int, required=True, help="bytes of the driver's heap")
    flags.add_argument("--off-heap", type=int, default=0, help="bytes of off-heap memory")
    flags.add_argument("--partitions", type=int, default=200)
    flags.add_argument("--compress", action="store_true", help="compress shuffle and spills")
    args = flags.parse_args()
    spark = session(args)
    spark.sparkContext.setLogLevel("ERROR")
    columns = [name for name, _ in common.ORDER[args.kind]]
    spark.read.parquet(str(args.input)).sort(*columns).write.parquet(str(args.output))
    spark.stop()


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        common.fail(error)
