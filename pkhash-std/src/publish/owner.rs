//! Owner and permissions of a file that replaces another.

use std::fs::{File, Metadata};
use std::io;

/// Gives a new file the owner, the group and the permissions of the one that it replaces, as far as this
/// process may; never wider access than that had.
#[cfg(unix)]
pub(super) fn keep(file: &File, model: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    let now = file.metadata()?;
    let mut mode = model.mode() & 0o7777;
    let owner = (model.uid() != now.uid()).then_some(model.uid());
    let group = (model.gid() != now.gid()).then_some(model.gid());
    let kept = own(file, owner, group)?;
    if !kept {
        // Nobody else gets to act in our name.
        mode &= 0o777;
        // Who is in a group may choose it alone.
        let kept = group.is_none() || own(file, None, group)?;
        if !kept {
            let others = mode & 0o007;
            mode &= 0o707 | others << 3;
        }
    }
    // Behind the owner's change, which may take bits away.
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

/// False if this process, or this file system, does not do that.
#[cfg(unix)]
fn own(file: &File, owner: Option<u32>, group: Option<u32>) -> io::Result<bool> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};

    if owner.is_none() && group.is_none() {
        return Ok(true);
    }
    match std::os::unix::fs::fchown(file, owner, group) {
        Ok(()) => Ok(true),
        // The second: an owner that has no number in this container.
        Err(error) if matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

#[cfg(not(unix))]
pub(super) fn keep(file: &File, model: &Metadata) -> io::Result<()> {
    file.set_permissions(model.permissions())
}
