//! The model of the all-to-all rate against the published rates, and the page that shows its deviations.

#[path = "../examples/published_network.rs"]
mod published_network;

use published_network::report;

#[test]
fn the_page_shows_what_the_example_prints() {
    let page = include_str!("../../../docs/published.md");
    let shown = page.split("--example published_network\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(shown.expect("the page shows the example"), report());
}
