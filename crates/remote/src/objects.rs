//! Bytes in an object store: S3, Google Cloud Storage or Azure.
//!
//! Conditional requests are sent where they work, and relied on nowhere: the name of a pack covers its bytes.

mod connector;
mod failure;
mod profile;

use crate::address::{BytesPlace, BytesUrl};
use crate::bytes::{ConditionalPut, ListedObject, PART_BYTES, RemoteBytes};
use crate::environment::RemoteEnvironment;
use crate::runtime::Network;
use crate::{RemoteError, tls};
use bytes::Bytes;
use connector::Connector;
use failure::failed;
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path as ObjectPath;
use object_store::{
    BackoffConfig, Error as StoreFailure, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
    RetryConfig,
};
use profile::Profile;
use safepoint_model::Progress;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Parts of one upload that are sent at the same time.
const PARTS_AT_ONCE: usize = 4;
const DELETES_AT_ONCE: usize = 8;
const ATTEMPTS: usize = 3;
const RETRY_LIMIT: Duration = Duration::from_secs(30);

/// Object store of a cloud, or a server with the interface of S3.
pub struct ObjectBytes {
    network: Network,
    store: Box<dyn ObjectStore>,
    prefix: String,
    /// True once the server refused a conditional request.
    unconditional: AtomicBool,
}

fn wrong(error: &StoreFailure) -> RemoteError {
    RemoteError::Address { what: "bytes", why: failure::brief(error) }
}

impl ObjectBytes {
    /// Prepares the access; nothing is sent yet.
    ///
    /// # Errors
    /// When the address or a file with credentials cannot be used.
    pub fn open(url: &BytesUrl, environment: &RemoteEnvironment) -> Result<Self, RemoteError> {
        Self::open_with(url, environment, Network::start()?)
    }

    pub(crate) fn open_with(
        url: &BytesUrl,
        environment: &RemoteEnvironment,
        network: Network,
    ) -> Result<Self, RemoteError> {
        let connector = Connector::new(tls::configuration("bytes", None)?);
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(50),
                max_backoff: Duration::from_secs(4),
                base: 2.0,
            },
            max_retries: 6,
            retry_timeout: RETRY_LIMIT,
        };
        let store: Box<dyn ObjectStore> = match &url.place {
            BytesPlace::S3 { bucket } => Box::new(s3(url, bucket, environment, connector, retry)?),
            BytesPlace::Gcs { bucket } => {
                let mut builder = GoogleCloudStorageBuilder::new().with_bucket_name(bucket).with_retry(retry);
                for (name, value) in environment.iter() {
                    if let Ok(key) = name.to_ascii_lowercase().parse::<GoogleConfigKey>() {
                        builder = builder.with_config(key, value);
                    }
                }
                if let Some(endpoint) = url.parameter("endpoint") {
                    builder = builder.with_base_url(&endpoint);
                }
                Box::new(builder.with_http_connector(connector).build().map_err(|error| wrong(&error))?)
            }
            BytesPlace::Azure { account, container } => {
                let mut builder = MicrosoftAzureBuilder::new().with_retry(retry);
                for (name, value) in environment.iter() {
                    if let Ok(key) = name.to_ascii_lowercase().parse::<AzureConfigKey>() {
                        builder = builder.with_config(key, value);
                    }
                }
                if let Some(endpoint) = url.parameter("endpoint") {
                    builder =
                        builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
                }
                let builder = builder.with_account(account).with_container_name(container);
                Box::new(builder.with_http_connector(connector).build().map_err(|error| wrong(&error))?)
            }
            BytesPlace::Folder(_) => {
                return Err(RemoteError::Address { what: "bytes", why: "it names a folder".to_owned() });
            }
        };
        Ok(Self { network, store, prefix: url.prefix.clone(), unconditional: AtomicBool::new(false) })
    }

    fn path(&self, name: &str) -> ObjectPath {
        match self.prefix.is_empty() {
            true => ObjectPath::from(name),
            false => ObjectPath::from(format!("{}/{name}", self.prefix)),
        }
    }

    fn put_once(&self, path: &ObjectPath, bytes: &Bytes) -> Result<(), RemoteError> {
        let mut last = None;
        for attempt in 0..ATTEMPTS {
            let mode = match self.unconditional.load(Ordering::Relaxed) {
                true => PutMode::Overwrite,
                false => PutMode::Create,
            };
            let payload = PutPayload::from_bytes(bytes.clone());
            let error = match self.network.run(self.store.put_opts(path, payload, mode.into())) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            match error {
                StoreFailure::AlreadyExists { .. } | StoreFailure::Precondition { .. } => {
                    return self.must_be_equal(path, bytes);
                }
                StoreFailure::NotImplemented { .. } | StoreFailure::NotSupported { .. } => {
                    self.unconditional.store(true, Ordering::Relaxed);
                }
                other
                    if failure::refuses_conditions(&other) && !self.unconditional.load(Ordering::Relaxed) =>
                {
                    self.unconditional.store(true, Ordering::Relaxed);
                }
                other => {
                    let error = failed("upload a pack", &other);
                    if !error.is_transient() || attempt + 1 == ATTEMPTS {
                        return Err(error);
                    }
                    last = Some(error);
                }
            }
        }
        last.map_or(Ok(()), Err)
    }

    /// Accepts an object that exists already if it has these bytes: an earlier answer was lost.
    fn must_be_equal(&self, path: &ObjectPath, bytes: &Bytes) -> Result<(), RemoteError> {
        let found = self.network.run(async { self.store.get(path).await?.bytes().await });
        match found.map_err(|error| failed("read a pack", &error))? == *bytes {
            true => Ok(()),
            false => Err(RemoteError::damaged(format!("the pack {path}"), "another object has its name")),
        }
    }

    async fn put_parts(
        &self,
        path: &ObjectPath,
        file: &File,
        bytes: u64,
        progress: &dyn Progress,
    ) -> Result<(), RemoteError> {
        let failed = |error: StoreFailure| failed("upload a pack", &error);
        let mut upload = self.store.put_multipart(path).await.map_err(failed)?;
        let sent = self.send_parts(upload.as_mut(), file, bytes, progress).await;
        if let Err(error) = sent {
            // Parts that stay cost space until the bucket's rule for them deletes them.
            let _ = upload.abort().await;
            return Err(error);
        }
        upload.complete().await.map_err(failed)?;
        Ok(())
    }

    async fn send_parts(
        &self,
        upload: &mut dyn MultipartUpload,
        file: &File,
        bytes: u64,
        progress: &dyn Progress,
    ) -> Result<(), RemoteError> {
        let mut running = futures_util::stream::FuturesUnordered::new();
        let mut at = 0;
        while at < bytes {
            if progress.interrupted() {
                return Err(RemoteError::Interrupted);
            }
            let len = PART_BYTES.min(bytes - at);
            let part = read(file, at, len)?;
            let sending = upload.put_part(PutPayload::from_bytes(part));
            running.push(async move { sending.await.map(|()| len) });
            at += len;
            if running.len() >= PARTS_AT_ONCE
                && let Some(sent) = running.next().await
            {
                progress.advance(0, sent.map_err(|error| failed("upload a pack", &error))?);
            }
        }
        while let Some(sent) = running.next().await {
            progress.advance(0, sent.map_err(|error| failed("upload a pack", &error))?);
        }
        Ok(())
    }
}

fn read(file: &File, at: u64, len: u64) -> Result<Bytes, RemoteError> {
    let mut part = vec![0; len as usize];
    file.read_exact_at(&mut part, at)
        .map_err(|source| RemoteError::Local { path: "the file of a pack".into(), source })?;
    Ok(Bytes::from(part))
}

fn s3(
    url: &BytesUrl,
    bucket: &str,
    environment: &RemoteEnvironment,
    connector: Connector,
    retry: RetryConfig,
) -> Result<object_store::aws::AmazonS3, RemoteError> {
    let mut builder = AmazonS3Builder::new().with_bucket_name(bucket).with_retry(retry);
    for (name, value) in environment.iter() {
        if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    let given = url.parameter("profile");
    let has_keys = environment.get("AWS_ACCESS_KEY_ID").is_some();
    let has_web_identity = environment.get("AWS_WEB_IDENTITY_TOKEN_FILE").is_some();
    if given.is_some() || environment.get("AWS_PROFILE").is_some() || !has_keys {
        let profile = Profile::read(given.as_deref(), environment)?;
        let wants_profile = given.is_some() || (!has_keys && !has_web_identity);
        if let Some(keys) = profile.keys.filter(|_| wants_profile) {
            builder = builder.with_access_key_id(keys.id).with_secret_access_key(keys.secret.0);
            if let Some(token) = keys.token {
                builder = builder.with_token(token.0);
            }
        }
        if let Some(region) = profile.region.filter(|_| environment.get("AWS_REGION").is_none()) {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = profile.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
    }
    if let Some(region) = url.parameter("region") {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = url.parameter("endpoint") {
        builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
    }
    builder.with_http_connector(connector).build().map_err(|error| wrong(&error))
}

impl RemoteBytes for ObjectBytes {
    fn put(&self, name: &str, file: &File, bytes: u64, progress: &dyn Progress) -> Result<(), RemoteError> {
        let path = self.path(name);
        if bytes > PART_BYTES {
            return self.network.run(self.put_parts(&path, file, bytes, progress));
        }
        self.put_once(&path, &read(file, 0, bytes)?)?;
        progress.advance(0, bytes);
        Ok(())
    }

    fn get(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, RemoteError> {
        let path = self.path(name);
        let found = match self.network.run(self.store.get_range(&path, range.clone())) {
            Err(error) if failure::is_whole_answer(&error) => {
                let whole = self.network.run(async { self.store.get(&path).await?.bytes().await });
                whole.map(|bytes| {
                    let len = bytes.len() as u64;
                    bytes.slice(range.start.min(len) as usize..range.end.min(len) as usize)
                })
            }
            other => other,
        };
        match found {
            Ok(bytes) => Ok(bytes.into()),
            Err(StoreFailure::NotFound { .. }) => Err(RemoteError::NoPack { pack: name.to_owned() }),
            Err(error) => Err(failed("read a pack", &error)),
        }
    }

    fn download(&self, name: &str, out: &mut dyn Write, progress: &dyn Progress) -> Result<u64, RemoteError> {
        let path = self.path(name);
        self.network.run(async {
            let mut stream = match self.store.get(&path).await {
                Ok(found) => found.into_stream(),
                Err(StoreFailure::NotFound { .. }) => {
                    return Err(RemoteError::NoPack { pack: name.to_owned() });
                }
                Err(error) => return Err(failed("read a pack", &error)),
            };
            let mut all = 0;
            while let Some(bytes) = stream.next().await {
                let bytes = bytes.map_err(|error| failed("read a pack", &error))?;
                out.write_all(&bytes)
                    .map_err(|source| RemoteError::Local { path: "the file for a pack".into(), source })?;
                all += bytes.len() as u64;
                progress.advance(0, bytes.len() as u64);
                if progress.interrupted() {
                    return Err(RemoteError::Interrupted);
                }
            }
            Ok(all)
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<ListedObject>, RemoteError> {
        let below = self.path(prefix.trim_end_matches('/'));
        let root = if self.prefix.is_empty() { 0 } else { self.path("").as_ref().len() + 1 };
        let listed = self.network.run(self.store.list(Some(&below)).try_collect::<Vec<_>>());
        let listed = listed.map_err(|error| failed("list packs", &error))?;
        let named = listed.into_iter().filter_map(|found| {
            let name = found.location.as_ref().get(root..)?.to_owned();
            Some(ListedObject { name, bytes: found.size })
        });
        Ok(named.filter(|found| found.name.starts_with(prefix)).collect())
    }

    fn delete(&self, names: &[String]) -> Result<(), RemoteError> {
        let paths: Vec<ObjectPath> = names.iter().map(|name| self.path(name)).collect();
        let each = futures_util::stream::iter(paths.iter().map(|path| async move {
            match self.store.delete(path).await {
                Ok(()) | Err(StoreFailure::NotFound { .. }) => Ok(()),
                Err(error) => Err(failed("delete a pack", &error)),
            }
        }));
        self.network.run(each.buffer_unordered(DELETES_AT_ONCE).try_collect::<Vec<()>>()).map(|_| ())
    }

    fn probe(&self) -> Result<ConditionalPut, RemoteError> {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce)
            .map_err(|error| RemoteError::damaged("random numbers", error.to_string()))?;
        let name = format!("probe/{:032x}", u128::from_le_bytes(nonce));
        let path = self.path(&name);
        let attempt = "check the object store";
        let put = |bytes: &'static [u8], mode: PutMode| {
            self.network.run(self.store.put_opts(&path, PutPayload::from_static(bytes), mode.into()))
        };
        put(b"safepoint", PutMode::Overwrite).map_err(|error| failed(attempt, &error))?;
        let again = put(b"condition", PutMode::Create);
        let read = self.get(&name, 0..9);
        self.delete(&[name])?;
        match (again, read?.as_slice()) {
            (Err(StoreFailure::AlreadyExists { .. } | StoreFailure::Precondition { .. }), b"safepoint") => {
                Ok(ConditionalPut::Obeyed)
            }
            (Ok(_), b"condition") => Ok(ConditionalPut::Ignored),
            (Err(_), b"safepoint") => Ok(ConditionalPut::Unsupported),
            _ => Err(RemoteError::damaged("the object store", "it returned other bytes than were written")),
        }
    }
}
