//! The all-to-all rates of the published clusters by the model, and the deviation of every row.
//!
//! Source: Conley, Vahdat and Porter, "Sorting 100 TB on Google Compute Engine". The model's three parameters come from
//! three rows (`all_to_all.rs`); two simpler models show why it needs the third. `docs/published.md` shows the output.

use ascot_model::all_to_all::published::{A_100, A_299, B_100, B_299};
use ascot_model::all_to_all::{AllToAll, AllToAllRate};

const MB: f64 = 1e6;
/// The only figure for another kind of machine (section 7.1): "almost 1100 MB/s", on a network of 10 Gb/s. The paper
/// does not say among how many machines; its sort ran on 178.
const EC2: AllToAllRate = AllToAllRate { peers: 178, connections: 1, bytes_per_s: 1100.0 * MB };
const EC2_LINE: f64 = 1250.0 * MB;

/// The model's rate in MB/s and its deviation from a published one.
fn beside(model: &AllToAll, row: &AllToAllRate) -> String {
    let rate = model.rate(row.peers, row.connections);
    // Adding zero to a rounded deviation makes no zero negative.
    let permille = (1000.0 * (rate / row.bytes_per_s - 1.0)).round() + 0.0;
    format!("{:>9.2} {:>+6.1}%", rate / MB, permille / 10.0)
}

/// What the example prints.
pub fn report() -> String {
    let model = AllToAll::published();
    let pair = AllToAll::through_pair(B_100, B_299);
    let free = AllToAll { connection_share: 0.0, ..pair };
    let mut out = format!(
        "R0 {:>9.1} MB/s ({:.1} Gb/s)\nc  {:>9.3} us per MB for each further peer ({:.2}% of a MB's on the line)\n\
         w  {:>9.3} of a peer for each further connection\n",
        model.line_rate() / MB,
        8.0 * model.line_rate() / 1e9,
        model.peer_seconds_per_byte * 1e12,
        100.0 * model.peer_seconds_per_byte * model.line_rate(),
        model.connection_share,
    );
    out += "\nMB/s of a peer\n\
            cluster  peers  P  published            model  w = 1 (as peers)  w = 0 (for nothing)\n";
    for (name, row, from) in
        [("B-100", B_100, "R0, c"), ("B-299", B_299, "R0, c"), ("A-100", A_100, "w"), ("A-299", A_299, "")]
    {
        out += &format!(
            "{name:<8} {:>5} {:>2} {:>10.2} {} {} {}  {from}\n",
            row.peers,
            row.connections,
            row.bytes_per_s / MB,
            beside(&model, &row),
            beside(&pair, &row),
            beside(&free, &row),
        )
        .replace("  \n", "\n");
    }
    let line = AllToAll { line_seconds_per_byte: 1.0 / EC2_LINE, ..model };
    out += &format!(
        "EC2      {:>5} {:>2} {:>10.2} {}  (R0 = 10 Gb/s)\n",
        EC2.peers,
        EC2.connections,
        EC2.bytes_per_s / MB,
        beside(&line, &EC2)
    );
    out += "\nMore peers, one connection for each pair\n";
    for peers in [10, 30, 100, 300, 1000] {
        out += &format!("{peers:>6} {:>9.0}\n", model.rate(peers, 1) / MB);
    }
    out
}

#[allow(dead_code, reason = "a test includes this file")]
fn main() {
    print!("{}", report());
}
