"""Spark as a peer: DataFrame.sort from Parquet to Parquet parts, in one process or on a local cluster."""

from __future__ import annotations

import os
import time
from pathlib import Path

import common
import pyspark
from pyspark.sql import SparkSession


def session(args: common.argparse.Namespace) -> SparkSession:
    """A local session; the heap is given by the bench, since the JVM starts with it. With `--nodes`, each has a
    JVM of its own with one core and this heap."""
    master = f"local[{args.threads}]"
    if args.nodes:
        # The workers of a local cluster look for Spark's classes there.
        os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
        # Files of workers, in place of `spark.local.dir`.
        os.environ.update(SPARK_WORKER_DIR=str(args.temp / "work"), SPARK_LOCAL_DIRS=str(args.temp))
        master = f"local-cluster[{args.nodes},1,{args.heap >> 20}]"
    builder = (
        SparkSession.builder.master(master)
        .config("spark.executor.memory", f"{args.heap >> 20}m")
        .config("spark.executor.cores", "1")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
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
    flags.add_argument("--nodes", type=int, default=0, help="nodes of a local cluster; 0: one process")
    flags.add_argument("--off-heap", type=int, default=0, help="bytes of off-heap memory")
    flags.add_argument("--partitions", type=int, default=200)
    flags.add_argument("--compress", action="store_true", help="compress shuffle and spills")
    args = flags.parse_args()
    spark = session(args)
    spark.sparkContext.setLogLevel("ERROR")
    columns = [name for name, _ in common.ORDER[args.kind]]
    if args.nodes:
        # Waits for the JVMs of all nodes.
        spark.range(args.nodes * 1000).repartition(args.nodes).count()
    began = time.monotonic()
    spark.read.parquet(str(args.input)).sort(*columns).write.parquet(str(args.output))
    # Without the start of the JVM and of its nodes.
    print(f"sorted in {time.monotonic() - began:.3f} s", flush=True)
    spark.stop()


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        common.fail(error)
