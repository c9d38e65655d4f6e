"""The oracle finds disorder, loss, repetition and damage in every format; data sets have their contents."""

from __future__ import annotations

from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("polars")
pytest.importorskip("pyarrow")

from harness import data, oracle  # noqa: E402

ROWS = 5000


def _records() -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, (ROWS, oracle.RECORD), dtype=np.uint8)


def _sorted(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort(rows[:, oracle.KEY - 1 :: -1].T)]


def _verify_records(path: Path, rows: np.ndarray, expected: oracle.Sum) -> str:
    rows.tofile(path)
    return oracle.verify("records.bin", path, expected)


def test_records_in_order_pass_and_every_fault_is_found(tmp_path: Path) -> None:
    rows, path = _records(), tmp_path / "r"
    rows.tofile(path)
    expected, right = oracle.sum_records(path), _sorted(rows)
    assert expected.rows == ROWS
    assert _verify_records(path, right, expected) == ""
    assert "not sorted" in _verify_records(path, rows, expected)
    assert "rows instead of" in _verify_records(path, right[:-1], expected)
    damaged = right.copy()
    damaged[100, 70] ^= 1
    assert "not those of the input" in _verify_records(path, damaged, expected)
    repeated = right.copy()
    repeated[100] = repeated[101]
    assert "not those of the input" in _verify_records(path, repeated, expected)
    path.write_bytes(right.tobytes()[:-1])
    assert "no whole number" in oracle.verify("records.bin", path, expected)


def test_disorder_after_equal_prefixes_is_found(tmp_path: Path) -> None:
    rows = np.zeros((3, oracle.RECORD), np.uint8)
    rows[:, 9] = [1, 3, 2]
    rows.tofile(tmp_path / "r")
    expected = oracle.sum_records(tmp_path / "r")
    assert "not sorted near row 2" in oracle.verify("records.bin", tmp_path / "r", expected)


def test_parquet_records_have_the_sum_of_the_raw_ones(tmp_path: Path) -> None:
    raw, path = tmp_path / "r", tmp_path / "p.parquet"
    right = _sorted(_records())
    right.tofile(raw)
    source = data.DataSet("records.bin", raw, raw.stat().st_size, oracle.sum_records(raw))
    data._make_parquet_records(path, 0, [], source)
    assert oracle.verify("records.parquet", path, source.expected) == ""
    right[::-1].tofile(raw)
    data._make_parquet_records(path, 0, [], source)
    assert "not sorted" in oracle.verify("records.parquet", path, source.expected)


def test_integers_raw_and_parquet(tmp_path: Path) -> None:
    store = data.Store(tmp_path, 10**9, ["false"], lambda _: None)
    raw = store.ensure("u64.bin", 80_000, set())
    parquet = store.ensure("u64.parquet", 80_000, {("u64.bin", 80_000)})
    assert raw.expected == parquet.expected and raw.expected.rows == 10_000
    assert "not sorted" in oracle.verify("u64.bin", raw.path, raw.expected)
    assert "not sorted" in oracle.verify("u64.parquet", parquet.path, raw.expected)
    values = np.sort(np.fromfile(raw.path, "<u8"))
    values.tofile(raw.path)
    assert oracle.verify("u64.bin", raw.path, raw.expected) == ""


def test_events_may_be_spelled_differently_but_not_changed(tmp_path: Path) -> None:
    import polars as pl

    store = data.Store(tmp_path, 10**9, ["false"], lambda _: None)
    made = store.ensure("events.csv", 300_000, set())
    assert abs(made.bytes - 300_000) < 20_000
    assert "not sorted" in oracle.verify("events.csv", made.path, made.expected)
    right = pl.read_csv(made.path).sort(["tenant", "ts"], descending=[False, True])
    out = tmp_path / "out.csv"
    right.write_csv(out, quote_style="always")
    assert oracle.verify("events.csv", out, made.expected) == ""
    right.with_columns(ts=pl.col("ts").str.replace("T", " ")).write_csv(out)
    assert oracle.verify("events.csv", out, made.expected) == ""
    right.with_columns(amount=pl.col("amount") + 0.01).write_csv(out)
    assert "not those of the input" in oracle.verify("events.csv", out, made.expected)
    right.head(10).write_csv(out)
    assert "rows instead of" in oracle.verify("events.csv", out, made.expected)
    out.write_text("id,tenant\n1,\n")
    assert "cannot be read" in oracle.verify("events.csv", out, made.expected)


def test_data_sets_are_reused_when_complete_and_dropped_for_room(tmp_path: Path) -> None:
    said: list[str] = []
    store = data.Store(tmp_path, 2_000_000, ["false"], said.append)
    first = store.ensure("u64.bin", 800_000, set())
    store.ensure("u64.bin", 800_000, set())
    assert len(said) == 1
    first.path.write_bytes(b"short")
    assert store.find("u64.bin", 800_000) is None
    store.ensure("u64.bin", 800_000, set())
    assert len(said) == 2
    store.make_room(1_500_000, set())
    assert store.find("u64.bin", 800_000) is None
    with pytest.raises(data.NotEnoughDisk, match="--disk"):
        store.make_room(3_000_000, set())
