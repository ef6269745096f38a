//! The folder of one cluster: data, certificates, kubeconfig and logs, removed with the cluster.
//!
//! A process that is killed outright cannot remove its folder, so each folder holds a file that its owner keeps
//! locked; the next start removes the folders whose lock nobody holds.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::Error;

const PREFIX: &str = "veneer-testbed-";
const LOCK: &str = "lock";
/// Far longer than it takes to create a folder and lock it.
const SETUP: Duration = Duration::from_secs(60);
const KEPT_LOGS: usize = 20;

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

/// Copies the logs of a folder to where the next start does not remove them, and says where that is. Only those of
/// the last few clusters are kept.
pub(crate) fn keep_logs(folder: &Path, kept: &Path) -> io::Result<PathBuf> {
    fs::create_dir_all(kept)?;
    let mut earlier = fs::read_dir(kept)?.collect::<Result<Vec<_>, _>>()?;
    earlier.sort_by_key(|entry| Reverse(entry.metadata().and_then(|data| data.modified()).ok()));
    for entry in earlier.into_iter().skip(KEPT_LOGS - 1) {
        // Another failing test may remove the same ones.
        let _ = fs::remove_dir_all(entry.path());
    }
    let place = kept.join(folder.file_name().unwrap_or_default());
    fs::create_dir(&place)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let (Some("log"), Some(name)) = (path.extension().and_then(OsStr::to_str), path.file_name()) {
            fs::copy(&path, place.join(name))?;
        }
    }
    Ok(place)
}

/// Removes what killed processes left behind. A folder that cannot be removed (another user's, say) is left alone:
/// it does not stand in the way of a new cluster.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let abandoned = match File::open(entry.path().join(LOCK)) {
            Ok(lock) => lock.try_lock().is_ok(),
            // Its owner is about to name the lock, or was killed before it could.
            Err(error) => {
                error.kind() == io::ErrorKind::NotFound && age(&entry).is_some_and(|age| age > SETUP)
            }
        };
        if abandoned {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn age(entry: &fs::DirEntry) -> Option<Duration> {
    entry.metadata().ok()?.modified().ok()?.elapsed().ok()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_the_logs_of_the_last_few_clusters_are_kept() {
        let kept = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("etcd.log"), "a line").unwrap();
        fs::write(folder.path().join("tokens.csv"), "a secret").unwrap();
        for number in 0..KEPT_LOGS + 3 {
            fs::create_dir(kept.path().join(number.to_string())).unwrap();
        }

        let place = keep_logs(folder.path(), kept.path()).unwrap();

        assert_eq!(fs::read_to_string(place.join("etcd.log")).unwrap(), "a line");
        assert!(!place.join("tokens.csv").exists());
        assert_eq!(fs::read_dir(kept.path()).unwrap().count(), KEPT_LOGS);
    }

    #[test]
    fn a_folder_that_never_got_its_lock_is_removed_after_a_while() {
        let parent = tempfile::tempdir().unwrap();
        let [new, old] = ["new", "old"].map(|name| parent.path().join(format!("{PREFIX}{name}")));
        for folder in [&new, &old] {
            fs::create_dir(folder).unwrap();
        }
        let long_ago = SystemTime::now() - 2 * SETUP;
        File::open(&old).unwrap().set_modified(long_ago).unwrap();

        remove_abandoned(parent.path());

        assert!(new.exists());
        assert!(!old.exists());
    }

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
