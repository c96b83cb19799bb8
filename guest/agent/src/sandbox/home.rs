//! Where a user is at home.

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use std::{
    fs::File,
    io::{self, Read},
};

/// Where a root says who its users are.
const USERS: &str = "/etc/passwd";
/// How much of that is read, in bytes.
const MAX_BYTES: u64 = 256 << 10;
/// Linux has no longer paths, in bytes.
const MAX_PATH_BYTES: usize = 4095;
/// The home of those who are not in there.
const OTHERS: &str = "/";

/// The home of a user in the root of this process, as its `/etc/passwd` says it; `/` if it says nothing of him.
pub fn of(user: u16) -> String {
    let users = read().unwrap_or_default();
    home(&users, user).unwrap_or(OTHERS).to_owned()
}

/// Reads the users of the root. An instance that runs already may have put anything there: a pipe or a terminal is not
/// waited for, and a link leads nowhere but into the root.
fn read() -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat2(CWD, USERS, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?;
    let mut users = Vec::new();
    File::from(file).take(MAX_BYTES).read_to_end(&mut users)?;
    Ok(users)
}

/// What the first whole line of a user says.
fn home(users: &[u8], user: u16) -> Option<&str> {
    users.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = std::str::from_utf8(line).ok()?.split(':');
        let number: u16 = fields.nth(2)?.parse().ok()?;
        let home = fields.nth(2)?;
        // Without a shell behind it, it may have been cut off.
        fields.next()?;
        let is_path = home.starts_with('/') && home.len() <= MAX_PATH_BYTES && !home.contains('\0');
        (number == user && is_path).then_some(home)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_whole_line_of_a_user_says_where_he_is_at_home() {
        let users = b"root:x:0:0:root:/root:/bin/sh\n\n# 7\nno number:x:seven:7::/no:/bin/sh\n\
            short:x:7:7\nrelative:x:7:7::home:/bin/sh\nzero:x:7:7::/ho\0me:/bin/sh\n\
            \xff:x:7:7::/odd:/bin/sh\napp:x:7:8:An App,,:/srv/app:\nsecond:x:7:8::/second:/bin/sh\n\
            large:x:65543:7::/large:/bin/sh\ncut:x:9:9::/home/cu";
        assert_eq!(home(users, 0), Some("/root"));
        assert_eq!(home(users, 7), Some("/srv/app"));
        for user in [8, 9] {
            assert_eq!(home(users, user), None, "{user}");
        }
        let long = format!("long:x:7:7::/{}:/bin/sh", "x".repeat(MAX_PATH_BYTES));
        assert_eq!(home(long.as_bytes(), 7), None);
    }

    proptest! {
        #[test]
        fn whatever_is_there_a_home_is_a_path(
            users in prop::collection::vec(prop::sample::select(b"07:/\n\0\xffx".to_vec()), 0..200),
            user in prop::sample::select(vec![0u16, 7, 77]),
        ) {
            if let Some(home) = home(&users, user) {
                prop_assert!(home.starts_with('/') && !home.contains(['\0', '\n', ':']), "{home:?}");
            }
        }

        #[test]
        fn any_bytes_can_be_there(
            users in prop::collection::vec(any::<u8>(), 0..1000),
            user in any::<u16>(),
        ) {
            home(&users, user);
        }
    }
}
