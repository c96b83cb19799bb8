//! A request with much code: that goes to the disk as it comes, and memory has only the rest of the request.

mod split;

use super::{
    BODY_LIMIT, COPIES, Frames, MAX_BODY_BYTES, error::ApiError, more_for_values,
    sending::Recipient,
};
use crate::{
    mutex::lock,
    serve::{
        blobs::{BlobError, Spool, blocking},
        bodies::Held,
        service::{Service, ServiceError},
    },
};
use axum::body::Body;
use split::Splitter;
use squeezy_protocol::MAX_CODE_BYTES;
use std::{
    mem,
    sync::{Arc, Mutex},
};

/// The longest request with code, in bytes.
pub const MAX_UPLOAD_BYTES: usize = MAX_CODE_BYTES + MAX_BODY_BYTES;

/// For how many bytes a client may take as long as for an ordinary body.
const LIMIT_BYTES: usize = 16 << 20;

/// What is written at a time, in bytes.
const PIECE: usize = 128 << 10;

/// What a request is going to have beside its code, as far as nobody knows better, in bytes.
const REST_BYTES: usize = 64 << 10;

/// Memory for that, and for code on its way to the disk.
const MEMORY_BYTES: usize = COPIES * REST_BYTES + 3 * PIECE;

/// The code that came with a request, until somebody takes it.
#[derive(Clone, Default)]
pub struct Uploaded(Arc<Mutex<Option<Spool>>>);

impl Uploaded {
    /// The code, the first time.
    pub fn take(&self) -> Option<Spool> {
        lock(&self.0).take()
    }
}

/// Reads a request of this length; returns it without its code. Even if there is no space for the code, all of it is read,
/// for clients that only read the answer then.
pub async fn read(
    service: &Service,
    Recipient { part, place }: &Recipient,
    body: Body,
    length: usize,
) -> Result<(Vec<u8>, Held, Uploaded), ApiError> {
    // No more than a few are under way that are so large: a turn goes on until the code is where it belongs.
    let all_bytes = 2 * length + COPIES * MAX_BODY_BYTES;
    let held = part.take_for_code(all_bytes, MEMORY_BYTES).await;
    let mut held = held.map_err(|none| ApiError::no_room(none, MEMORY_BYTES))?;
    if let Some(place) = place {
        place.waits();
    }
    let pieces = u32::try_from(length.div_ceil(LIMIT_BYTES)).unwrap_or(u32::MAX);
    let mut frames = Frames::new(body, BODY_LIMIT.saturating_mul(pieces));
    let mut upload = Ok(Upload::new());
    while let Some(data) = frames.next(&held).await? {
        upload = match upload {
            Ok(so_far) => so_far.take(service, &data, &mut held).await,
            failed => failed,
        };
    }
    if let Some(place) = place {
        place.works();
    }
    let (rest, code) = upload?.finish(service).await?;
    held.shrink_to((COPIES * rest.len()).max(PIECE));
    let more = more_for_values(&rest);
    if more > 0 {
        held.grow_now(more).map_err(|none| ApiError::no_room(none, more + rest.len()))?;
    }
    Ok((rest, held, Uploaded(Arc::new(Mutex::new(code)))))
}

/// What has come of a request.
struct Upload {
    splitter: Splitter,
    code: Option<Spool>,
    /// How much may be beside the code before memory is reserved for more, in bytes.
    rest_bytes: usize,
}

impl Upload {
    fn new() -> Self {
        Self { splitter: Splitter::default(), code: None, rest_bytes: REST_BYTES }
    }

    async fn take(
        mut self,
        service: &Service,
        data: &[u8],
        held: &mut Held,
    ) -> Result<Self, ApiError> {
        self.splitter.take(data).map_err(super::actions::malformed)?;
        let rest = self.splitter.rest.len();
        if rest > MAX_BODY_BYTES {
            return Err(ApiError::too_large(rest, MAX_BODY_BYTES));
        }
        while rest > self.rest_bytes {
            let grown = held.grow_now(COPIES * REST_BYTES);
            grown.map_err(|none| ApiError::no_room(none, COPIES * rest))?;
            self.rest_bytes += REST_BYTES;
        }
        if self.splitter.code.len() < PIECE { Ok(self) } else { self.write(service).await }
    }

    /// Writes what has come of the code.
    async fn write(mut self, service: &Service) -> Result<Self, ApiError> {
        let code = mem::take(&mut self.splitter.code);
        let mut spool = match self.code.take() {
            Some(spool) => spool,
            None => service.spool().await?,
        };
        let bytes = spool.bytes() as usize + code.len();
        if bytes > MAX_CODE_BYTES {
            return Err(ApiError::too_large(bytes, MAX_CODE_BYTES));
        }
        let written = blocking(move || {
            spool.write(&code)?;
            Ok::<_, BlobError>(spool)
        });
        self.code = Some(written.await.map_err(ServiceError::from)?);
        Ok(self)
    }

    async fn finish(self, service: &Service) -> Result<(Vec<u8>, Option<Spool>), ApiError> {
        let whole = if self.splitter.code.is_empty() { self } else { self.write(service).await? };
        Ok((whole.splitter.rest, whole.code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{
        bodies::{Bodies, Payer},
        service::tests::service,
    };
    use axum::response::IntoResponse;
    use serde_json::{Value, json};

    /// A request is read for this namespace of a node with little memory.
    async fn upload(
        service: &Service,
        body: &Value,
        payer: Payer,
    ) -> Result<(Value, Held, Option<Spool>), u16> {
        let recipient = Recipient { part: Bodies::new(24 << 20).part(payer), place: None };
        let text = body.to_string();
        let length = text.len();
        let read = read(service, &recipient, Body::from(text), length).await;
        let (rest, held, uploaded) =
            read.map_err(|error| error.into_response().status().as_u16())?;
        Ok((serde_json::from_slice(&rest).unwrap(), held, uploaded.take()))
    }

    #[tokio::test]
    async fn code_is_on_the_disk_and_the_rest_in_memory() {
        let (service, _hold, directory) = service().await;
        let most = "x".repeat(MAX_CODE_BYTES);
        let other = "y".repeat(100_000);
        let body = |code: &str| json!({ "annotations": [other], "exec": { "code": code } });
        for payer in [Payer::alone(), Payer::named("acme")] {
            let (rest, held, spool) = upload(&service, &body(&most), payer).await.unwrap();
            assert_eq!(rest, body(""));
            assert!(held.take_turn().is_some());
            let spool = spool.unwrap();
            assert_eq!(spool.bytes(), most.len() as u64);
            let mut end = [0; 3];
            spool.read(&mut end, spool.bytes() - 3).unwrap();
            assert_eq!(&end, b"xxx");
            // Nobody finds it.
            let code = directory.path().join(crate::serve::code::DIRECTORY);
            assert_eq!(std::fs::read_dir(code).unwrap().count(), 0);
        }
        let (rest, _, spool) = upload(&service, &json!([other]), Payer::alone()).await.unwrap();
        assert!(rest == json!([other]) && spool.is_none());
    }

    #[tokio::test]
    async fn what_is_too_large_or_wrong_is_refused() {
        let (service, _hold, _directory) = service().await;
        let (long, longer) = ("x".repeat(MAX_BODY_BYTES), "x".repeat(MAX_CODE_BYTES + 1));
        for (body, right) in [
            (json!({ "exec": { "code": longer } }), 413),
            (json!({ "exec": { "code": "x" }, "annotations": [long] }), 413),
        ] {
            let refused = upload(&service, &body, Payer::alone()).await;
            assert_eq!(refused.err(), Some(right));
        }
    }
}
