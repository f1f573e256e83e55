//! Rows become columns, eight by eight in registers: what the convolutions need between the layout of the network
//! (channel by channel) and that of their kernels (position by position).

/// dst[to(c) + r] = src[r · stride + c] for all r < rows, c < columns.
pub(crate) fn transpose(
    rows: usize,
    columns: usize,
    src: &[f32],
    stride: usize,
    dst: &mut [f32],
    to: impl Fn(usize) -> usize,
) {
    #[cfg(target_arch = "x86_64")]
    let (whole_rows, whole_columns) =
        if std::arch::is_x86_feature_detected!("avx") { (rows & !7, columns & !7) } else { (0, 0) };
    #[cfg(not(target_arch = "x86_64"))]
    let (whole_rows, whole_columns) = (0, 0);
    #[cfg(target_arch = "x86_64")]
    // Sixteen columns at a time: a whole cache line of every row.
    for column in (0..whole_columns).step_by(16).filter(|_| whole_rows > 0) {
        let targets: [usize; 16] = std::array::from_fn(|i| to((column + i).min(columns - 1)));
        let (left, right) = targets.split_at(8);
        let two = column + 8 < whole_columns;
        let last = targets[..if two { 16 } else { 8 }].iter().max().copied().unwrap_or(0);
        let end = column + if two { 16 } else { 8 };
        assert!((whole_rows - 1) * stride + end <= src.len() && last + whole_rows <= dst.len());
        for row in (0..whole_rows).step_by(8) {
            // SAFETY: AVX has been detected; the assertion places eight rows of eight (or sixteen) numbers inside `src`
            // and eight numbers behind each target inside `dst`.
            #[allow(unsafe_code)]
            unsafe {
                let (from, to) = (src.as_ptr().add(row * stride + column), dst.as_mut_ptr().add(row));
                eight(from, stride, to, left);
                if two {
                    eight(from.add(8), stride, to, right);
                }
            }
        }
    }
    for row in 0..rows {
        let done = if row < whole_rows { whole_columns } else { 0 };
        for column in done..columns {
            dst[to(column) + row] = src[row * stride + column];
        }
    }
}

/// An 8×8 block.
///
/// # Safety
/// Eight rows of eight numbers must be readable at `src`, and eight numbers be writable at each target from `dst`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[allow(unsafe_code)]
unsafe fn eight(src: *const f32, stride: usize, dst: *mut f32, targets: &[usize]) {
    use std::arch::x86_64::*;
    // SAFETY: as the caller promises.
    unsafe {
        let r: [__m256; 8] = std::array::from_fn(|i| _mm256_loadu_ps(src.add(i * stride)));
        let pairs: [__m256; 8] = std::array::from_fn(|i| {
            let (a, b) = (r[i / 2 * 2], r[i / 2 * 2 + 1]);
            if i % 2 == 0 { _mm256_unpacklo_ps(a, b) } else { _mm256_unpackhi_ps(a, b) }
        });
        let quads: [__m256; 8] = std::array::from_fn(|i| {
            let (a, b) = (pairs[i / 4 * 4 + i % 4 / 2], pairs[i / 4 * 4 + i % 4 / 2 + 2]);
            if i % 2 == 0 { _mm256_shuffle_ps::<0x44>(a, b) } else { _mm256_shuffle_ps::<0xee>(a, b) }
        });
        for i in 0..4 {
            _mm256_storeu_ps(dst.add(targets[i]), _mm256_permute2f128_ps::<0x20>(quads[i], quads[i + 4]));
            _mm256_storeu_ps(dst.add(targets[i + 4]), _mm256_permute2f128_ps::<0x31>(quads[i], quads[i + 4]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_arrives() {
        for (rows, columns) in [(1, 1), (8, 8), (17, 9), (32, 9), (7, 40), (16, 49)] {
            let src: Vec<f32> = (0..rows * (columns + 3)).map(|i| i as f32).collect();
            let mut dst = vec![-1.0; columns * (rows + 2)];
            transpose(rows, columns, &src, columns + 3, &mut dst, |c| (columns - 1 - c) * (rows + 2));
            for r in 0..rows {
                for c in 0..columns {
                    assert_eq!(dst[(columns - 1 - c) * (rows + 2) + r], src[r * (columns + 3) + c]);
                }
            }
            assert_eq!(dst.iter().filter(|x| **x == -1.0).count(), 2 * columns);
        }
    }
}
