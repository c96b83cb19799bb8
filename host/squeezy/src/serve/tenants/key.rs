//! Keys of namespaces: `ID:SECRET`, as OpenWhisk's clients send it. Only a digest of the whole is kept. The secret has
//! 256 random bits, so nobody guesses it from the digest, and checking one costs no more than the digest of a line.

use super::TenantError;
use crate::serve::{
    callers::{Caller, Role},
    key::{equal, random},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use squeezy_openwhisk::{Digest, Namespace, now_ms};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Lengths of the public part and of the secret, in bytes.
const ID_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;

/// The name of a key in its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct KeyName(String);

impl TryFrom<String> for KeyName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        // The same rule as for a namespace.
        let checked = name.parse::<Namespace>();
        checked.map_err(|error| error.replace("a namespace's", "a key's"))?;
        Ok(Self(name))
    }
}

/// A key as it is stored.
#[derive(Serialize, Deserialize)]
pub struct StoredKey {
    id: String,
    /// Of `ID:SECRET`.
    digest: Digest,
    role: Role,
    created_ms: u64,
    #[serde(default)]
    used_ms: u64,
}

/// A key.
#[derive(Debug)]
pub struct KeyEntry {
    /// The part that is no secret.
    pub id: String,
    caller: Caller,
    digest: Digest,
    created_ms: u64,
    /// When it was last used, in milliseconds since 1970; 0 for never.
    used_ms: AtomicU64,
    /// It was used since this was last written.
    has_news: AtomicBool,
}

impl KeyEntry {
    pub fn restored(namespace: &Namespace, stored: StoredKey) -> Self {
        let StoredKey { id, digest, role, created_ms, used_ms } = stored;
        let caller = Caller { namespace: namespace.clone(), role, key: Some(id.as_str().into()) };
        let (used_ms, has_news) = (AtomicU64::new(used_ms), AtomicBool::new(false));
        Self { id, caller, digest, created_ms, used_ms, has_news }
    }

    pub fn stored(&self) -> StoredKey {
        StoredKey {
            id: self.id.clone(),
            digest: self.digest.clone(),
            role: self.caller.role,
            created_ms: self.created_ms,
            used_ms: self.used_ms.load(Ordering::Relaxed),
        }
    }

    /// Whether these are its two parts.
    pub fn admits(&self, given: &[u8]) -> bool {
        equal(digest(given).digits().as_bytes(), self.digest.digits().as_bytes())
    }

    /// Notes that it is used; returns by whom.
    pub fn used(&self) -> Caller {
        self.used_ms.store(now_ms(), Ordering::Relaxed);
        self.has_news.store(true, Ordering::Relaxed);
        self.caller.clone()
    }

    /// Whether it was used since this was last asked for.
    pub fn forget_news(&self) -> bool {
        self.has_news.swap(false, Ordering::Relaxed)
    }

    /// The key as clients receive it, without its secret.
    pub fn describe(&self, name: &KeyName) -> Value {
        let used_ms = Some(self.used_ms.load(Ordering::Relaxed)).filter(|used| *used > 0);
        json!({
            "name": name,
            "id": self.id,
            "role": self.caller.role,
            "created": self.created_ms,
            "last_used": used_ms,
        })
    }
}

/// A key that has just been made.
pub struct NewKey {
    /// What clients send.
    pub text: String,
    entry: Arc<KeyEntry>,
}

impl NewKey {
    pub fn make(namespace: &Namespace, role: Role) -> Result<Self, TenantError> {
        let failed = |error| TenantError::File { path: Path::new("getrandom").to_owned(), error };
        let id = random(ID_BYTES).map_err(failed)?;
        let text = format!("{id}:{}", random(SECRET_BYTES).map_err(failed)?);
        let digest = digest(text.as_bytes());
        let stored = StoredKey { id, digest, role, created_ms: now_ms(), used_ms: 0 };
        Ok(Self { text, entry: Arc::new(KeyEntry::restored(namespace, stored)) })
    }

    pub fn entry(&self) -> Arc<KeyEntry> {
        self.entry.clone()
    }
}

fn digest(text: &[u8]) -> Digest {
    Digest::of_sum(Sha256::digest(text).into())
}
