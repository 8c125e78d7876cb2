//! Location, format and configuration of the repository of a folder.
//!
//! Only a few configuration values are read, and nothing that they name is read, included or run. A `.git`
//! file refers to another folder (worktrees, submodules). It is followed only if that folder refers back, so
//! that a folder cannot claim a foreign repository.

use crate::GitError;
use crate::folder::Folder;
use gix_hash::Kind;
use rustix::fs::FileType;
use safepoint_model::RelPath;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum length of a `.git` file, which has one path.
const POINTER_BYTES_MAX: u64 = 8 * 1024;
const CONFIG_BYTES_MAX: u64 = 1024 * 1024;
/// Supported repository extensions (gitrepository-layout(5), git-config(1)).
const EXTENSIONS: &[&str] =
    &["noop", "preciousobjects", "partialclone", "worktreeconfig", "relativeworktrees"];

/// Repository with files, open for reading and writing.
#[derive(Debug)]
pub struct Repository {
    /// Folder with the `.git`.
    top: PathBuf,
    /// Path of the requested folder in it.
    prefix: RelPath,
    /// Folder of this worktree: HEAD, the index, operations in progress.
    pub(crate) own: Folder,
    /// Folder shared by all worktrees: objects, branches, tags.
    pub(crate) common: Folder,
    pub(crate) hash: Kind,
    pub(crate) identity: String,
    /// True if the executable bit of files is meaningful (`core.fileMode`).
    pub(crate) file_mode: bool,
}

impl Repository {
    /// Returns the repository that contains a folder, if any.
    ///
    /// # Errors
    /// When it cannot be used: it is bare, unsupported, damaged, or refers to a folder that does not refer
    /// back.
    pub fn around(folder: &Path) -> Result<Option<Self>, GitError> {
        let folder = std::fs::canonicalize(folder).map_err(GitError::read(folder))?;
        for top in folder.ancestors() {
            let Some((own, common)) = git_dirs(top)? else { continue };
            let below = folder.strip_prefix(top).map_or(&b""[..], |below| below.as_os_str().as_bytes());
            let prefix = RelPath::new(below).map_err(|error| GitError::damaged(top, error))?;
            return Self::open(top, prefix, own, common).map(Some);
        }
        match looks_like_git(&Folder::open(&folder)?)? {
            true => Err(GitError::Bare { path: folder }),
            false => Ok(None),
        }
    }

    fn open(top: &Path, prefix: RelPath, own: Folder, common: Folder) -> Result<Self, GitError> {
        let config = Config::read(&common)?;
        if config.is("core.bare")? {
            return Err(GitError::Bare { path: top.to_owned() });
        }
        let hash = config.object_format()?;
        let identity = config.identity();
        let file_mode = config.value("core.filemode").is_none() || config.is("core.filemode")?;
        Ok(Self { top: top.to_owned(), prefix, own, common, hash, identity, file_mode })
    }

    /// Returns the folder with the `.git`: the top of the work tree.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// Returns the path of the requested folder below the top; the root if it is the top itself.
    pub fn prefix(&self) -> &RelPath {
        &self.prefix
    }

    /// Returns the hash algorithm: `sha1` or `sha256`.
    pub fn object_format(&self) -> &'static str {
        match self.hash {
            Kind::Sha256 => "sha256",
            _ => "sha1",
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "maps foreign errors by value")]
    pub(crate) fn damaged(&self, what: impl ToString) -> GitError {
        GitError::damaged(&self.top, what)
    }

    pub(crate) fn unsupported(&self, what: &str) -> GitError {
        GitError::unsupported(&self.top, what)
    }
}

/// Returns the two folders of a repository whose work tree begins at `top`, if any.
fn git_dirs(top: &Path) -> Result<Option<(Folder, Folder)>, GitError> {
    let dot_git = top.join(".git");
    let Ok(meta) = dot_git.symlink_metadata() else { return Ok(None) };
    if meta.is_dir() {
        let own = Folder::open(&dot_git)?;
        // Without these files git does not recognise a repository, and searches further up.
        return match looks_like_git(&own)? {
            true => Ok(Some((own, Folder::open(&dot_git)?))),
            false => Ok(None),
        };
    }
    if meta.is_symlink() {
        let git_dir = std::fs::canonicalize(&dot_git).map_err(GitError::read(&dot_git))?;
        return Err(GitError::Stranger { path: dot_git, git_dir });
    }
    let pointer = Folder::open(top)?.read(b".git", POINTER_BYTES_MAX)?.unwrap_or_default();
    let Some(target) = pointer.strip_prefix(b"gitdir: ") else {
        return Err(GitError::damaged(&dot_git, "it is neither a folder nor a valid `.git` file"));
    };
    let git_dir = resolve(top, target)?;
    let own = Folder::open(&git_dir)?;
    let common = match own.read(b"commondir", POINTER_BYTES_MAX)? {
        Some(common) => Folder::open(&resolve(&git_dir, &common)?)?,
        None => Folder::open(&git_dir)?,
    };
    let leads_back = match common.path() == git_dir {
        true => submodule_leads_back(&common, top)?,
        false => worktree_leads_back(&own, &common, &dot_git)?,
    };
    match leads_back {
        true => Ok(Some((own, common))),
        false => Err(GitError::Stranger { path: dot_git, git_dir }),
    }
}

/// Returns the folder that a file names, with all links resolved.
fn resolve(base: &Path, written: &[u8]) -> Result<PathBuf, GitError> {
    let path = base.join(OsStr::from_bytes(written.trim_ascii_end()));
    std::fs::canonicalize(&path).map_err(GitError::read(path))
}

/// A worktree is registered in the folder of its repository.
fn worktree_leads_back(own: &Folder, common: &Folder, dot_git: &Path) -> Result<bool, GitError> {
    if own.path().parent() != Some(&common.path().join("worktrees")) {
        return Ok(false);
    }
    let Some(back) = own.read(b"gitdir", POINTER_BYTES_MAX)? else { return Ok(false) };
    Ok(resolve(own.path(), &back).is_ok_and(|back| back == dot_git))
}

/// The repository of a submodule names its work tree.
fn submodule_leads_back(common: &Folder, top: &Path) -> Result<bool, GitError> {
    let Some(back) = Config::read(common)?.value("core.worktree") else { return Ok(false) };
    Ok(resolve(common.path(), &back).is_ok_and(|back| back == top))
}

/// Returns true if the files of every repository exist.
fn looks_like_git(folder: &Folder) -> Result<bool, GitError> {
    let is = |name: &[u8], kind| -> Result<bool, GitError> {
        Ok(folder.stat(name)?.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == kind))
    };
    Ok(folder.has(b"HEAD")?
        && folder.has(b"objects")?
        && (is(b"refs", FileType::Directory)? || folder.has(b"refs")?))
}

/// Configuration of the repository.
struct Config<'f> {
    folder: &'f Folder,
    file: gix_config::File,
}

impl<'f> Config<'f> {
    fn read(folder: &'f Folder) -> Result<Self, GitError> {
        let bytes = folder.read(b"config", CONFIG_BYTES_MAX)?.unwrap_or_default();
        let meta = gix_config::file::Metadata::from(gix_config::Source::Local);
        let read = crate::guarded(|| {
            gix_config::File::from_bytes_no_includes(&bytes, meta, gix_config::file::init::Options::default())
        });
        let file = read.map_err(|what| GitError::damaged(&folder.at(b"config"), what))?;
        Ok(Self { folder, file })
    }

    fn value(&self, key: &str) -> Option<Vec<u8>> {
        self.file.string(key).map(Vec::from)
    }

    fn is(&self, key: &str) -> Result<bool, GitError> {
        let value = self.file.boolean(key);
        Ok(value.map_err(|error| GitError::damaged(&self.folder.at(b"config"), error))?.unwrap_or(false))
    }

    /// Returns the hash algorithm if all features of the repository are supported.
    fn object_format(&self) -> Result<Kind, GitError> {
        let unsupported = |what: String| Err(GitError::unsupported(self.folder.path(), what));
        match self.value("core.repositoryformatversion").as_deref() {
            None | Some(b"" | b"0") => return Ok(Kind::Sha1),
            Some(b"1") => {}
            Some(other) => return unsupported(format!("its version is {}", other.escape_ascii())),
        }
        let mut kind = Kind::Sha1;
        for section in
            self.file.sections().filter(|section| section.header().name().eq_ignore_ascii_case(b"extensions"))
        {
            for name in section.value_names() {
                let name = name.to_string().to_ascii_lowercase();
                let value = self.value(&format!("extensions.{name}")).unwrap_or_default();
                match (name.as_str(), value.as_slice()) {
                    ("objectformat", b"sha1") | ("refstorage", b"files") => {}
                    ("objectformat", b"sha256") => kind = Kind::Sha256,
                    ("refstorage", other) => {
                        return unsupported(format!("its refs are stored as {}", other.escape_ascii()));
                    }
                    ("objectformat", other) => {
                        return unsupported(format!("its object format is {}", other.escape_ascii()));
                    }
                    (name, _) if EXTENSIONS.contains(&name) => {}
                    (name, _) => {
                        return unsupported(format!("it uses the extension {}", name.escape_debug()));
                    }
                }
            }
        }
        Ok(kind)
    }

    /// Returns the committer from the configuration, as one safe line.
    fn identity(&self) -> String {
        let word = |key: &str, default: &str| {
            let value = String::from_utf8_lossy(&self.value(key).unwrap_or_default()).into_owned();
            let clean: String =
                value.chars().filter(|letter| !letter.is_control() && !matches!(letter, '<' | '>')).collect();
            match clean.trim() {
                "" => default.to_owned(),
                word => word.to_owned(),
            }
        };
        format!("{} <{}>", word("user.name", "Safepoint"), word("user.email", "safepoint@localhost"))
    }
}
