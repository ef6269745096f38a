//! The folder of one cluster: data, certificates, kubeconfig and logs, removed with the cluster.
//!
//! A process that is killed outright cannot remove its folder, so each folder holds a file that its owner keeps
//! locked; the next start removes the folders whose lock nobody holds.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::Error;

const PREFIX: &str = "veneer-testbed-";
const LOCK: &str = "lock";

/// A temporary folder that only its owner can read, removed on drop.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: TempDir,
    _lock: File,
}

impl Folder {
    pub(crate) fn create() -> Result<Self, Error> {
        let parent = std::env::temp_dir();
        remove_abandoned(&parent);
        let dir = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(&parent)
            .map_err(|error| Error::io("create a folder in", &parent, error))?;
        // The file gets its name only once it is locked: a folder can never look abandoned while it is set up.
        let unnamed = dir.path().join("lock.new");
        let lock = File::create(&unnamed).map_err(|error| Error::io("create", &unnamed, error))?;
        lock.lock().map_err(|error| Error::io("lock", &unnamed, error))?;
        fs::rename(&unnamed, dir.path().join(LOCK)).map_err(|error| Error::io("rename", &unnamed, error))?;
        Ok(Folder { dir, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file of this folder and returns its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf, Error> {
        let path = self.join(name);
        fs::write(&path, content).map_err(|error| Error::io("write", &path, error))?;
        Ok(path)
    }
}

/// Removes what killed processes left behind. A folder that cannot be removed (another user's, say) is left alone:
/// it does not stand in the way of a new cluster.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else {
            continue;
        };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_whose_owner_is_gone_is_removed_and_one_in_use_is_kept() {
        let parent = tempfile::tempdir().unwrap();
        let abandoned = parent.path().join(format!("{PREFIX}abandoned"));
        let used = parent.path().join(format!("{PREFIX}used"));
        let unrelated = parent.path().join("unrelated");
        for folder in [&abandoned, &used, &unrelated] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join(LOCK), "").unwrap();
        }
        let held = File::open(used.join(LOCK)).unwrap();
        held.lock().unwrap();

        remove_abandoned(parent.path());

        assert!(!abandoned.exists());
        assert!(used.exists());
        assert!(unrelated.exists());
    }
}
