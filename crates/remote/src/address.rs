//! Addresses of the two halves of a remote. A secret in an address is refused: addresses are stored in the
//! configuration and printed.

use crate::RemoteError;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use url::Url;

/// Names of URL parameters that carry secrets in connection strings of common tools.
const SECRETS: [&str; 12] = [
    "password",
    "passwd",
    "pwd",
    "secret",
    "secret_key",
    "secret_access_key",
    "access_key",
    "access_key_id",
    "session_token",
    "token",
    "sas",
    "sig",
];

fn refuse_secrets(url: &Url, what: &'static str) -> Result<(), RemoteError> {
    let names = url.query_pairs().map(|(name, _)| name.to_ascii_lowercase().replace('-', "_"));
    let has_secret = url.password().is_some()
        || names.into_iter().any(|name| {
            SECRETS.iter().any(|secret| name == *secret || name.ends_with(&format!("_{secret}")))
        });
    if has_secret { Err(RemoteError::SecretInAddress { what }) } else { Ok(()) }
}

fn malformed(what: &'static str, why: impl Into<String>) -> RemoteError {
    RemoteError::Address { what, why: why.into() }
}

/// Address of the records: `postgres://[USER@]HOST[:PORT]/DATABASE[?sslmode=...&service=...]`.
///
/// A host that is empty, or the parameter `host=/FOLDER`, selects a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordsUrl(Url);

impl RecordsUrl {
    pub(crate) fn url(&self) -> &Url {
        &self.0
    }
}

impl FromStr for RecordsUrl {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Self, RemoteError> {
        // The error of the parser is not shown: a malformed address may contain a password.
        let why = match text.contains("@/") {
            true => {
                "a user needs a host; for a Unix socket write postgres:///DATABASE?user=USER&host=/FOLDER"
            }
            false => "it is not a URL",
        };
        let url = Url::parse(text).map_err(|_| malformed("records", why))?;
        refuse_secrets(&url, "records")?;
        match url.scheme() {
            "postgres" | "postgresql" => Ok(Self(url)),
            _ => Err(malformed("records", "it must begin with postgres://")),
        }
    }
}

impl fmt::Display for RecordsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Kind of an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BytesPlace {
    S3 { bucket: String },
    Gcs { bucket: String },
    Azure { account: String, container: String },
    Folder(PathBuf),
}

/// Address of the bytes: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://ACCOUNT/CONTAINER/PREFIX` or
/// `file:///FOLDER`. Parameters: `endpoint`, `region`, `profile`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BytesUrl {
    url: Url,
    pub(crate) place: BytesPlace,
    pub(crate) prefix: String,
}

impl BytesUrl {
    /// Returns the value of a parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        self.url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }
}

impl FromStr for BytesUrl {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Self, RemoteError> {
        let url = Url::parse(text).map_err(|_| malformed("bytes", "it is not a URL"))?;
        if url.password().is_some() || !url.username().is_empty() {
            return Err(RemoteError::SecretInAddress { what: "bytes" });
        }
        refuse_secrets(&url, "bytes")?;
        if let Some((name, _)) =
            url.query_pairs().find(|(name, _)| !["endpoint", "region", "profile"].contains(&&**name))
        {
            return Err(malformed("bytes", format!("the parameter `{name}` is unknown")));
        }
        let host = || match url.host_str() {
            Some(host) if !host.is_empty() => Ok(host.to_owned()),
            _ => Err(malformed("bytes", "it names no bucket")),
        };
        let path = url.path().trim_matches('/').to_owned();
        let (place, prefix) = match url.scheme() {
            "s3" => (BytesPlace::S3 { bucket: host()? }, path),
            "gs" => (BytesPlace::Gcs { bucket: host()? }, path),
            "az" => {
                let (container, prefix) = path.split_once('/').unwrap_or((&path, ""));
                if container.is_empty() {
                    return Err(malformed("bytes", "it names no container"));
                }
                (BytesPlace::Azure { account: host()?, container: container.to_owned() }, prefix.to_owned())
            }
            "file" => {
                let folder = url.to_file_path().map_err(|()| malformed("bytes", "it names no folder"))?;
                (BytesPlace::Folder(folder), String::new())
            }
            _ => return Err(malformed("bytes", "it must begin with s3://, gs://, az:// or file://")),
        };
        Ok(Self { url, place, prefix })
    }
}

impl fmt::Display for BytesUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_a_secret_is_refused_and_not_shown() {
        for text in [
            "postgres://me:hunter2@host/db",
            "postgres://me@host/db?password=hunter2",
            "postgres://me@host/db?sslpassword=hunter2&PASSWORD=hunter2",
        ] {
            let error = text.parse::<RecordsUrl>().unwrap_err();
            assert!(matches!(error, RemoteError::SecretInAddress { .. }), "{text}");
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
        for text in [
            "s3://key:hunter2@bucket/p",
            "s3://hunter2@bucket/p",
            "s3://bucket/p?secret_access_key=hunter2",
            "s3://bucket/p?aws-session-token=hunter2",
            "az://account/container?sig=hunter2",
        ] {
            let error = text.parse::<BytesUrl>().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn a_malformed_address_is_refused_without_showing_it() {
        for text in ["hunter2", "mysql://hunter2", "postgres:hunter2:x@[", "http://hunter2"] {
            if let Err(error) = text.parse::<RecordsUrl>() {
                assert!(!error.to_string().contains("hunter2"), "{error}");
            }
            assert!(text.parse::<BytesUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_of_bytes_names_its_place() {
        let s3: BytesUrl = "s3://bucket/a/b?endpoint=http://127.0.0.1:8333&region=x".parse().unwrap();
        assert_eq!(s3.place, BytesPlace::S3 { bucket: "bucket".to_owned() });
        assert_eq!(s3.prefix, "a/b");
        assert_eq!(s3.parameter("endpoint").as_deref(), Some("http://127.0.0.1:8333"));
        let azure: BytesUrl = "az://account/container/p".parse().unwrap();
        assert_eq!(azure.prefix, "p");
        let folder: BytesUrl = "file:///tmp/x".parse().unwrap();
        assert_eq!(folder.place, BytesPlace::Folder("/tmp/x".into()));
        for bad in ["s3:///p", "az://account", "file://host/x", "s3://bucket?mode=x"] {
            assert!(bad.parse::<BytesUrl>().is_err(), "{bad}");
        }
    }
}
