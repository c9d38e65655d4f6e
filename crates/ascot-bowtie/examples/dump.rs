//! Scratch.
use ascot_bowtie::simulate::{Setup, Skew, simulate};
use ascot_model::run_length::{Scheme, Shape};
fn main() {
    let a: Vec<f64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let shape = Shape { inputs: a[0] as u32, outputs: a[1] as u32, alpha: a[2] };
    let scheme = std::env::var("A").map_or(Scheme::best(shape), |a| Scheme::best_of(shape, serde_json_alg(&a)).unwrap());
    let memory_blocks = std::env::var("B").map_or(256, |x| x.parse().unwrap()) * shape.streams();
    let skew = if a.len() > 4 { if a[4] >= 1.0 { Skew::OneFast(a[4]) } else { Skew::Noise(a[4]) } } else { Skew::Equal };
    let setup = Setup { scheme, memory_blocks, total_blocks: 200 * u64::from(memory_blocks), input_skew: skew.clone(), output_skew: skew, seed: 1 };
    let out = simulate(&setup, true).unwrap();
    println!("{scheme:?} split {:?} formula {:.1} got {:.1}", ascot_bowtie::occupancy::Split::of(&scheme, memory_blocks), scheme.run_length(memory_blocks as f64), out.run_length());
    for (step, units) in out.steps.iter().skip(std::env::var("SKIP").map_or(60, |x| x.parse().unwrap())).take(a[3] as usize) {
        println!("{step:?} {:.2}", *units as f64 / 4096.0);
    }
}
fn serde_json_alg(a: &str) -> ascot_model::run_length::Algorithm {
    use ascot_model::run_length::Algorithm::*;
    [A1, A2, A3, A4, A5, A6r, A6w].into_iter().find(|x| x.name() == a).unwrap()
}
