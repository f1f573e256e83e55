//! Vectors of f32 on the instruction set the machine has, chosen at run time: users build without flags.
//!
//! A kernel is written once, generic over [`Vector`], and instantiated by [`dispatch!`] inside functions that enable
//! AVX-512 or AVX2 with FMA; elsewhere (and on other machines) the portable [`Lanes`] are compiled, which the compiler
//! turns into NEON or SSE. Tests compare the portable version with the others.
#![allow(clippy::needless_range_loop)] // indices keep the unrolled loops over registers readable

use std::sync::OnceLock;

/// A few f32 that are computed with at once.
#[allow(unsafe_code)] // loads and stores through pointers, so that kernels pay for no bounds check per vector
pub(crate) trait Vector: Copy {
    /// How many.
    const LEN: usize;

    /// Reads [`Self::LEN`] numbers.
    ///
    /// # Safety
    /// All of them must be readable at `from`.
    unsafe fn load(from: *const f32) -> Self;

    /// Writes [`Self::LEN`] numbers.
    ///
    /// # Safety
    /// All of them must be writable at `to`.
    unsafe fn store(self, to: *mut f32);

    /// The same number everywhere.
    fn splat(x: f32) -> Self;

    /// self + a · b.
    fn multiply_add(self, a: Self, b: Self) -> Self;

    /// The greater number of each pair; `other` where one of them is not a number.
    fn max(self, other: Self) -> Self;
}

/// The portable vector.
#[derive(Clone, Copy)]
pub(crate) struct Lanes([f32; 8]);

impl Vector for Lanes {
    const LEN: usize = 8;

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller vouches for eight readable numbers; an array has no stricter alignment than its elements.
        Self(unsafe { *from.cast::<[f32; 8]>() })
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller vouches for eight writable numbers.
        unsafe { *to.cast::<[f32; 8]>() = self.0 }
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self([x; 8])
    }

    #[inline(always)]
    fn multiply_add(self, a: Self, b: Self) -> Self {
        let mut out = self.0;
        for i in 0..8 {
            out[i] += a.0[i] * b.0[i];
        }
        Self(out)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        let mut out = other.0;
        for i in 0..8 {
            if self.0[i] > out[i] {
                out[i] = self.0[i];
            }
        }
        Self(out)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    /// 256 bits: AVX2 with FMA.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(__m256);

    /// 512 bits: AVX-512F.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(__m512);

    // SAFETY (all blocks below): the intrinsics only need their instruction set, which `dispatch!` has checked before
    // it calls a kernel with these types; loads and stores are unaligned and the caller vouches for the memory.
    #[allow(unsafe_code)]
    impl Vector for Avx2 {
        const LEN: usize = 8;

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            Self(unsafe { _mm256_loadu_ps(from) })
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { _mm256_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        fn splat(x: f32) -> Self {
            Self(unsafe { _mm256_set1_ps(x) })
        }

        #[inline(always)]
        fn multiply_add(self, a: Self, b: Self) -> Self {
            Self(unsafe { _mm256_fmadd_ps(a.0, b.0, self.0) })
        }

        #[inline(always)]
        fn max(self, other: Self) -> Self {
            Self(unsafe { _mm256_max_ps(self.0, other.0) })
        }
    }

    #[allow(unsafe_code)]
    impl Vector for Avx512 {
        const LEN: usize = 16;

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            Self(unsafe { _mm512_loadu_ps(from) })
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { _mm512_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        fn splat(x: f32) -> Self {
            Self(unsafe { _mm512_set1_ps(x) })
        }

        #[inline(always)]
        fn multiply_add(self, a: Self, b: Self) -> Self {
            Self(unsafe { _mm512_fmadd_ps(a.0, b.0, self.0) })
        }

        #[inline(always)]
        fn max(self, other: Self) -> Self {
            Self(unsafe { _mm512_max_ps(self.0, other.0) })
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

/// The instruction sets kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Portable,
    Avx2,
    Avx512,
}

/// The widest one this machine has. The environment variable MTZ_SIMD (`portable` or `avx2`) asks for less: to compare,
/// and to get the same bits on machines that differ.
pub(crate) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let most = match std::env::var("MTZ_SIMD").as_deref() {
            Ok("portable") => Level::Portable,
            Ok("avx2") => Level::Avx2,
            _ => Level::Avx512,
        };
        most.min(detected())
    })
}

#[cfg(target_arch = "x86_64")]
fn detected() -> Level {
    if std::arch::is_x86_feature_detected!("avx512f") {
        Level::Avx512
    } else if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        Level::Avx2
    } else {
        Level::Portable
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detected() -> Level {
    Level::Portable
}

/// Numbers in a vector, and the vectors a kernel may keep as sums beside what it reads.
pub(crate) fn capacity() -> (usize, usize) {
    match level() {
        Level::Avx512 => (16, 28),
        Level::Avx2 | Level::Portable => (Lanes::LEN, 12),
    }
}

/// Defines `fn $name(args)` that runs `$kernel::<V, ROWS, COLUMNS>(args)` on the widest vectors the machine has. ROWS ×
/// COLUMNS vectors are held in registers: as many as the instruction set has room for.
macro_rules! dispatch {
    ($(#[$doc:meta])* $name:ident, $kernel:ident, ($($arg:ident: $type:ty),*),
    avx512: $r5:literal x $c5:literal, other: $r2:literal x $c2:literal) => {
        $(#[$doc])*
        #[allow(unsafe_code)]
        pub(crate) fn $name($($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f")]
                fn avx512($($arg: $type),*) {
                    $kernel::<crate::kernel::simd::Avx512, $r5, $c5>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) {
                    $kernel::<crate::kernel::simd::Avx2, $r2, $c2>($($arg),*)
                }
                match crate::kernel::simd::level() {
                    // SAFETY: the machine has this instruction set, or it would be another level.
                    crate::kernel::simd::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    crate::kernel::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    crate::kernel::simd::Level::Portable => {}
                }
            }
            $kernel::<crate::kernel::simd::Lanes, $r2, $c2>($($arg),*)
        }
    };
}

pub(crate) use dispatch;
