//! Mutexes whose holders may have panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Holds a mutex, also one whose holder has panicked: no code here that holds one can leave what is in it half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
