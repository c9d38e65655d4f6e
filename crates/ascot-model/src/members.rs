//! The rates of several members that do the same work at the same time (volumes, peers): their mean, their standard
//! deviation, and the slowest, which decides when all are done.

use serde::{Deserialize, Serialize};

/// A member and its rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberRate {
    /// Its name.
    pub name: String,
    /// Bytes/s.
    pub bytes_per_s: f64,
}

/// The rates of all members, bytes/s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberRates {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the members, with n - 1; 0 for a single one.
    pub deviation: f64,
    /// The slowest member.
    pub slowest: MemberRate,
    /// The fastest member.
    pub fastest: MemberRate,
    /// All members, in the order in which they were given.
    pub members: Vec<MemberRate>,
}

impl MemberRates {
    /// The figures of these members; `None` without any.
    pub fn of(members: Vec<MemberRate>) -> Option<MemberRates> {
        let by_rate = |a: &&MemberRate, b: &&MemberRate| a.bytes_per_s.total_cmp(&b.bytes_per_s);
        let slowest = members.iter().min_by(by_rate)?.clone();
        let fastest = members.iter().max_by(by_rate)?.clone();
        let count = members.len() as f64;
        let mean = members.iter().map(|member| member.bytes_per_s).sum::<f64>() / count;
        let squares = members.iter().map(|member| (member.bytes_per_s - mean).powi(2)).sum::<f64>();
        let deviation = if members.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        Some(MemberRates { mean, deviation, slowest, fastest, members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(values: &[f64]) -> Option<MemberRates> {
        let member = |(at, rate): (usize, &f64)| MemberRate { name: format!("m{at}"), bytes_per_s: *rate };
        MemberRates::of(values.iter().enumerate().map(member).collect())
    }

    #[test]
    fn the_mean_the_deviation_and_both_ends() {
        let of_four = rates(&[4.0, 2.0, 6.0, 8.0]).unwrap();
        assert_eq!(of_four.mean, 5.0);
        assert!((of_four.deviation - (20.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!((of_four.slowest.name.as_str(), of_four.fastest.name.as_str()), ("m1", "m3"));
        assert_eq!(of_four.members.len(), 4);
    }

    #[test]
    fn one_member_has_no_deviation_and_none_have_no_figures() {
        let alone = rates(&[3.0]).unwrap();
        assert_eq!((alone.mean, alone.deviation), (3.0, 0.0));
        assert_eq!(rates(&[]), None);
    }
}
