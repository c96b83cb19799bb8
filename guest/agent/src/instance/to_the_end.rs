//! What has begun in the kernel goes on if the host gives up: whoever comes next has to know how things are there.

use crate::error::ApiError;

/// Does something in a task of its own. `what` says what, for errors.
pub(super) async fn to_the_end<T: 'static>(
    what: &str,
    done: impl Future<Output = Result<T, ApiError>> + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_local(done).await;
    done.unwrap_or_else(|_| Err(ApiError::internal(what, "its task is gone")))
}
