//! Buffers that threads keep for the next piece of work, so that nothing is allocated in the steady state.

use std::cell::RefCell;

thread_local! {
    static FREE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of `len` numbers with anything in it.
pub(crate) fn take(len: usize) -> Vec<f32> {
    let mut buffer = FREE.with_borrow_mut(|free| {
        let best = free.iter().enumerate().min_by_key(|(_, b)| (b.capacity() < len, b.capacity().abs_diff(len)));
        best.map(|(i, _)| i).map(|i| free.swap_remove(i)).unwrap_or_default()
    });
    buffer.resize(len, 0.0);
    buffer
}

/// Keeps a buffer for later; a few are enough.
pub(crate) fn give_back(buffer: Vec<f32>) {
    FREE.with_borrow_mut(|free| {
        if free.len() < 8 {
            free.push(buffer);
        }
    });
}
