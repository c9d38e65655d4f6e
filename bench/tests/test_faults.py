"""The page of faults: what tests told is found by their names, and those that did not pass are listed."""

import json

from harness import faults

OUTCOMES = """<testsuites><testsuite>
<testcase classname="tests.test_python_cluster_faults" name="test_a_disk_returns_errors[sort and reduce-0.55]"/>
<testcase classname="tests.test_python_cluster_pull_faults" name="test_a_volume_is_unmounted">
  <failure message="assert 3 &lt;= 2"/></testcase>
<testcase classname="tests.test_python_cluster_head" name="test_the_head_is_killed_and_started_again[pull]">
  <skipped message="redis-server is not installed"/></testcase>
</testsuite></testsuites>"""


def test_each_test_has_a_row_with_its_outcome_and_what_it_told(tmp_path):
    outcomes, told = tmp_path / "outcomes.xml", tmp_path / "told"
    outcomes.write_text(OUTCOMES)
    test = "test_python_cluster_faults.test_a_disk_returns_errors[sort and reduce-0.55]"
    amounts = {"lost": 2_000_000_000, "mapped_again": 8_000_000_000, "sent_again": 1_000_000, "sorted_again": 0}
    told.write_text(json.dumps({"test": test, "seconds": 30.0, "shuffle": "push", "nodes_lost": 1, **amounts}) + "\n")
    found = faults._found(outcomes, told)
    assert [one["outcome"] for one in found] == ["passed", "failed", "skipped"]
    machine = {"cores": 2, "processor": "x", "memory_bytes": 1 << 30, "filesystem": "ext4"}
    page = faults.markdown({"machine": machine, "versions": {}, "size": 8_000_000_000, "faults": found})
    row = "| a disk returns errors (sort and reduce-0.55) | push | passed | 30.0 s | 2 GB | 8 GB | 1 MB | 0 B |"
    assert row in page
    assert "| a volume is unmounted | pull | failed |  |  |  |  |  |" in page
    assert "Of 3 tests 1 passed" in page
    assert "- test_a_volume_is_unmounted: assert 3 <= 2" in page and "redis-server is not installed" in page
