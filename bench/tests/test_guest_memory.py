"""Free memory of a virtual machine, whose kernel is a file here."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import guest_memory


@pytest.fixture
def touched(monkeypatch):
    """The sizes that were touched."""
    sizes: list[int] = []
    monkeypatch.setattr(guest_memory, "touch", sizes.append)
    return sizes


def test_free_pages_stay_until_the_end_of_the_bench(tmp_path: Path, touched: list[int]) -> None:
    order = tmp_path / "order"
    order.write_text("9\n")
    with pytest.raises(KeyboardInterrupt), guest_memory.kept(order) as would_go:
        assert would_go and int(order.read_text()) > 20
        assert 0 < touched[0] < guest_memory.available_bytes()
        raise KeyboardInterrupt
    assert order.read_text() == "9\n"


def test_a_kernel_that_insists_on_reports_is_without_a_balloon(tmp_path: Path, touched: list[int]) -> None:
    for name in ("virtio3", "unbind", "bind"):
        (tmp_path / name).touch()
    # A file of the kernel that can be read and not written.
    with guest_memory.kept(Path("/proc/version"), tmp_path) as would_go:
        assert would_go and touched
        assert (tmp_path / "unbind").read_text() == "virtio3" and not (tmp_path / "bind").read_text()
    assert (tmp_path / "bind").read_text() == "virtio3"


def test_a_kernel_that_reports_none_is_left_alone(tmp_path: Path, touched: list[int]) -> None:
    with guest_memory.kept(tmp_path / "none") as would_go:
        assert not would_go and not touched


def test_memory_is_touched_and_freed() -> None:
    before = guest_memory.available_bytes()
    guest_memory.touch(64 << 20)
    guest_memory.touch(-1)
    assert before - guest_memory.available_bytes() < 1 << 30
