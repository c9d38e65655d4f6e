//! Plans of sorts whose blocks are so many that the facts about them take much of the memory.

use ascot_record::keys::ByteRangeKey;

use super::*;

/// A request for records of 100 bytes within this memory.
fn request(memory_bytes: u64, method: Method) -> SortRequest {
    let keys = Keys::Ranges(vec![ByteRangeKey { start: 0, end: 10, descending: false }]);
    SortRequest {
        memory_bytes: Some(memory_bytes),
        threads: Some(2),
        method,
        ..SortRequest::new(Vec::new(), Output::Stdout, Layout::Fixed { len: 100 }, keys)
    }
}

fn planned(request: &SortRequest, data_bytes: u64) -> Result<Plan> {
    plan_ahead(request, data_bytes, 100.0, Ahead::Sort)
}

const MIB: u64 = 1 << 20;
const GB: u64 = 1_000_000_000;

#[test]
fn blocks_are_larger_if_they_are_many() {
    for (memory_bytes, data_bytes) in [(64 * MIB, 100 * GB), (256 * MIB, 200 * GB), (1024 * MIB, 3000 * GB)] {
        let request = request(memory_bytes, Method::Auto);
        let usual = Budget::new(memory_bytes, 2, Some(data_bytes), false).expect("enough");
        let budget = sort_budget_of(&request, Some(data_bytes)).expect("enough");
        assert!(budget.block > usual.block, "{budget:?}");
        assert!(data_bytes as usize / budget.block * BLOCK_FACTS_BYTES <= budget.memory / 4, "{budget:?}");
        assert!(budget.common() < budget.memory / 4, "{budget:?}");
        assert_eq!(planned(&request, data_bytes).expect("a plan").chosen.method, "merge");
    }
    // So few blocks take little memory as they are.
    let usual = Budget::new(64 * MIB, 2, Some(5 * GB), false).expect("enough");
    assert_eq!(
        sort_budget_of(&request(64 * MIB, Method::Auto), Some(5 * GB)).expect("enough").block,
        usual.block
    );
}

/// A last merge with little memory for blocks takes many merges before it.
#[test]
fn records_are_distributed_if_larger_blocks_are_still_too_many() {
    for data_bytes in [5 * GB, 20 * GB] {
        let plan = planned(&request(8 * MIB, Method::Auto), data_bytes).expect("a plan");
        assert_eq!(plan.chosen.method, "distribute", "{data_bytes}");
        assert!(plan.others.is_empty(), "{data_bytes}");
    }
}

/// A forced merge that memory does not allow is refused before anything is read, with the memory that suffices.
#[test]
fn a_merge_of_too_many_blocks_is_refused_at_once() {
    for data_bytes in [8 * GB, 50 * GB] {
        let error = planned(&request(8 * MIB, Method::Merge), data_bytes).expect_err("too little memory");
        let SortError::TooLittleMemory { given_bytes, min_bytes } = error else { panic!("{error}") };
        assert_eq!(given_bytes, 8 * MIB);
        planned(&request(min_bytes, Method::Merge), data_bytes).expect("enough memory");
    }
    // The first records alone have few blocks.
    let first = SortRequest { top: Some(1000), ..request(8 * MIB, Method::Merge) };
    planned(&first, 50 * GB).expect("enough memory");
}
