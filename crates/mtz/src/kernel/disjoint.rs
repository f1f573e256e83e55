//! One slice, written by several threads in places that do not overlap.

use std::marker::PhantomData;

/// A mutable slice that can be handed to several tasks.
#[derive(Clone, Copy)]
pub(crate) struct Disjoint<'a, T = f32> {
    start: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: the only way to the numbers is `part`, whose callers promise not to overlap.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), life: PhantomData }
    }

    /// The numbers from `start`, `len` of them.
    ///
    /// # Safety
    /// While the result lives, nobody else may ask for any of its numbers.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start <= self.len && len <= self.len - start, "a part outside of the slice");
        // SAFETY: inside the slice by the assertion, unshared by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}
