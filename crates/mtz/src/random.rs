//! Random numbers that depend only on a seed and a position, so that threads can draw them in any order.

/// A well-mixed 64-bit number for a seed and a position (SplitMix64, Steele, Lea and Flood 2014).
pub fn bits(seed: u64, position: u64) -> u64 {
    let mut z = mix(seed).wrapping_add(position.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(z)
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number in [0, 1), with the 24 bits an f32 holds.
pub fn uniform(seed: u64, position: u64) -> f32 {
    (bits(seed, position) >> 40) as f32 / (1u64 << 24) as f32
}

/// A number from the normal distribution (Box and Muller).
pub fn normal(seed: u64, position: u64) -> f32 {
    let (a, b) = (uniform(seed, 2 * position), uniform(seed, 2 * position + 1));
    (-2.0 * (1.0 - a).ln()).sqrt() * (std::f32::consts::TAU * b).cos()
}

/// A number below `limit`.
pub fn below(seed: u64, position: u64, limit: usize) -> usize {
    // The bias of the remainder is below limit / 2⁶⁴.
    (bits(seed, position) % limit.max(1) as u64) as usize
}

/// 0 … n − 1 in random order (Fisher and Yates).
pub fn permutation(seed: u64, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, below(seed, i as u64, i + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_right() {
        let n = 200_000;
        let mean = |f: &dyn Fn(u64) -> f64| (0..n).map(f).sum::<f64>() / n as f64;
        for seed in [0, 1, 12345] {
            assert!((mean(&|i| uniform(seed, i).into()) - 0.5).abs() < 5e-3);
            assert!(mean(&|i| normal(seed, i).into()).abs() < 1e-2);
            assert!((mean(&|i| f64::from(normal(seed, i)).powi(2)) - 1.0).abs() < 2e-2);
        }
    }

    #[test]
    fn permutations_hold_everything_once() {
        let mut order = permutation(7, 1000);
        assert_ne!(order[..5], [0, 1, 2, 3, 4]);
        order.sort_unstable();
        assert!(order.into_iter().eq(0..1000));
    }
}
